"""What communication costs, counted at the link and nowhere else."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, get_args

from torch import Tensor

from cfcl.config import CostConfig, ExchangeConfig
from cfcl.exchange.messages import (
    SERVER,
    ActivationItems,
    ActivationReserve,
    DataItems,
    DataReserve,
    Direction,
    EmbeddingItems,
    EmbeddingReserve,
    GlobalModel,
    Items,
    Kind,
    LocalModel,
    Message,
)
from cfcl.records import Costs

LABELS: dict[type[Message], tuple[Kind, Direction]] = {
    DataReserve: ("datapoint", "push"),
    EmbeddingReserve: ("embedding", "push"),
    DataItems: ("datapoint", "pull"),
    EmbeddingItems: ("embedding", "pull"),
    ActivationReserve: ("activation", "push"),
    ActivationItems: ("activation", "pull"),
    LocalModel: ("model", "up"),
    GlobalModel: ("model", "down"),
}

NUMBER_BYTES = 4
"""Of a number that travels with reserves or items."""

Shape = tuple[int, ...]
KINDS: tuple[Kind, ...] = get_args(Kind)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def size_of(message: Message, *, num_parameters: int) -> int:
    """Bytes charged for `message`: one per pixel value, four per float."""
    match message:
        case DataReserve():
            return message.points.numel() + _bytes(message.numbers)
        case DataItems():
            return message.points.numel() + _told(message)
        case EmbeddingReserve():
            return _bytes(message.embeddings) + _bytes(message.numbers)
        case EmbeddingItems():
            return _bytes(message.embeddings) + _told(message)
        case ActivationReserve():
            return _bytes(message.values) + _bytes(message.ranges) + _bytes(message.numbers)
        case ActivationItems():
            return _bytes(message.values) + _bytes(message.ranges) + _told(message)
        case LocalModel() | GlobalModel():
            return 4 * num_parameters + sum(map(_bytes, message.extras.values()))
    return 0  # control traffic, and what the server tells itself


def _bytes(numbers: Tensor | None) -> int:
    return 0 if numbers is None else numbers.element_size() * numbers.numel()


def _told(items: Items) -> int:
    """Bytes of the number of new candidates, where it is told."""
    return 0 if items.new is None else NUMBER_BYTES


def item_size(config: ExchangeConfig, image_shape: Shape, shapes: Mapping[str, Shape]) -> int:
    """Bytes of one item that is pulled, where the stages of the encoder make values of `shapes`."""
    if config.mode == "explicit":
        return prod(image_shape)
    if config.mode == "implicit":
        return 4 * prod(shapes["embedding"])
    values = 2 * prod(shapes[config.layer])
    return 4 * values if config.precision == "float32" else values + 8


@dataclass
class Ledger:
    """Bytes by link, kind and direction, and the seconds of the delay model."""

    config: CostConfig
    num_parameters: int
    """Parameters charged per model."""
    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    """Mbit/s of the device-to-device links that differ."""
    bytes: dict[tuple[int, int, Kind, Direction], int] = field(default_factory=lambda: defaultdict(int))
    seconds: float = 0.0
    _waiting: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def charge(self, message: Message) -> None:
        """Count one transfer. Its time runs beside that of the others until `settle`."""
        if type(message) not in LABELS or (isinstance(message, GlobalModel) and not self.config.charge_broadcast):
            return
        size = size_of(message, num_parameters=self.num_parameters)
        kind, direction = LABELS[type(message)]
        self.bytes[message.source, message.target, kind, direction] += size
        duration = size * 8 / (self._rate(message.source, message.target) * 1e6)
        # Models of different devices travel in parallel; what one device receives over D2D arrives in sequence.
        receiver = message.source if direction == "up" else message.target
        self._waiting[receiver] += duration

    def settle(self, agree: Callable[[float], float] = lambda slowest: slowest) -> float:
        """End of an exchange or an aggregation: add the slowest device's time, and return it.

        Where devices are spread over processes, `agree` turns the slowest here into the slowest of all.
        """
        slowest = agree(max(self._waiting.values(), default=0.0))
        self._waiting.clear()
        self.seconds += slowest
        return slowest

    def charge_step(self) -> None:
        """One local update of all devices, side by side."""
        self.seconds += self.config.step_seconds

    def totals(self) -> dict[str, Any]:
        """The cumulative figures, as they stand in the records."""
        by_direction: dict[str, int] = defaultdict(int)
        joules = 0.0
        for (source, target, _, direction), size in sorted(self.bytes.items()):
            by_direction[direction] += size
            joules += self.config.transmit_watts * size * 8 / (self._rate(source, target) * 1e6)
        found = Costs(
            bytes_push=by_direction["push"],
            bytes_pull=by_direction["pull"],
            bytes_up=by_direction["up"],
            bytes_down=by_direction["down"],
            seconds=self.seconds,
            joules=joules,
        )
        return found.to_dict()

    def table(self) -> list[dict[str, int | str]]:
        """One row per link, kind and direction."""
        return [
            {"source": source, "target": target, "kind": kind, "direction": direction, "bytes": size}
            for (source, target, kind, direction), size in sorted(self.bytes.items())
        ]

    def numbers(self) -> list[list[int]]:
        """The bytes as numbers alone, for other processes."""
        return [
            [source, target, KINDS.index(kind), DIRECTIONS.index(direction), size]
            for (source, target, kind, direction), size in self.bytes.items()
        ]

    def with_numbers(self, rows: Iterable[Sequence[int]]) -> "Ledger":
        """A ledger with the bytes that `numbers` of several processes tell."""
        whole = {(source, target, KINDS[kind], DIRECTIONS[way]): size for source, target, kind, way, size in rows}
        return replace(self, bytes=whole)

    def _rate(self, source: int, target: int) -> float:
        if target == SERVER:
            return self.config.uplink_mbps
        if source == SERVER:
            return self.config.downlink_mbps
        return self.rates.get((source, target), self.config.d2d_mbps)
