"""A network as an ONNX graph: written layer by layer, since ours are made of a dozen kinds of them.

What comes before the network, pixels made floats and standardised, and after it, the unit sphere, is in the graph too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from cfcl.errors import CfclError
from cfcl.models import WholeEncoder, networks
from cfcl.models.encoder import EMBEDDING, FEATURES, stages

OPSET, IR = 17, 8
"""What runtimes have read since 2022: every operator here is in it."""
Shape = tuple[int, ...]


class Graph:
    """Nodes one after another; the last one's output is the place that the next one starts from."""

    def __init__(self, onnx: Any, start: str) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.at = start

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node that takes what comes from `at`, if no inputs are given; comes back with the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, inputs or (self.at,), [name], **attributes))
        self.at = name
        return name

    def apply(self, kind: str, *parameters: str, **attributes: Any) -> str:
        """A node that takes what comes from `at`, and parameters."""
        return self.add(kind, self.at, *parameters, **attributes)

    def tensor(self, values: Any, kind: Any = np.float32) -> str:
        """The name of a constant."""
        name = f"c{len(self.tensors)}"
        self.tensors.append(self._onnx.numpy_helper.from_array(np.asarray(values, dtype=kind), name))
        return name


def build(onnx: Any, module: WholeEncoder, shape: tuple[int, int, int], *, output: str, dim: int) -> Any:
    """The model: `images`, uint8 [batch, channels, height, width], become float32 [batch, dim], called `output`.

    They are features if that is their name, and else embeddings.
    """
    features = output == FEATURES and FEATURES in stages(module.network)
    graph = Graph(onnx, "images")
    graph.add("Cast", to=onnx.TensorProto.FLOAT)
    graph.apply("Div", graph.tensor(255.0))
    if module.standardised:
        _standardise(graph)
    _network(graph, module.network, shape, last=FEATURES if features else EMBEDDING)
    if module.normalised and not features:
        _normalise(graph)
    graph.nodes[-1].output[0] = output
    helper, kinds = onnx.helper, onnx.TensorProto
    whole = helper.make_graph(
        graph.nodes,
        "encoder",
        [helper.make_tensor_value_info("images", kinds.UINT8, ["batch", *shape])],
        [helper.make_tensor_value_info(output, kinds.FLOAT, ["batch", dim])],
        graph.tensors,
    )
    return helper.make_model(
        whole, producer_name="cfcl", ir_version=IR, opset_imports=[helper.make_operatorsetid("", OPSET)]
    )


def _network(graph: Graph, network: nn.Module, shape: Shape, *, last: str) -> None:
    for name, stage in stages(network).items():
        _layer(graph, stage, shape)
        shape = networks.shapes(stage, shape)[-1]
        if name == last:
            break
    if len(shape) > 1:
        graph.apply("Flatten", axis=1)


def _layer(graph: Graph, layer: nn.Module, shape: Shape) -> None:
    # A class of somebody's own may do anything in `forward`: only layers that are known by name are taken.
    kind: type[nn.Module] = networks.Staged if isinstance(layer, networks.Staged) else type(layer)
    if kind not in _LAYERS:
        raise _refused(layer, f"the kinds that can are {', '.join(sorted(_names()))}")
    _LAYERS[kind](graph, layer, shape)


def _refused(layer: nn.Module, rule: str) -> CfclError:
    shown = " ".join(str(layer).split())
    return CfclError(
        f"the layer {shown:.80} cannot be exported, and {rule}: change it, or give the encoder's module to "
        "torch.onnx.export yourself"
    )


def _standardise(graph: Graph) -> None:
    """See `models.encoder.standardise`."""
    images = graph.at
    centred = graph.add("Sub", images, graph.apply("ReduceMean", axes=[2, 3]))
    graph.add("Mul", centred, centred)
    graph.apply("ReduceMean", axes=[2, 3])
    graph.apply("Sqrt")
    graph.add("Div", centred, graph.apply("Add", graph.tensor(0.02)))


def _normalise(graph: Graph) -> None:
    vectors = graph.at
    graph.apply("ReduceL2", axes=[1])
    graph.add("Div", vectors, graph.apply("Max", graph.tensor(1e-12)))


def _sequence(graph: Graph, layers: nn.Sequential, shape: Shape) -> None:
    for layer in layers:
        _layer(graph, layer, shape)
        shape = networks.shapes(layer, shape)[-1]


def _nothing(graph: Graph, layer: nn.Module, shape: Shape) -> None:
    pass


def _convolution(graph: Graph, layer: nn.Conv2d, shape: Shape) -> None:
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        raise _refused(layer, "only a padding of so many zeros can")
    graph.apply(
        "Conv",
        *_parameters(graph, layer.weight, layer.bias),
        kernel_shape=layer.kernel_size,
        strides=layer.stride,
        pads=[*layer.padding, *layer.padding],
        dilations=layer.dilation,
        group=layer.groups,
    )


def _linear(graph: Graph, layer: nn.Linear, shape: Shape) -> None:
    graph.apply("Gemm", *_parameters(graph, layer.weight, layer.bias), transB=1)


def _batch_norm(graph: Graph, layer: nn.BatchNorm2d, shape: Shape) -> None:
    parameters = _parameters(graph, layer.weight, layer.bias, layer.running_mean, layer.running_var)
    if len(parameters) < 4:
        raise _refused(layer, "only one with weights and running statistics can")
    graph.apply("BatchNormalization", *parameters, epsilon=layer.eps)


def _group_norm(graph: Graph, layer: nn.GroupNorm, shape: Shape) -> None:
    if layer.weight is None:
        raise _refused(layer, "only one with weights can")
    # ONNX has one of this name, which changed its meaning between versions; what follows never did.
    groups, size = layer.num_groups, int(np.prod(shape))
    graph.apply("Reshape", graph.tensor([0, groups, size // groups], np.int64))
    graph.apply(
        "InstanceNormalization", graph.tensor(np.ones(groups)), graph.tensor(np.zeros(groups)), epsilon=layer.eps
    )
    graph.apply("Reshape", graph.tensor([0, *shape], np.int64))
    graph.apply("Mul", graph.tensor(_values(layer.weight).reshape(-1, 1, 1)))
    graph.apply("Add", graph.tensor(_values(layer.bias).reshape(-1, 1, 1)))


def _max_pool(graph: Graph, layer: nn.MaxPool2d, shape: Shape) -> None:
    size = layer.kernel_size
    if not isinstance(size, int) or (layer.stride, layer.padding, layer.dilation, layer.ceil_mode) != (
        size,
        0,
        1,
        False,
    ):
        raise _refused(layer, "only squares side by side can")
    side = [size, size]
    graph.apply("MaxPool", kernel_shape=side, strides=side)


def _global_max(graph: Graph, layer: nn.AdaptiveMaxPool2d, shape: Shape) -> None:
    if layer.output_size not in (1, (1, 1)):
        raise _refused(layer, "only a maximum over all of an image can")
    graph.apply("GlobalMaxPool")


def _average(graph: Graph, layer: nn.AdaptiveAvgPool2d, shape: Shape) -> None:
    if not isinstance(layer.output_size, int):
        raise _refused(layer, "only a square of averages can")
    # Sides need not divide, so that windows overlap: two products with what they weigh.
    height, width = shape[1:]
    rows, columns = _windows(height, layer.output_size), _windows(width, layer.output_size)
    graph.add("MatMul", graph.tensor(rows), graph.at)
    graph.apply("MatMul", graph.tensor(columns.T))


def _windows(side: int, number: int) -> NDArray[np.float32]:
    """[number, side]: what each entry of a line counts in each of its averages."""
    found: NDArray[np.float32] = functional.adaptive_avg_pool1d(torch.eye(side), number).T.numpy()
    return found


def _residual(graph: Graph, block: networks.ResidualBlock, shape: Shape) -> None:
    before = graph.at
    inner = nn.Sequential(block.conv1, block.norm1, nn.ReLU(), block.conv2, block.norm2)
    _sequence(graph, inner, shape)
    found, graph.at = graph.at, before
    _layer(graph, block.shortcut, shape)
    graph.add("Add", found, graph.at)
    graph.apply("Relu")


def _parameters(graph: Graph, *tensors: torch.Tensor | None) -> list[str]:
    return [graph.tensor(_values(tensor)) for tensor in tensors if tensor is not None]


def _values(tensor: torch.Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return found


def _names() -> set[str]:
    return {kind.__name__ for kind in _LAYERS if kind.__module__.startswith("torch")}


_LAYERS: dict[type[nn.Module], Callable[[Graph, Any, Shape], object]] = {
    networks.Staged: _sequence,
    networks.ChannelsLast: _nothing,
    networks.ResidualBlock: _residual,
    nn.Sequential: _sequence,
    nn.Identity: _nothing,
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.MaxPool2d: _max_pool,
    nn.AdaptiveMaxPool2d: _global_max,
    nn.AdaptiveAvgPool2d: _average,
    nn.ReLU: lambda graph, layer, shape: graph.apply("Relu"),
    nn.Flatten: lambda graph, layer, shape: graph.apply("Flatten", axis=layer.start_dim),
}
