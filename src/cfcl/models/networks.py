"""The networks. Published layer sizes and parameter counts contradict each other: these are ours, not the paper's.

A maximum is taken before the ReLU: the same function, with a quarter of the ReLUs. Initial weights come from a stream
of their own: the random numbers that torch would take are the caller's, and shared by all threads.
"""

import math
from itertools import pairwise
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cfcl.config import ModelConfig
from cfcl.errors import CfclError

Shape = tuple[int, int, int]
Norm = Literal["batch", "group"]
Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class ChannelsLast(nn.Module):
    """The same images with channels innermost in memory, which convolutions of many channels run faster on."""

    def forward(self, images: Tensor) -> Tensor:
        """The images, in another layout."""
        if images.shape[1] > 1:
            return images.contiguous(memory_format=torch.channels_last)
        # One channel fits both layouts, and torch takes it for the other one unless the strides say so.
        height, width = images.shape[2:]
        return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))


class SmallCnn(nn.Sequential):
    """A 3×3 convolution with pooling and two linear layers; 17,648 parameters on 8×8 digits."""

    smallest = 2

    def __init__(self, shape: Shape, embedding_dim: int, draws: torch.Generator) -> None:
        channels, height, width = shape
        super().__init__(
            ChannelsLast(),
            _conv(draws, channels, 16, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            _linear(draws, 16 * (height // 2) * (width // 2), 64),
            nn.ReLU(),
            _linear(draws, 64, embedding_dim),
        )


class UspsCnn(nn.Sequential):
    """Eight 3×3 kernels, pooling, three linear layers without bias; 26,704 parameters on 16×16 USPS."""

    smallest = 2

    def __init__(self, shape: Shape, embedding_dim: int, draws: torch.Generator) -> None:
        channels, height, width = shape
        super().__init__(
            ChannelsLast(),
            _conv(draws, channels, 8, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            _linear(draws, 8 * (height // 2) * (width // 2), 48, bias=False),
            nn.ReLU(),
            _linear(draws, 48, 32, bias=False),
            nn.ReLU(),
            _linear(draws, 32, embedding_dim, bias=False),
        )


class SmallAlexNet(nn.Sequential):
    """Five convolutions and three linear layers; 45,864 parameters on 28×28 Fashion-MNIST."""

    smallest = 4

    def __init__(self, shape: Shape, embedding_dim: int, draws: torch.Generator) -> None:
        super().__init__(
            ChannelsLast(),
            _conv(draws, shape[0], 8, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            _conv(draws, 8, 24, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            _conv(draws, 24, 48, 3, padding=1),
            nn.ReLU(),
            _conv(draws, 48, 32, 3, padding=1),
            nn.ReLU(),
            _conv(draws, 32, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            _linear(draws, 32, 64),
            nn.ReLU(),
            _linear(draws, 64, 64),
            nn.ReLU(),
            _linear(draws, 64, embedding_dim),
        )
        # torch's own initialisation shrinks the signal from layer to layer until all embeddings coincide, and the
        # first hundred steps then spoil the encoder.
        for layer in self:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=draws)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, draws: torch.Generator) -> None:
        super().__init__()
        self.conv1 = _conv(draws, inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _norm(norm, outputs)
        self.conv2 = _conv(draws, outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _norm(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                _conv(draws, inputs, outputs, 1, stride=stride, bias=False), _norm(norm, outputs)
            )

    def forward(self, images: Tensor) -> Tensor:
        """The block's output."""
        hidden = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


class SlimResNet18(nn.Sequential):
    """ResNet-18 for small images, of base width 20; 1,134,356 parameters on SVHN with 256-d embeddings."""

    smallest = 8

    def __init__(self, shape: Shape, embedding_dim: int, draws: torch.Generator, norm: Norm, width: int = 20) -> None:
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks: list[nn.Module] = []
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            blocks += [
                ResidualBlock(inputs, outputs, 1 if stage == 0 else 2, norm, draws),
                ResidualBlock(outputs, outputs, 1, norm, draws),
            ]
        super().__init__(
            ChannelsLast(),
            _conv(draws, shape[0], width, 3, padding=1, bias=False),
            _norm(norm, width),
            nn.ReLU(),
            *blocks,
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            _linear(draws, 8 * width, embedding_dim),
        )


def build(config: ModelConfig, shape: Shape, draws: torch.Generator) -> nn.Module:
    """The network that `config` names, for images of `shape`, with weights from `draws`."""
    kinds: dict[str, type[SmallCnn | UspsCnn | SmallAlexNet | SlimResNet18]] = {
        "small-cnn": SmallCnn,
        "usps-cnn": UspsCnn,
        "small-alexnet": SmallAlexNet,
        "slim-resnet18": SlimResNet18,
    }
    kind = kinds[config.encoder]
    if min(shape[1:]) < kind.smallest:
        raise CfclError(
            f"images of {shape[1]}×{shape[2]} are too small for model.encoder={config.encoder!r}, which needs "
            f"{kind.smallest}×{kind.smallest}: choose another encoder or larger images"
        )
    if kind is SlimResNet18:
        return SlimResNet18(shape, config.embedding_dim, draws, config.norm)
    return kind(shape, config.embedding_dim, draws)  # type: ignore[call-arg]  # the others have no normalisation


def _conv(
    draws: torch.Generator,
    inputs: int,
    outputs: int,
    size: int,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: bool = True,
) -> nn.Conv2d:
    layer = nn.Conv2d(
        inputs, outputs, size, stride=stride, padding=padding, bias=bias, device="meta", dtype=torch.float32
    )
    return _drawn(layer, draws)


def _linear(draws: torch.Generator, inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    return _drawn(nn.Linear(inputs, outputs, bias=bias, device="meta", dtype=torch.float32), draws)


def _drawn(layer: Layer, draws: torch.Generator) -> Layer:
    """The layer, which has had no memory yet, with the weights that torch's own initialisation gives it."""
    layer = layer.to_empty(device="cpu")
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=draws)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound, generator=draws)
    return layer


def _norm(kind: Norm, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels, dtype=torch.float32)
    return nn.GroupNorm(4, channels, dtype=torch.float32)
