"""Which points stand for others, how far each of them reaches, and what lies outside."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from cfcl.core.clustering import squared_distances


def cover(
    points: Float[Tensor, "points dim"], number: int, held: Int[Tensor, " held"] | None = None
) -> Int[Tensor, " chosen"]:
    """Up to `number` positions, one after another, each the one that most lowers the summed distance of all points to
    the nearest that is chosen or `held`; none twice. Ties go to the first.

    With nothing held, the first is the point nearest to all. Takes memory for all pairs.
    """
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    taken = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    nearest = distances.new_full((len(points),), float(distances.max()) if len(points) else 0.0)
    if held is not None and len(held):
        taken[held] = True
        nearest = distances[held].amin(dim=0)
    chosen: list[int] = []
    for _ in range(min(number, int((~taken).sum()))):
        gains = (nearest - distances).clamp_min(0.0).sum(dim=1)
        gains[taken] = -1.0
        position = int(gains.argmax())
        chosen.append(position)
        taken[position] = True
        nearest = torch.minimum(nearest, distances[position])
    return torch.tensor(chosen, dtype=torch.int64, device=points.device)


def radii(own: Float[Tensor, "points dim"], reserve: Float[Tensor, "reserve dim"]) -> Float[Tensor, " reserve"]:
    """How far what each reserve point stands for reaches, squared.

    That is the 0.9 quantile of the squared distances of the points for which it is the nearest; where there are
    fewer than two of them, the median of all points' distances. The geometric mean of that and of the average over the
    reserve: what few points say alone counts half.
    """
    nearest = squared_distances(own, reserve).min(dim=1)
    typical = nearest.values.quantile(0.5)
    members = [nearest.values[nearest.indices == place] for place in range(len(reserve))]
    reaches = torch.stack([part.quantile(0.9) if len(part) > 1 else typical for part in members])
    return (reaches * reaches.mean()).sqrt()


def outside(
    distances: Float[Tensor, "*links candidates reserve"], radii: Float[Tensor, "*links reserve"]
) -> Float[Tensor, "*links candidates"]:
    """How far each candidate lies outside all balls: the logarithm of its squared distance over the squared radius, of
    the ball for which that is least; below 0 inside. Between -5 and 5, so that a copy does not outvote its like.
    """
    tiny = torch.finfo(distances.dtype).tiny
    ratio = distances.clamp_min(tiny).log() - radii.clamp_min(tiny).log().unsqueeze(-2)
    return ratio.amin(dim=-1).clamp(-5.0, 5.0)


def blurred(
    values: Float[Tensor, "*links points"], distances: Float[Tensor, "*links points points"], number: int
) -> Float[Tensor, "*links points"]:
    """The mean of each point's value and of those nearest to it, `number` in all, or as many as there are."""
    near = distances.argsort(dim=-1, stable=True)[..., :number]
    return values.unsqueeze(-2).expand(distances.shape).gather(-1, near).mean(dim=-1)


def newness(
    outside: Float[Tensor, "*links points"],
    distances: Float[Tensor, "*links points points"],
    *,
    neighbours: int,
    edge: float,
    sharpness: float,
) -> Float[Tensor, "*links points"]:
    """Logarithm of the probability that each point is of a kind outside all balls: a half where it and its nearest, up
    to `neighbours` in all, are on average at `edge` squared radii.
    """
    return functional.logsigmoid(sharpness * (blurred(outside, distances, neighbours) - math.log(edge)))
