"""Who holds which training points: disjoint shares unless told otherwise, never an empty device."""

import heapq
from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cfcl.config import PartitionConfig
from cfcl.data import redundant
from cfcl.errors import CfclError

Shares = tuple[Int[Tensor, " points"], ...]

MIN_POINTS = 2
"""Fewest points of a device: an anchor and a negative."""


def split(
    config: PartitionConfig,
    labels: Tensor | None,
    num_points: int,
    generator: torch.Generator,
    *,
    devices: Tensor | None = None,
) -> Shares:
    """The sorted indices of each device's points, as `config` describes; `devices` is whom the data name."""
    if config.kind == "given":
        return given(devices, num_devices=config.num_devices)
    if config.kind == "iid":
        return iid(num_points, num_devices=config.num_devices, generator=generator)
    if labels is None:
        kind = "iid" if devices is None else "given"
        raise CfclError(
            f"partition.kind={config.kind!r} splits by label, but the data have none: set partition.kind={kind!r}"
        )
    if config.kind in ("labels", "overlapping"):
        return (by_labels if config.kind == "labels" else overlapping)(
            labels,
            num_devices=config.num_devices,
            labels_per_device=config.labels_per_device,
            max_per_label=config.max_points_per_label,
            generator=generator,
        )
    if config.kind in ("common", "skewed"):
        return _redundant(config, labels, generator)
    return dirichlet(
        labels,
        num_devices=config.num_devices,
        alpha=config.alpha,
        min_points=config.min_points,
        generator=generator,
    )


def iid(num_points: int, *, num_devices: int, generator: torch.Generator) -> Shares:
    """A shuffled split into shares that differ by at most one point."""
    _check_supply(num_points, num_devices, MIN_POINTS)
    return _sorted(torch.randperm(num_points, generator=generator).tensor_split(num_devices))


def given(devices: Int[Tensor, " points"] | None, *, num_devices: int) -> Shares:
    """Shares as the data name them, in order of the devices' numbers."""
    if devices is None:
        raise CfclError(
            "partition.kind='given' takes the devices that the data name, but these name none: set "
            "data.layout='devices', add `devices` to the .npz file, or choose another partition.kind"
        )
    names = torch.unique(devices)
    if len(names) != num_devices:
        raise CfclError(
            f"partition.num_devices={num_devices} differs from the {len(names)} devices in the data: set "
            f"partition.num_devices={len(names)}"
        )
    shares = tuple((devices == name).nonzero().squeeze(1) for name in names)
    device, fewest = min(enumerate(map(len, shares)), key=lambda item: item[1])
    if fewest < MIN_POINTS:
        raise CfclError(
            f"device {int(names[device])} holds {fewest} training image, but a device needs at least {MIN_POINTS}: "
            "give it more images or leave it out"
        )
    return shares


def by_labels(
    labels: Int[Tensor, " points"],
    *,
    num_devices: int,
    labels_per_device: int,
    generator: torch.Generator,
    max_per_label: int | None = None,
) -> Shares:
    """Shares of `labels_per_device` labels each, every label on the same number of devices and split evenly.

    A label that no device holds is left out, as is what exceeds `max_per_label` points on a device.
    """
    classes = torch.unique(labels)
    _check_labels_per_device(labels_per_device, len(classes))
    _check_supply(len(labels), num_devices, MIN_POINTS)
    held = _deal(len(classes), num_devices, labels_per_device, generator)
    shares: list[list[Tensor]] = [[] for _ in range(num_devices)]
    for position, label in enumerate(classes):
        holders = (held == position).any(dim=1).nonzero().squeeze(1).tolist()
        points = _shuffled((labels == label).nonzero().squeeze(1), generator)
        _check_label(int(label), len(points), len(holders))
        for device, part in zip(holders, points.tensor_split(len(holders)) if holders else (), strict=True):
            shares[device].append(part[:max_per_label])
    result = _sorted([torch.cat(parts) for parts in shares])
    _check_poorest(result, max_per_label)
    return result


def overlapping(
    labels: Int[Tensor, " points"],
    *,
    num_devices: int,
    labels_per_device: int,
    generator: torch.Generator,
    max_per_label: int | None = None,
) -> Shares:
    """Shares of `labels_per_device` labels each, every device with its own draw of up to `max_per_label` points."""
    classes = torch.unique(labels)
    _check_labels_per_device(labels_per_device, len(classes))
    held = _deal(len(classes), num_devices, labels_per_device, generator)
    points = [(labels == label).nonzero().squeeze(1) for label in classes]
    result = _sorted(
        [torch.cat([_shuffled(points[i], generator)[:max_per_label] for i in row]) for row in held.tolist()]
    )
    _check_poorest(result, max_per_label)
    return result


def dirichlet(
    labels: Int[Tensor, " points"],
    *,
    num_devices: int,
    alpha: float,
    min_points: int,
    generator: torch.Generator,
) -> Shares:
    """Each label spread by Dirichlet(`alpha`) shares; the richest then give to devices below `min_points`."""
    assert min_points >= MIN_POINTS  # checked by the config
    _check_supply(len(labels), num_devices, min_points)
    held: list[list[int]] = [[] for _ in range(num_devices)]
    for label in torch.unique(labels):
        points = _shuffled((labels == label).nonzero().squeeze(1), generator)
        ends = (_dirichlet_shares(num_devices, alpha, generator).cumsum(0) * len(points)).round().long()
        for device, part in enumerate(points.tensor_split(ends[:-1])):
            held[device] += part.tolist()
    _fill_up(held, min_points, generator)
    return _sorted([torch.tensor(points) for points in held])


def _redundant(config: PartitionConfig, labels: Int[Tensor, " points"], generator: torch.Generator) -> Shares:
    """Shares in which one label prevails."""
    deal = partial(redundant.common, disjoint=config.disjoint) if config.kind == "common" else redundant.skewed
    found = deal(
        labels,
        num_devices=config.num_devices,
        labels_per_device=config.labels_per_device,
        points_per_device=config.points_per_device,
        share=config.main_share,
        generator=generator,
    )
    result = _sorted(found)
    _check_poorest(result, None)
    return result


def _deal(
    num_classes: int, num_devices: int, labels_per_device: int, generator: torch.Generator
) -> Int[Tensor, "devices labels"]:
    """Distinct labels for each device such that the numbers of holders differ by at most one."""
    base, extra = divmod(num_devices * labels_per_device, num_classes)
    left = torch.full((num_classes,), base, dtype=torch.float64)
    left[torch.randperm(num_classes, generator=generator)[:extra]] += 1
    ties = torch.rand(num_devices, num_classes, generator=generator, dtype=torch.float64)
    rows = []
    for tie in ties:
        # Taking where most is left keeps the rest within one of each other, so no device ever finds too few labels.
        row = (left + tie).topk(labels_per_device).indices
        left[row] -= 1
        rows.append(row)
    return torch.stack(rows)


def _dirichlet_shares(num_devices: int, alpha: float, generator: torch.Generator) -> Float[Tensor, " devices"]:
    """One draw of Dirichlet(alpha), without NaN for any alpha > 0."""
    # Gamma(a) = Gamma(a + 1) U^(1/a), in logarithms: the plain draw underflows to 0/0 for small alpha.
    boosted = torch._standard_gamma(
        torch.full((num_devices,), alpha + 1, dtype=torch.float64), generator=generator
    ).log()
    powers = (-torch.rand(num_devices, generator=generator, dtype=torch.float64)).log1p()
    return (boosted + (powers - powers.max()) / alpha).softmax(dim=0)


def _fill_up(held: list[list[int]], min_points: int, generator: torch.Generator) -> None:
    """Move random points, one by one, from whoever has most to devices below `min_points`."""
    richest = [(-len(points), device) for device, points in enumerate(held)]
    heapq.heapify(richest)
    for points in held:
        while len(points) < min_points:
            size, device = richest[0]
            giver = held[device]
            points.append(giver.pop(int(torch.randint(len(giver), (), generator=generator))))
            heapq.heapreplace(richest, (size + 1, device))


def _shuffled(points: Int[Tensor, " points"], generator: torch.Generator) -> Int[Tensor, " points"]:
    return points[torch.randperm(len(points), generator=generator)]


def _sorted(shares: Sequence[Tensor]) -> Shares:
    return tuple(share.sort().values for share in shares)


def _check_supply(num_points: int, num_devices: int, min_points: int) -> None:
    if num_points < num_devices * min_points:
        lower = "partition.num_devices" + (" or partition.min_points" if min_points > MIN_POINTS else "")
        raise CfclError(
            f"partition.num_devices={num_devices} needs {num_devices * min_points} training points, at least "
            f"{min_points} on each, but there are {num_points}: lower {lower}"
        )


def _check_labels_per_device(labels_per_device: int, num_classes: int) -> None:
    if labels_per_device > num_classes:
        raise CfclError(
            f"partition.labels_per_device={labels_per_device} exceeds the {num_classes} labels of the data, but those "
            "of a device are distinct: lower partition.labels_per_device"
        )


def _check_label(label: int, num_points: int, num_holders: int) -> None:
    if num_points < num_holders:
        raise CfclError(
            f"label {label} has {num_points} points for {num_holders} devices, but each that holds it needs one: "
            "lower partition.num_devices or partition.labels_per_device"
        )


def _check_poorest(shares: Shares, max_per_label: int | None) -> None:
    device, fewest = min(enumerate(map(len, shares)), key=lambda item: item[1])
    if fewest < MIN_POINTS:
        cap = "" if max_per_label is None else f" with partition.max_points_per_label={max_per_label}"
        remedy = "raise partition.max_points_per_label" if cap else "lower partition.num_devices"
        raise CfclError(
            f"device {device} would hold {fewest} point{cap}, but a device needs at least {MIN_POINTS}: {remedy}, or "
            "raise partition.labels_per_device"
        )
