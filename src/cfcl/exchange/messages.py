"""Everything that ever travels. In implicit mode no type has a field that could hold a datapoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

Kind = Literal["datapoint", "embedding", "model"]
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
    """Receiver to transmitter: send me this many items. Control traffic, not charged."""

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
class DataReserve(_Datapoints):
    """Receiver to transmitter: points that stand for my data; for scoring only, never trained on."""

    numbers: Float[Tensor, " _"] | None = None
    """One number per point, if the policy sends any."""


class DataItems(_Datapoints):
    """Transmitter to receiver: the points drawn for you."""


@dataclass(frozen=True)
class EmbeddingReserve(_Embeddings):
    """Receiver to transmitter: embeddings that stand for my data."""

    numbers: Float[Tensor, " _"] | None = None
    """One number per embedding, if the policy sends any."""


class EmbeddingItems(_Embeddings):
    """Transmitter to receiver: the embeddings drawn for you."""


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


Reserve = DataReserve | EmbeddingReserve
Items = DataItems | EmbeddingItems
