"""What a device may ask of items that neighbours send: a length, a range, and no more than a share from each."""

from collections import Counter

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor


def lengths(items: Float[Tensor, "items ..."]) -> Float[Tensor, " items"]:
    """The Euclidean length of each item, in float64."""
    found: Tensor = torch.linalg.vector_norm(items.flatten(1).double(), dim=1)
    return found


def shortened(items: Float[Tensor, "items ..."], most: float) -> Float[Tensor, "items ..."]:
    """The items, but those longer than `most` brought to that length; the others are what they were, to the bit."""
    found = lengths(items).view(-1, *[1] * (items.ndim - 1))
    return torch.where(found > most, (items.double() * (most / found)).to(items), items)


def traits(items: Float[Tensor, "items ..."] | UInt8[Tensor, "items ..."]) -> Float[Tensor, "items 3"]:
    """Of each item the mean of its values, their standard deviation, and the mean difference between neighbours in a
    row: brightness, contrast and roughness of an image. Rows of one value have no roughness.
    """
    if len(items) == 0:  # torch warns of the deviation of nothing
        return torch.zeros(0, 3, dtype=torch.float64, device=items.device)
    values = items.double()
    rows, steps = values.flatten(1), values.diff(dim=-1).abs().flatten(1)
    rough = steps.mean(dim=1) if steps.shape[1] > 0 else torch.zeros_like(rows[:, 0])
    return torch.stack([rows.mean(dim=1), rows.std(dim=1, correction=0), rough], dim=1)


def within(
    found: Float[Tensor, "items traits"], own: Float[Tensor, "own traits"], *, slack: float
) -> Bool[Tensor, " items"]:
    """Which items have all traits between the least and the greatest of the device's own, widened at both ends by
    `slack` times the way between them.
    """
    low, high = own.amin(dim=0), own.amax(dim=0)
    room = slack * (high - low)
    return ((found >= low - room) & (found <= high + room)).all(dim=1)


def fair(sources: Int[Tensor, " items"], *, cap: int | None, share: float | None) -> Bool[Tensor, " items"]:
    """Which items stay: the newest `cap` of each neighbour, and of none more than a `share` of all that stay.

    Where a share cannot be kept, because there are too few neighbours, all of them keep equal numbers.
    """
    owners, seen = sources.tolist(), Counter[int]()
    counts = Counter(owners).values()
    most = max(counts, default=0) if cap is None else min(max(counts, default=0), cap)
    if share is not None:
        # A share of a decimal fraction may be a bit below a whole number: 0.29 of 100 is 28.999999999999996.
        while most > min(counts, default=0) and most > round(share * sum(min(count, most) for count in counts), 6):
            most -= 1
    stays = []
    for owner in reversed(owners):
        seen[owner] += 1
        stays.append(seen[owner] <= most)
    return torch.tensor(stays[::-1], dtype=torch.bool)
