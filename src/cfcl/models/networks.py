"""The networks. Published layer sizes and parameter counts contradict each other: these are ours, not the paper's.

Each is a sequence of named stages, the last two of which are `features`, what enters the first linear layer, and
`embedding`. A maximum is taken before the ReLU: the same function, with a quarter of the ReLUs.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cfcl.config import ModelConfig
from cfcl.errors import CfclError

Shape = tuple[int, int, int]
M = TypeVar("M", bound=nn.Module)
Norm = Literal["batch", "group"]


class ChannelsLast(nn.Module):
    """The same images with channels innermost in memory, which convolutions of many channels run faster on."""

    def forward(self, images: Tensor) -> Tensor:
        """The images, in another layout."""
        if images.shape[1] > 1:
            return images.contiguous(memory_format=torch.channels_last)
        # One channel fits both layouts, and torch takes it for the other one unless the strides say so.
        height, width = images.shape[2:]
        return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))


class Staged(nn.Sequential):
    """Layers one after another, in named stages; layers are numbered through, so stages leave no trace in a file."""

    def __init__(self, **stages: Sequence[nn.Module]) -> None:
        super().__init__(*chain.from_iterable(stages.values()))
        self._sizes = {name: len(layers) for name, layers in stages.items()}

    @property
    def stages(self) -> dict[str, nn.Module]:
        """The stages by name, in order."""
        layers = iter(self)
        return {name: nn.Sequential(*islice(layers, size)) for name, size in self._sizes.items()}


class SmallCnn(Staged):
    """A 3×3 convolution with pooling and two linear layers; 17,648 parameters on 8×8 digits."""

    smallest = 2

    def __init__(self, shape: Shape, embedding_dim: int) -> None:
        channels, height, width = shape
        super().__init__(
            features=[
                ChannelsLast(),
                nn.Conv2d(channels, 16, 3, padding=1),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Flatten(),
            ],
            embedding=[
                nn.Linear(16 * (height // 2) * (width // 2), 64),
                nn.ReLU(),
                nn.Linear(64, embedding_dim),
            ],
        )


class UspsCnn(Staged):
    """Eight 3×3 kernels, pooling, three linear layers without bias; 26,704 parameters on 16×16 USPS."""

    smallest = 2

    def __init__(self, shape: Shape, embedding_dim: int) -> None:
        channels, height, width = shape
        super().__init__(
            features=[
                ChannelsLast(),
                nn.Conv2d(channels, 8, 3, padding=1),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Flatten(),
            ],
            embedding=[
                nn.Linear(8 * (height // 2) * (width // 2), 48, bias=False),
                nn.ReLU(),
                nn.Linear(48, 32, bias=False),
                nn.ReLU(),
                nn.Linear(32, embedding_dim, bias=False),
            ],
        )


class SmallAlexNet(Staged):
    """Five convolutions and three linear layers; 45,864 parameters on 28×28 Fashion-MNIST."""

    smallest = 4

    def __init__(self, shape: Shape, embedding_dim: int) -> None:
        super().__init__(
            block1=[ChannelsLast(), nn.Conv2d(shape[0], 8, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()],
            block2=[nn.Conv2d(8, 24, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()],
            block3=[nn.Conv2d(24, 48, 3, padding=1), nn.ReLU()],
            block4=[nn.Conv2d(48, 32, 3, padding=1), nn.ReLU()],
            block5=[nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()],
            features=[nn.AdaptiveMaxPool2d(1), nn.Flatten()],
            embedding=[nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, embedding_dim)],
        )


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _norm(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), _norm(norm, outputs)
            )

    def forward(self, images: Tensor) -> Tensor:
        """The block's output."""
        hidden = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


class SlimResNet18(Staged):
    """ResNet-18 for small images, of base width 20; 1,134,356 parameters on SVHN with 256-d embeddings."""

    smallest = 8

    def __init__(self, shape: Shape, embedding_dim: int, norm: Norm, width: int = 20) -> None:
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = [
            [ResidualBlock(inputs, outputs, 1 if stage == 0 else 2, norm), ResidualBlock(outputs, outputs, 1, norm)]
            for stage, (inputs, outputs) in enumerate(pairwise(widths))
        ]
        stem = [ChannelsLast(), nn.Conv2d(shape[0], width, 3, padding=1, bias=False), _norm(norm, width), nn.ReLU()]
        super().__init__(
            block1=[*stem, *blocks[0]],
            block2=blocks[1],
            block3=blocks[2],
            block4=blocks[3],
            features=[nn.AdaptiveMaxPool2d(1), nn.Flatten()],
            embedding=[nn.Linear(8 * width, embedding_dim)],
        )


class Conv(Staged):
    """3×3 convolutions, the first two pooled, averaged to a grid of features, and a head; sizes by config.

    56,896 parameters on 16×16 grey images with 32-d embeddings.
    """

    smallest = 4

    def __init__(self, shape: Shape, config: ModelConfig) -> None:
        channels, side = shape[0], min(shape[1:])
        blocks: dict[str, list[nn.Module]] = {}
        for number, (inputs, outputs) in enumerate(pairwise([channels, *config.widths]), start=1):
            norm = [_norm("group", outputs)] if config.norm == "group" else []
            pooled = number <= 2 and side // 2 >= self.smallest
            side = side // 2 if pooled else side
            pool = [nn.MaxPool2d(2)] if pooled else []
            blocks[f"block{number}"] = [nn.Conv2d(inputs, outputs, 3, padding=1), *norm, *pool, nn.ReLU()]
        if config.grid > side:
            raise CfclError(
                f"model.grid={config.grid} exceeds {side}, the side of what the convolutions leave of images of "
                f"{shape[1]}×{shape[2]}: lower model.grid"
            )
        blocks["block1"].insert(0, ChannelsLast())
        sizes = [config.widths[-1] * config.grid**2, *config.head, config.embedding_dim]
        linear = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
        super().__init__(**blocks, features=[nn.AdaptiveAvgPool2d(config.grid), nn.Flatten()], embedding=linear[:-1])


def build(config: ModelConfig, shape: Shape, draws: torch.Generator | None = None) -> Staged:
    """The network that `config` names, for images of `shape`, with weights from `draws`; without them it has no memory.

    Random numbers that torch takes by itself are the caller's, and shared by all threads: a run leaves them alone.
    """
    with torch.device("meta"):
        module = _named(config, shape).float()
    if draws is None:
        return module
    module = drawn(module, draws)
    if isinstance(module, SmallAlexNet | Conv):
        _amplify(module, draws)
    return module


def drawn(module: M, draws: torch.Generator) -> M:
    """A module that has no memory yet, with the weights that torch's own initialisation would give it."""
    module = module.to_empty(device="cpu")
    # Residual blocks come first: the order of draws decides the weights of a seed, and it was always this one.
    blocks = [block for block in module.modules() if isinstance(block, ResidualBlock)]
    for layer in dict.fromkeys([*(layer for block in blocks for layer in block.modules()), *module.modules()]):
        _draw(layer, draws)
    return module


def stage_shapes(stages: Mapping[str, nn.Module], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """What each of the stages makes of an image of `shape`."""
    found = {}
    for name, stage in stages.items():
        found[name] = shape = shapes(stage, shape)[-1]
    return found


def shapes(layer: nn.Module, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What the layers inside `layer` make of an image or of values of `shape`, one after another; the last is its own.

    Reckoned and not tried out: images may be as large as a file says, and torch takes a second to prepare for a trial
    without memory.
    """
    if isinstance(layer, nn.Sequential):
        found = [shape]
        for part in layer:
            found += shapes(part, found[-1])
        return found[1:]
    if isinstance(layer, ResidualBlock):
        *parts, shortcut = layer.children()
        return shapes(nn.Sequential(*parts), shape) + shapes(shortcut, shape)
    if isinstance(layer, nn.Flatten):
        return [(math.prod(shape),)]
    if isinstance(layer, nn.Linear):
        return [(*shape[:-1], layer.out_features)]
    if isinstance(layer, nn.Conv2d):
        kernel, stride, padding = layer.kernel_size[0], layer.stride[0], int(layer.padding[0])
        return [(layer.out_channels, *((side + 2 * padding - kernel) // stride + 1 for side in shape[1:]))]
    if isinstance(layer, nn.MaxPool2d):
        assert isinstance(layer.kernel_size, int)
        return [(shape[0], *(side // layer.kernel_size for side in shape[1:]))]
    if isinstance(layer, nn.AdaptiveMaxPool2d | nn.AdaptiveAvgPool2d):
        assert isinstance(layer.output_size, int)
        return [(shape[0], layer.output_size, layer.output_size)]
    return [shape]


def _draw(layer: nn.Module, draws: torch.Generator) -> None:
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=draws)
        if layer.bias is not None:
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.bias, -bound, bound, generator=draws)
    elif isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
        layer.reset_parameters()


def _amplify(network: Staged, draws: torch.Generator) -> None:
    """Draw larger weights than torch does.

    Its own shrink the signal from layer to layer until all embeddings coincide, and the first hundred steps then spoil
    the encoder.
    """
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=draws)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


def _named(config: ModelConfig, shape: Shape) -> Staged:
    kinds: dict[str, type[SmallCnn | UspsCnn | SmallAlexNet | SlimResNet18 | Conv]] = {
        "small-cnn": SmallCnn,
        "usps-cnn": UspsCnn,
        "small-alexnet": SmallAlexNet,
        "slim-resnet18": SlimResNet18,
        "conv": Conv,
    }
    kind = kinds[config.encoder]
    if min(shape[1:]) < kind.smallest:
        raise CfclError(
            f"images of {shape[1]}×{shape[2]} are too small for model.encoder={config.encoder!r}, which needs "
            f"{kind.smallest}×{kind.smallest}: choose another encoder or larger images"
        )
    if kind is Conv:
        return Conv(shape, config)
    if kind is SlimResNet18:
        return SlimResNet18(shape, config.embedding_dim, config.norm)
    return kind(shape, config.embedding_dim)  # type: ignore[call-arg, arg-type]  # the others have no further settings


def _norm(kind: Norm, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(math.gcd(4, channels), channels)
