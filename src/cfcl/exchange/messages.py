"""Everything that ever travels. Only in explicit mode has a type a field for datapoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from cfcl.config import Mode
from cfcl.core import precision

Kind = Literal["datapoint", "embedding", "model", "activation"]
Direction = Literal["push", "pull", "up", "down"]

SERVER = -1
"""The server's place among sources and targets."""


@dataclass(frozen=True)
class Message:
    """Who sends to whom, at which step."""

    source: int
    target: int
    step: int


@dataclass(frozen=True)
class PullRequest(Message):
    """Receiver to transmitter: send me this many items, none where budgets are adaptive and nothing was new.

    Control traffic, not charged.
    """

    num_items: int


@dataclass(frozen=True)
class _Datapoints(Message):
    points: UInt8[Tensor, "points channels height width"]

    def __post_init__(self) -> None:
        assert self.points.dtype == torch.uint8
        assert self.points.ndim == 4

    @property
    def content(self) -> Tensor:
        """What is sent, one row per item."""
        return self.points


@dataclass(frozen=True)
class _Embeddings(Message):
    embeddings: Float[Tensor, "points dim"]

    def __post_init__(self) -> None:
        assert self.embeddings.dtype == torch.float32
        assert self.embeddings.ndim == 2
        assert not self.embeddings.requires_grad

    @property
    def content(self) -> Tensor:
        """What is sent, one row per item."""
        return self.embeddings


@dataclass(frozen=True)
class _Activations(Message):
    """What one layer has made of two views of each point, as floats or in 8 bits."""

    values: Float[Tensor, "points 2 ..."] | UInt8[Tensor, "points 2 ..."]
    ranges: Float[Tensor, "points 2"] | None = None
    """Lowest and highest value of each point, for 8 bits."""

    def __post_init__(self) -> None:
        assert self.values.ndim >= 3
        assert self.values.shape[1] == 2
        assert not self.values.requires_grad
        if self.ranges is None:
            assert self.values.dtype == torch.float32
        else:
            assert self.values.dtype == torch.uint8
            assert self.ranges.dtype == torch.float32
            assert self.ranges.shape == (len(self.values), 2)

    @property
    def content(self) -> Tensor:
        """What is sent, one row per item, as floats."""
        return self.values if self.ranges is None else precision.from_codes(self.values, self.ranges)


@dataclass(frozen=True)
class DataReserve(_Datapoints):
    """Receiver to transmitter: points that stand for my data; for scoring only, never trained on."""

    numbers: Float[Tensor, " _"] | None = None
    """One number per point, if the policy sends any."""


@dataclass(frozen=True)
class DataItems(_Datapoints):
    """Transmitter to receiver: the points drawn for you."""

    new: int | None = None
    """Where budgets are adaptive: how many of the sender's candidates were new to you."""


@dataclass(frozen=True)
class EmbeddingReserve(_Embeddings):
    """Receiver to transmitter: embeddings that stand for my data."""

    numbers: Float[Tensor, " _"] | None = None
    """One number per embedding, if the policy sends any."""


@dataclass(frozen=True)
class EmbeddingItems(_Embeddings):
    """Transmitter to receiver: the embeddings drawn for you."""

    new: int | None = None
    """Where budgets are adaptive: how many of the sender's candidates were new to you."""


@dataclass(frozen=True)
class ActivationReserve(_Activations):
    """Receiver to transmitter: activations of points that stand for my data, and of one augmentation of each."""

    numbers: Float[Tensor, " _"] | None = None
    """One number per point, if the policy sends any."""


@dataclass(frozen=True)
class ActivationItems(_Activations):
    """Transmitter to receiver: activations of two augmented views of each point drawn for you."""

    new: int | None = None
    """Where budgets are adaptive: how many of the sender's candidates were new to you."""


@dataclass(frozen=True)
class _Model(Message):
    params: Float[Tensor, " params"]
    buffers: Float[Tensor, " buffers"]


@dataclass(frozen=True)
class LocalModel(_Model):
    """Device to server: my model, and the mean number of points it was trained on since the last aggregation."""

    weight: float
    extras: Mapping[str, Float[Tensor, " _"]] = field(default_factory=dict)
    """State besides parameters that is averaged with them, such as a momentum target."""


@dataclass(frozen=True)
class GlobalModel(_Model):
    """Server to a device: the average."""

    extras: Mapping[str, Float[Tensor, " _"]] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSum(Message):
    """Server to itself, where its work is spread over processes: the weighted sum of models so far, in float64."""

    total: Float[Tensor, " entries"]


@dataclass(frozen=True)
class ModelBlock(Message):
    """Server to itself, for a rule that needs all models at once: their entries, one row each in order of device.

    A process sends its own devices' models whole, and gets a block of the entries of all models.
    """

    entries: Float[Tensor, "models entries"]
    first: int = 0
    """The place of the block's first entry in a model."""
    measures: Float[Tensor, "rows 2"] | None = None
    """The weight of each model and its distance from the global one, in float64, where models are clipped."""


Reserve = DataReserve | EmbeddingReserve | ActivationReserve
Items = DataItems | EmbeddingItems | ActivationItems

RAW = (DataReserve, DataItems)
"""What holds datapoints."""

RESERVES: dict[Mode, type[Reserve]] = {
    "explicit": DataReserve,
    "activations": ActivationReserve,
    "implicit": EmbeddingReserve,
}
ITEMS: dict[Mode, type[Items]] = {
    "explicit": DataItems,
    "activations": ActivationItems,
    "implicit": EmbeddingItems,
}
