"""Everything that ever travels. In implicit mode no type has a field that could hold a datapoint."""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Embeddings(Message):
    embeddings: Float[Tensor, "points dim"]

    def __post_init__(self) -> None:
        assert self.embeddings.dtype == torch.float32
        assert self.embeddings.ndim == 2
        assert not self.embeddings.requires_grad


class DataReserve(_Datapoints):
    """Receiver to transmitter: points that stand for my data; for scoring only, never trained on."""


class DataItems(_Datapoints):
    """Transmitter to receiver: the points drawn for you."""


class EmbeddingReserve(_Embeddings):
    """Receiver to transmitter: embeddings that stand for my data."""


class EmbeddingItems(_Embeddings):
    """Transmitter to receiver: the embeddings drawn for you."""


@dataclass(frozen=True)
class LocalModel(Message):
    """Device to server: my model, and the mean number of points it was trained on since the last aggregation."""

    params: Float[Tensor, " params"]
    buffers: Float[Tensor, " buffers"]
    weight: float


@dataclass(frozen=True)
class GlobalModel(Message):
    """Server to a device: the average."""

    params: Float[Tensor, " params"]
    buffers: Float[Tensor, " buffers"]


Reserve = DataReserve | EmbeddingReserve
Items = DataItems | EmbeddingItems
