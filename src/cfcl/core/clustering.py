"""K-means++ and Lloyd's algorithm, for many independent problems at once.

Problems share no arithmetic: every sum runs over one problem in a fixed order (no library reduction over values), so a
problem has the same bits alone, beside others, and on any number of threads. Points of many features go through one
matrix product a problem: the same bits alone and beside others, given the number of threads.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

WIDE = 32
"""Points of more features than this are compared by matrix products."""


@dataclass(frozen=True)
class Clusters:
    """A partition of the points of each problem; a count of 0 marks an empty cluster, whose centroid means nothing."""

    assignment: Int[Tensor, "problems points"]
    centroids: Float[Tensor, "problems clusters dim"]
    counts: Int[Tensor, "problems clusters"]


def squared_distances(
    points: Float[Tensor, "*batch points dim"], others: Float[Tensor, "*batch others dim"]
) -> Float[Tensor, "*batch points others"]:
    """`|x - y|^2` of every point with every other one, for scoring: no gradient passes."""
    if points.shape[-1] > WIDE:
        return _by_products(points, others)
    total = points.new_zeros(*points.shape[:-2], others.shape[-2], points.shape[-2])
    difference = torch.empty_like(total)
    # feature by feature, so that no block of all differences is ever held
    for x, y in zip(points.unsqueeze(-3).unbind(-1), others.unsqueeze(-2).unbind(-1), strict=True):
        torch.sub(x, y, out=difference)
        total += difference.square_()
    return total.mT


def _by_products(
    points: Float[Tensor, "*batch points dim"], others: Float[Tensor, "*batch others dim"]
) -> Float[Tensor, "*batch points others"]:
    """`|x|^2 + |y|^2 - 2 x y`, problem by problem; what rounding alone may leave counts as zero."""
    wide = [tensor.detach().reshape(-1, *tensor.shape[-2:]) for tensor in (points, others)]
    rounding = 100 * torch.finfo(points.dtype).eps
    found = []
    for x, y in zip(*wide, strict=True):
        norms = torch.linalg.vecdot(x, x).unsqueeze(1) + torch.linalg.vecdot(y, y)
        distances = torch.addmm(norms, x, y.T, alpha=-2)
        found.append(torch.where(distances > rounding * norms, distances, 0.0))
    shape = (*points.shape[:-1], others.shape[-2])
    return (torch.stack(found) if found else wide[0].new_zeros(shape)).view(shape)


def seed_plus_plus(
    points: Float[Tensor, "problems points dim"], uniforms: Float[Tensor, "problems clusters"]
) -> Int[Tensor, "problems clusters"]:
    """Indices of K-means++ seeds: the first uniform, the others by squared distance to the nearest seed so far.

    Seed `h` inverts a cumulative distribution at `uniforms[:, h]`. Once every point coincides with a seed, the
    remaining seeds are uniform again, hence repeated points.
    """
    points = _laid_out(points)
    indices = _uniform_index(uniforms[:, 0], points.shape[1])
    seeds = [indices]
    nearest = _distances_to(points, indices)
    for uniform in uniforms[:, 1:].unbind(1):
        indices = _sample_index(nearest, uniform)
        seeds.append(indices)
        nearest = torch.minimum(nearest, _distances_to(points, indices))
    return torch.stack(seeds, dim=1)


def lloyd(
    points: Float[Tensor, "problems points dim"],
    initial_centroids: Float[Tensor, "problems clusters dim"],
    *,
    max_iterations: int = 100,
) -> Clusters:
    """Lloyd's iterations until no assignment changes, or `max_iterations` of them.

    A cluster that loses all its members takes the point farthest from its own centroid, the next such cluster the
    next farthest, and so on; it stays empty if that point lies on its centroid. Ties go to the lowest index.
    """
    assert max_iterations > 0, "without an iteration there is no assignment"
    remaining = _laid_out(points)
    centroids = _laid_out(initial_centroids).clone()
    assignment = torch.full(points.shape[:2], -1, dtype=torch.int64, device=points.device)
    active = torch.arange(len(points), device=points.device)
    for _ in range(max_iterations):
        moved = _assign(remaining, centroids[active])
        changed = (moved != assignment[active]).any(dim=1)
        if not changed.all():  # a problem that has converged is left alone, and costs nothing more
            active, remaining, moved = active[changed], remaining[changed], moved[changed]
        if len(active) == 0:
            break
        assignment[active] = moved
        centroids[active] = _means(remaining, moved, centroids[active])
    return Clusters(assignment, centroids.to(points.dtype), _counts(assignment, centroids.shape[1]))


def kmeans(
    points: Float[Tensor, "problems points dim"],
    num_clusters: int,
    uniforms: Float[Tensor, "problems clusters"],
    *,
    max_iterations: int = 100,
) -> Clusters:
    """K-means of each problem, seeded by K-means++ with one uniform number per cluster."""
    assert uniforms.shape[1] == num_clusters, "one uniform number per cluster"
    seeds = seed_plus_plus(points, uniforms)
    return lloyd(points, _take(points, seeds), max_iterations=max_iterations)


def inertia(points: Float[Tensor, "problems points dim"], clusters: Clusters) -> Float[Tensor, " problems"]:
    """Sum of the squared distances of the points to their own centroids, in double precision."""
    # cumsum adds in order; sum() may split a long row among threads
    return _own_distances(points, clusters).cumsum(dim=1)[:, -1]


def nearest_points(
    points: Float[Tensor, "problems points dim"], clusters: Clusters
) -> Int[Tensor, "problems clusters"]:
    """For each cluster, the index of the member nearest to its centroid: distinct points; -1 for an empty cluster."""
    own = _own_distances(points, clusters).unsqueeze(1)
    numbers = torch.arange(clusters.counts.shape[1], device=points.device).unsqueeze(-1)
    is_member = clusters.assignment.unsqueeze(1) == numbers
    nearest = torch.where(is_member, own, torch.inf).min(dim=2).indices
    return torch.where(clusters.counts > 0, nearest, -1)


def _laid_out(points: Float[Tensor, "problems points dim"]) -> Float[Tensor, "problems points dim"]:
    """The same points as `squared_distances` likes them: in double precision and one feature after the other in memory,
    or, if wide, as they are.

    Squares of any single-precision numbers neither overflow nor vanish in double precision.
    """
    if points.shape[-1] > WIDE:
        return points.detach().contiguous()
    return points.detach().double().mT.contiguous().mT


def _take(
    points: Float[Tensor, "problems points dim"], indices: Int[Tensor, "problems taken"]
) -> Float[Tensor, "problems taken dim"]:
    """`points[p, indices[p]]` for each problem `p`."""
    return points.mT.gather(2, indices.unsqueeze(1).expand(-1, points.shape[2], -1)).mT


def _distances_to(
    points: Float[Tensor, "problems points dim"], index: Int[Tensor, " problems"]
) -> Float[Tensor, "problems points"]:
    """Squared distances of each problem's points to one of them."""
    return squared_distances(points, _take(points, index.unsqueeze(1))).squeeze(2)


def _uniform_index(uniform: Float[Tensor, " problems"], num_points: int) -> Int[Tensor, " problems"]:
    """`floor(u n)`, below `n` even where `u` is so close to 1 that the product rounds up."""
    return (uniform.double() * num_points).long().clamp_max(num_points - 1)


def _sample_index(
    weights: Float[Tensor, "problems points"], uniform: Float[Tensor, " problems"]
) -> Int[Tensor, " problems"]:
    """An index drawn with probability proportional to its weight; uniform where all weights are zero."""
    cumulative = weights.cumsum(dim=1)
    total = cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, uniform.double().unsqueeze(1) * total, right=True)
    # where the product rounds up to the total: the point that reaches it, as zero weights may follow
    last = torch.searchsorted(cumulative, total.contiguous())
    sampled = torch.minimum(drawn, last).squeeze(1)
    return torch.where(total.squeeze(1) > 0, sampled, _uniform_index(uniform, weights.shape[1]))


def _counts(assignment: Int[Tensor, "problems points"], num_clusters: int) -> Int[Tensor, "problems clusters"]:
    """Members of each cluster."""
    zeros = assignment.new_zeros(len(assignment), num_clusters)
    return zeros.scatter_add(1, assignment, torch.ones_like(assignment))


def _assign(
    points: Float[Tensor, "problems points dim"], centroids: Float[Tensor, "problems clusters dim"]
) -> Int[Tensor, "problems points"]:
    """The nearest centroid of each point, after empty clusters have taken the points that are farthest off."""
    distances, assignment = squared_distances(points, centroids).min(dim=2)
    is_empty = _counts(assignment, centroids.shape[1]) == 0
    if is_empty.any():
        donors, clusters = _relocate(points, distances, is_empty)
        assignment[donors] = clusters
    return assignment


def _relocate(
    points: Float[Tensor, "problems points dim"],
    distances: Float[Tensor, "problems points"],
    is_empty: Bool[Tensor, "problems clusters"],
) -> tuple[tuple[Int[Tensor, " moves"], Int[Tensor, " moves"]], Int[Tensor, " moves"]]:
    """Which points (problem, point) move to which empty clusters, given the distances to their own centroids.

    The mean of identical points may differ from them in the last bits. Such a distance counts as zero, lest empty
    clusters chase these points for ever.
    """
    num_points = points.shape[1]
    norms = squared_distances(points, torch.zeros_like(points[:, :1])).squeeze(2)
    rounding = norms * (num_points * torch.finfo(points.dtype).eps) ** 2
    farthest, order = torch.where(distances > rounding, distances, 0.0).sort(descending=True, stable=True)
    rank = is_empty.cumsum(dim=1) - 1
    place = rank.clamp(0, num_points - 1)
    takes = is_empty & (rank < num_points) & (farthest.gather(1, place) > 0)
    problems, clusters = takes.nonzero(as_tuple=True)
    return (problems, order[problems, place[problems, clusters]]), clusters


def _means(
    points: Float[Tensor, "problems points dim"],
    assignment: Int[Tensor, "problems points"],
    centroids: Float[Tensor, "problems clusters dim"],
) -> Float[Tensor, "problems clusters dim"]:
    """The mean of each cluster's members; the old centroid where there are none."""
    counts = _counts(assignment, centroids.shape[1]).unsqueeze(2)
    if points.shape[-1] > WIDE:
        member = points.new_zeros(*counts.shape[:2], points.shape[1])
        member.scatter_(1, assignment.unsqueeze(1), 1.0)
        sums = torch.stack([table @ problem for table, problem in zip(member, points, strict=True)])
    else:
        index = assignment.unsqueeze(1).expand_as(points.mT)
        sums = torch.zeros_like(centroids.mT).scatter_add(2, index, points.mT).mT
    return torch.where(counts > 0, sums / counts.clamp_min(1), centroids)


def _own_distances(
    points: Float[Tensor, "problems points dim"], clusters: Clusters
) -> Float[Tensor, "problems points"]:
    """Squared distance of each point to the centroid of its cluster."""
    own = _take(clusters.centroids, clusters.assignment)
    if points.shape[-1] > WIDE:
        return (points.detach().double() - own.double()).square().sum(dim=-1)
    # every point is a batch of its own here: one point against one centroid
    return squared_distances(points.detach().double().unsqueeze(2), own.double().unsqueeze(2)).flatten(1)
