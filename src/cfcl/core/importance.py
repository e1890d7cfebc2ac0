"""Which candidates a receiver needs: macro and micro probabilities of both modes, and the draw.

Everything is batched over links, in float64 and in logarithms: a probability may be zero (minus infinity), never NaN.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from cfcl.core.clustering import kmeans, nearest_points, squared_distances

Score = Literal["literal_radius", "literal_point", "text", "draft"]


def reserve_by_kmeans(
    points: Float[Tensor, "points dim"], uniforms: Float[Tensor, " reserve"]
) -> Int[Tensor, " reserve"]:
    """Positions of the K points nearest to the K-means++ centroids, Eq. (6)."""
    size = len(uniforms)
    nearest = nearest_points(points.unsqueeze(0), kmeans(points.unsqueeze(0), size, uniforms.unsqueeze(0)))[0]
    chosen = nearest[nearest >= 0]
    # Fewer distinct points than K leave clusters empty: the first unused points complete the set.
    unused = torch.ones(len(points), dtype=torch.bool, device=points.device)
    unused[chosen] = False
    return torch.cat([chosen, unused.nonzero().squeeze(1)[: size - len(chosen)]])


def uniform_sample(uniforms: Float[Tensor, " points"], size: int) -> Int[Tensor, " sample"]:
    """Positions of `size` distinct points, uniformly, Eq. (7)."""
    return uniforms.argsort(stable=True)[:size]


def membership(assignment: Int[Tensor, "*links points"], num_clusters: int) -> Bool[Tensor, "*links points clusters"]:
    """Which point is in which cluster."""
    return functional.one_hot(assignment, num_clusters).to(torch.bool)


def log_normalise(log_weights: Float[Tensor, "*links items"]) -> Float[Tensor, "*links items"]:
    """Log-probabilities from log-weights over the last axis; all weights zero gives the uniform law."""
    total = log_weights.logsumexp(dim=-1, keepdim=True)
    empty = torch.isneginf(total)
    uniform = -math.log(log_weights.shape[-1])
    return torch.where(empty, uniform, log_weights - total.masked_fill(empty, 0.0))


def cluster_log_normalise(
    log_weights: Float[Tensor, "*links points"], member: Bool[Tensor, "*links points clusters"]
) -> Float[Tensor, "*links points"]:
    """Log-probabilities that sum to one inside every cluster; all weights zero there gives the uniform law."""
    spread = log_weights.unsqueeze(-1).masked_fill(~member, -math.inf)
    total = spread.logsumexp(dim=-2)
    empty = torch.isneginf(total)
    sizes = member.sum(dim=-2, keepdim=True).to(log_weights.dtype)
    inside = torch.where(empty.unsqueeze(-2), -sizes.log(), spread - total.masked_fill(empty, 0.0).unsqueeze(-2))
    return inside.masked_fill(~member, -math.inf).amax(dim=-1)


# Explicit mode


def macro_ratio(
    candidates: Int[Tensor, "*links clusters"], reserve: Int[Tensor, "*links clusters"]
) -> Float[Tensor, "*links clusters"]:
    """X of every cluster, Eq. (9): candidates over candidates plus reserve points; 0 for an empty cluster."""
    return candidates.double() / (candidates + reserve).clamp_min(1).double()


def macro_explicit(ratio: Float[Tensor, "*links clusters"]) -> Float[Tensor, "*links clusters"]:
    """Log macro probability, Eq. (8): X normalised over clusters."""
    return log_normalise(ratio.log())


def expected_loss(
    reserve: Float[Tensor, "*links reserve dim"],
    positives: Float[Tensor, "*links reserve dim"],
    candidates: Float[Tensor, "*links candidates dim"],
    *,
    margin: float,
) -> Float[Tensor, "*links candidates"]:
    """Mean triplet loss of each candidate as negative of every reserve anchor, Eq. (10)."""
    to_positive = (reserve - positives).double().square().sum(dim=-1)
    to_negative = squared_distances(candidates.double(), reserve.double())
    return (to_positive.unsqueeze(-2) - to_negative + margin).clamp_min(0.0).mean(dim=-1)


def scale_by_spread(losses: Float[Tensor, "*links candidates"]) -> Float[Tensor, "*links candidates"]:
    """Losses in units of their standard deviation; equal losses come back unchanged."""
    spread = losses.std(dim=-1, correction=0, keepdim=True)
    return torch.where(spread > 0, losses / spread.clamp_min(torch.finfo(losses.dtype).tiny), losses)


def micro_explicit(
    losses: Float[Tensor, "*links candidates"],
    member: Bool[Tensor, "*links candidates clusters"],
    *,
    temperature: float,
    softmax: Literal["cluster", "global"],
) -> Float[Tensor, "*links candidates"]:
    """Log micro probability, Eq. (11): softmax of temperature times loss, inside the cluster or over all."""
    logits = temperature * losses
    return cluster_log_normalise(logits, member) if softmax == "cluster" else log_normalise(logits)


def joint(
    macro: Float[Tensor, "*links clusters"],
    micro: Float[Tensor, "*links candidates"],
    assignment: Int[Tensor, "*links candidates"],
) -> Float[Tensor, "*links candidates"]:
    """Log probability of every candidate, Eq. (12) and (22): macro of its cluster times micro, normalised."""
    return log_normalise(macro.gather(-1, assignment) + micro)


# Implicit mode


def cluster_radii(
    to_own: Float[Tensor, "*links candidates"], member: Bool[Tensor, "*links candidates clusters"]
) -> Float[Tensor, "*links clusters"]:
    """Largest squared distance of a member to its centroid; 0 for an empty cluster."""
    return to_own.unsqueeze(-1).where(member, 0.0).amax(dim=-2)


def embedding_score(
    to_reserve: Float[Tensor, "links candidates reserve"],
    to_own: Float[Tensor, "links candidates"],
    member: Bool[Tensor, "links candidates clusters"],
    *,
    form: Score,
) -> Float[Tensor, "links candidates"]:
    """Score s(z) of every candidate embedding, Eq. (16), from squared distances to the reserve and own centroid."""
    # Paper: as printed the score grows with distance, against its own text; all four forms are offered.
    if form == "literal_radius":
        radius = cluster_radii(to_own, member).unsqueeze(-2).where(member, 0.0).amax(dim=-1)
        return radius * to_reserve.sum(dim=-1)
    if form == "literal_point":
        return to_own * to_reserve.sum(dim=-1)
    threshold = median(to_reserve.flatten(-2))[:, None, None]
    closeness = (threshold - to_reserve).clamp_min(0.0).sum(dim=-1)
    if form == "draft":
        return closeness
    scale = to_own.mean(dim=-1, keepdim=True)
    relative = torch.where(scale > 0, to_own / scale.clamp_min(torch.finfo(scale.dtype).tiny), 0.0)
    return (closeness + 1e-12) / (1.0 + relative)


def median(values: Float[Tensor, "*links values"]) -> Float[Tensor, "*links"]:
    """The middle value over the last axis; the mean of both where there are two."""
    ordered, size = values.sort(dim=-1).values, values.shape[-1]
    return (ordered[..., (size - 1) // 2] + ordered[..., size // 2]) / 2


def cluster_score(
    score: Float[Tensor, "*links candidates"], member: Bool[Tensor, "*links candidates clusters"]
) -> Float[Tensor, "*links clusters"]:
    """S(h) of every cluster, Eq. (15): the mean score of its members; 0 for an empty cluster."""
    return score.unsqueeze(-1).where(member, 0.0).sum(dim=-2) / member.sum(dim=-2).clamp_min(1)


def macro_implicit(score: Float[Tensor, "*links clusters"]) -> Float[Tensor, "*links clusters"]:
    """Log macro probability, Eq. (17): S normalised over clusters."""
    return log_normalise(score.log())


def overlap(
    centroids: Float[Tensor, "*links clusters dim"],
    occupied: Bool[Tensor, "*links clusters"],
    reserve_centroids: Float[Tensor, "*links reserve dim"],
    reserve_occupied: Bool[Tensor, "*links reserve"],
) -> Float[Tensor, "*links clusters"]:
    """b(h) of every cluster, Eq. (19): mean distance to the reserve against that to the other local centroids."""
    to_reserve = squared_distances(centroids, reserve_centroids).where(reserve_occupied.unsqueeze(-2), 0.0).sum(dim=-1)
    to_reserve = to_reserve / reserve_occupied.sum(dim=-1, keepdim=True)
    others = occupied.sum(dim=-1, keepdim=True) - 1
    to_local = squared_distances(centroids, centroids).where(occupied.unsqueeze(-2), 0.0).sum(dim=-1)
    to_local = to_local / others.clamp_min(1)
    tiny = torch.finfo(to_local.dtype).tiny
    return torch.where(to_local > 0, (to_reserve - to_local) / to_local.clamp_min(tiny), 0.0)


def overlap_density(
    value: Float[Tensor, "*links clusters"], *, mean: float, std: float
) -> Float[Tensor, "*links clusters"]:
    """Log of the overlap factor B(h), Eq. (18): the normal density of b(h)."""
    return -0.5 * ((value - mean) / std).square() - math.log(std * math.sqrt(2.0 * math.pi))


def macro_with_overlap(
    macro: Float[Tensor, "*links clusters"],
    log_factor: Float[Tensor, "*links clusters"],
    occupied: Bool[Tensor, "*links clusters"],
) -> Float[Tensor, "*links clusters"]:
    """Log macro probability scaled by B(h) and normalised again, Eq. (20); a single cluster has B = 1."""
    scaled = log_normalise((macro + log_factor).masked_fill(~occupied, -math.inf))
    return torch.where(occupied.sum(dim=-1, keepdim=True) > 1, scaled, macro)


def micro_implicit(
    score: Float[Tensor, "*links candidates"], member: Bool[Tensor, "*links candidates clusters"]
) -> Float[Tensor, "*links candidates"]:
    """Log micro probability, Eq. (21): the score normalised inside the cluster."""
    return cluster_log_normalise(score.log(), member)


# The draw


def neighbour_distance(distances: Float[Tensor, "*links points points"], number: int) -> Float[Tensor, "*links points"]:
    """From each point to its `number`-th neighbour, or to the farthest there is, given all distances."""
    return distances.kthvalue(min(number + 1, distances.shape[-1])).values  # the nearest is the point itself


def foreign_share(
    foreign: Float[Tensor, "*links points"], common: Float[Tensor, "*links points"], *, sharpness: float
) -> Float[Tensor, "*links points"]:
    """Log of how surely a point is of a kind that is not known, from squared distances to the known and to its like.

    A logistic function of the logarithm of their ratio: a half at 1.5 and nearly one beyond, so that neither outliers
    nor dense kinds are preferred. Minus infinity for a point that is known itself; copies do not make their like nearer
    than a millionth of the largest distance.
    """
    least = (1e-6 * common.amax(dim=-1, keepdim=True)).clamp_min(torch.finfo(common.dtype).tiny)
    ratio = foreign.log() - torch.maximum(common, least).log()
    return functional.logsigmoid(sharpness * (ratio - math.log(1.5)))


def gumbel_top_n(
    log_probabilities: Float[Tensor, "links candidates"],
    num_items: tuple[int, ...],
    uniforms: Float[Tensor, "links candidates"],
) -> tuple[Int[Tensor, " _"], ...]:
    """For every link, n distinct candidates drawn without replacement; only as many as have P > 0."""
    tiny = torch.finfo(uniforms.dtype).tiny
    noise = -(-uniforms.clamp_min(tiny).log()).clamp_min(tiny).log()
    order = (log_probabilities + noise).argsort(dim=-1, descending=True, stable=True)
    support = (~torch.isneginf(log_probabilities)).sum(dim=-1).tolist()
    return tuple(row[: min(n, int(s))] for row, n, s in zip(order, num_items, support, strict=True))
