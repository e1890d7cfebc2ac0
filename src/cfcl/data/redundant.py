"""Shares in which one kind prevails: the same on every device, or another on each."""

from collections import Counter

import torch
from jaxtyping import Int
from torch import Tensor

from cfcl.errors import CfclError

Demand = list[tuple[int, int]]
"""Positions of classes, and how many points of each a device takes; the one that prevails comes first."""


def common(
    labels: Int[Tensor, " points"],
    *,
    num_devices: int,
    labels_per_device: int,
    points_per_device: int | None,
    share: float,
    disjoint: bool,
    generator: torch.Generator,
) -> list[Tensor]:
    """Shares of which `share` is of the commonest label, and the rest of `labels_per_device` others, in equal parts.

    Points of the common label may lie on several devices unless the shares are `disjoint`; then each is used about as
    often as any other. Without `points_per_device`, all devices have as many as the data allow.
    """
    pools = _pools(labels, generator)
    _check_labels(labels_per_device, len(pools) - 1, "those besides the common one")
    main = max(range(len(pools)), key=lambda position: len(pools[position]))
    rows = _deal([main] * num_devices, len(pools), labels_per_device, generator)
    return _dealt(labels, pools, rows, points_per_device, share, None if disjoint else main, generator)


def skewed(
    labels: Int[Tensor, " points"],
    *,
    num_devices: int,
    labels_per_device: int,
    points_per_device: int | None,
    share: float,
    generator: torch.Generator,
) -> list[Tensor]:
    """Disjoint shares of `labels_per_device` labels: one has `share` of the points, and the others equal parts.

    Labels prevail on as many devices as any other, or on one more.
    """
    pools = _pools(labels, generator)
    _check_labels(labels_per_device, len(pools), "the labels of the data")
    order = torch.randperm(len(pools), generator=generator).tolist()
    mains = [order[device % len(pools)] for device in range(num_devices)]
    rows = _deal(mains, len(pools), labels_per_device - 1, generator)
    return _dealt(labels, pools, rows, points_per_device, share, None, generator)


def _pools(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The points of each class, shuffled."""
    found = [(labels == label).nonzero().squeeze(1) for label in torch.unique(labels)]
    return [points[torch.randperm(len(points), generator=generator)] for points in found]


def _deal(mains: list[int], num_classes: int, number: int, generator: torch.Generator) -> list[list[int]]:
    """For each device the class that prevails, and `number` others, each of them on about as many devices."""
    used = torch.zeros(num_classes, dtype=torch.float64)
    rows = []
    for main in mains:
        order = used + torch.rand(num_classes, generator=generator, dtype=torch.float64)
        order[main] = torch.inf
        others = order.topk(number, largest=False).indices
        used[others] += 1
        rows.append([main, *others.tolist()])
    return rows


def _dealt(
    labels: Tensor,
    pools: list[Tensor],
    rows: list[list[int]],
    size: int | None,
    share: float,
    reused: int | None,
    generator: torch.Generator,
) -> list[Tensor]:
    """The points of every device; those of class `reused` may be on several."""
    sizes = [len(pool) for pool in pools]
    if size is None:
        size = _largest(rows, share, sizes, reused, len(labels))
    wanted = [_demand(row, size, share) for row in rows]
    if (short := _short(wanted, sizes, reused)) is not None:
        position, needed = short
        label = int(labels[pools[position][0]])
        raise CfclError(
            f"partition.points_per_device={size} takes {needed:,} points of label {label}, but there are "
            f"{sizes[position]:,}: lower it, partition.num_devices or partition.main_share"
        )
    taken, used = Counter[int](), torch.zeros(max(sizes), dtype=torch.float64)
    found = []
    for demand in wanted:
        parts = []
        for position, count in demand:
            if position == reused:
                ties = torch.rand(sizes[position], generator=generator, dtype=torch.float64)
                chosen = (used[: sizes[position]] + ties).topk(count, largest=False).indices
                used[chosen] += 1
                parts.append(pools[position][chosen])
            else:
                parts.append(pools[position][taken[position] : taken[position] + count])
                taken[position] += count
        found.append(torch.cat(parts))
    return found


def _demand(row: list[int], size: int, share: float) -> Demand:
    """How many points of each class of `row` make `size`; a remainder goes to the first of the others."""
    main, *others = row
    first = round(size * share) if others else size
    each, more = divmod(size - first, max(1, len(others)))
    return [(main, first), *((position, each + (place < more)) for place, position in enumerate(others))]


def _short(wanted: list[Demand], sizes: list[int], reused: int | None) -> tuple[int, int] | None:
    """A class of which too many points are wanted, and how many; None if there are enough of all."""
    needed = Counter[int]()
    for demand in wanted:
        for position, count in demand:
            needed[position] = max(needed[position], count) if position == reused else needed[position] + count
    return next(((position, count) for position, count in needed.items() if count > sizes[position]), None)


def _largest(rows: list[list[int]], share: float, sizes: list[int], reused: int | None, most: int) -> int:
    """The most points of a device for which there are enough of all classes."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        fits = _short([_demand(row, middle, share) for row in rows], sizes, reused) is None
        low, most = (middle, most) if fits else (low, middle - 1)
    return low


def _check_labels(wanted: int, there: int, what: str) -> None:
    if wanted > there:
        raise CfclError(
            f"partition.labels_per_device={wanted} exceeds the {there} labels that there are ({what}): lower it"
        )
