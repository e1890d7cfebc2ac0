import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch import Tensor

from cfcl.core.clustering import (
    WIDE,
    Clusters,
    inertia,
    kmeans,
    lloyd,
    nearest_points,
    seed_plus_plus,
    squared_distances,
)
from cfcl.rng import stream

ALMOST_ONE = math.nextafter(1.0, 0.0)


def _line(*rows: list[float]) -> Tensor:
    """Problems of points on a line."""
    return torch.tensor(rows).unsqueeze(-1)


def _blobs(num_problems: int, num_points: int, dim: int, *names: str) -> Tensor:
    """Problems of points around a few centres, of different spread."""
    generator = stream(0, "clustering", *names)
    centres = torch.randn(num_problems, 7, dim, generator=generator) * 3
    which = torch.randint(7, (num_problems, num_points, 1), generator=generator).expand(-1, -1, dim)
    spread = torch.rand(num_problems, 1, 1, generator=generator) * 2
    return centres.gather(1, which) + spread * torch.randn(num_problems, num_points, dim, generator=generator)


def _uniforms(num_problems: int, num_clusters: int, *names: str) -> Tensor:
    return torch.rand(num_problems, num_clusters, generator=stream(0, "uniforms", *names))


def _lloyd_loop(points: list[list[float]], centroids: list[list[float]]) -> list[int]:
    """Lloyd's algorithm of one problem in plain Python; no cluster may run empty."""
    previous: list[int] = []
    while True:
        nearest = [min(range(len(centroids)), key=lambda h: math.dist(x, centroids[h])) for x in points]
        if nearest == previous:
            return nearest
        previous = nearest
        members = [[x for x, h in zip(points, nearest, strict=True) if h == k] for k in range(len(centroids))]
        centroids = [[sum(column) / len(group) for column in zip(*group, strict=True)] for group in members]


def _seed_loop(points: list[list[float]], uniforms: list[float]) -> list[int]:
    """K-means++ seeding of one problem in plain Python; the points are distinct."""
    seeds = [int(uniforms[0] * len(points))]
    for uniform in uniforms[1:]:
        weights = [min(math.dist(x, points[s]) ** 2 for s in seeds) for x in points]
        target, index = uniform * sum(weights), 0
        while sum(weights[: index + 1]) <= target:
            index += 1
        seeds.append(index)
    return seeds


def _same(first: Clusters, second: Clusters) -> bool:
    return (
        torch.equal(first.assignment, second.assignment)
        and torch.equal(first.centroids, second.centroids)
        and torch.equal(first.counts, second.counts)
    )


def test_squared_distances_by_hand() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, -2.0], [3.0, 1.0]])
    others = torch.tensor([[3.0, 4.0], [1.0, -2.0]])

    # to (3, 4): 9+16, 4+36, 0+9;  to (1, -2): 1+4, 0, 4+9
    expected = torch.tensor([[25.0, 5.0], [40.0, 0.0], [9.0, 13.0]])
    torch.testing.assert_close(squared_distances(points, others), expected, rtol=0, atol=0)


def test_squared_distances_match_a_loop_over_any_batch() -> None:
    generator = stream(0, "distances")
    points = torch.randn(2, 3, 5, 4, generator=generator)
    others = torch.randn(2, 3, 6, 4, generator=generator)

    distances = squared_distances(points, others)

    assert distances.shape == (2, 3, 5, 6)
    for a, b, i, j in np.ndindex(2, 3, 5, 6):
        expected = math.dist(points[a, b, i].tolist(), others[a, b, j].tolist()) ** 2
        assert distances[a, b, i, j].item() == pytest.approx(expected, rel=1e-5)


def test_seeding_inverts_the_cumulative_squared_distances() -> None:
    points = _line([0.0, 1.0, 3.0, 6.0], [0.0, 1.0, 3.0, 6.0], [6.0, 0.0, 1.0, 3.0])
    uniforms = torch.tensor([[0.0, 0.1, 0.9], [0.9, 0.5, 0.2], [0.3, 0.99, 0.5]])

    # row 0: floor(0 * 4) = 0; squares 0, 1, 9, 36 cumulate to 0, 1, 10, 46; 0.1 * 46 = 4.6: point 2;
    #        then squares 0, 1, 0, 9 cumulate to 0, 1, 1, 10; 0.9 * 10 = 9: point 3
    # row 1: floor(0.9 * 4) = 3; squares 36, 25, 9, 0 cumulate to 36, 61, 70, 70; 0.5 * 70 = 35: point 0;
    #        then squares 0, 1, 9, 0 cumulate to 0, 1, 10, 10; 0.2 * 10 = 2: point 2
    # row 2: floor(0.3 * 4) = 1; squares 36, 0, 1, 9 cumulate to 36, 36, 37, 46; 0.99 * 46 = 45.54: point 3;
    #        then squares 9, 0, 1, 0 cumulate to 9, 9, 10, 10; 0.5 * 10 = 5: point 0
    expected = torch.tensor([[0, 2, 3], [3, 0, 2], [1, 3, 0]])
    assert torch.equal(seed_plus_plus(points, uniforms), expected)


def test_seeding_at_an_exact_boundary_takes_the_next_point() -> None:
    points = _line([0.0, 1.0, 1.0, 2.0])

    # squares 0, 1, 1, 4 cumulate to 0, 1, 2, 6; 0 * 6 = 0 skips the zero weight of point 0, 0.5 * 6 = 3: point 3
    assert seed_plus_plus(points, torch.tensor([[0.0, 0.0]])).tolist() == [[0, 1]]
    assert seed_plus_plus(points, torch.tensor([[0.0, 0.5]])).tolist() == [[0, 3]]


@pytest.mark.parametrize("uniform", [ALMOST_ONE, 1.0])
def test_seeding_near_one_stays_among_points_of_positive_distance(uniform: float) -> None:
    # points 0, 2, 3 coincide with the first seed; only point 1 has a positive weight, and zeros follow it
    points = _line([5.0, 4.9, 5.0, 5.0])

    assert seed_plus_plus(points, torch.tensor([[0.0, uniform]], dtype=torch.float64)).tolist() == [[0, 1]]
    assert seed_plus_plus(points, torch.tensor([[uniform, 0.3]], dtype=torch.float64)).tolist() == [[3, 1]]


def test_seeding_is_uniform_once_no_distinct_point_is_left() -> None:
    points = _line([7.0, 7.0, 7.0, 7.0], [1.0, 1.0, 1.0, 2.0])
    uniforms = torch.tensor([[0.5, 0.3, 0.8], [0.1, 0.1, 0.7]])

    # row 0: floor of 2.0, 1.2, 3.2;  row 1: floor(0.4) = 0, then the only other value, point 3, then floor(2.8) = 2
    assert seed_plus_plus(points, uniforms).tolist() == [[2, 1, 3], [0, 3, 2]]


def test_seeding_matches_a_loop() -> None:
    points, uniforms = _blobs(6, 30, 3, "seeds"), _uniforms(6, 8, "seeds")

    expected = [_seed_loop(x, u) for x, u in zip(points.tolist(), uniforms.tolist(), strict=True)]

    assert seed_plus_plus(points, uniforms).tolist() == expected


def test_lloyd_by_hand() -> None:
    points = _line([0.0, 1.0, 4.0, 6.0, 14.0], [-3.0, 9.0, -1.0, 10.0, 11.0])
    centroids = _line([0.0, 2.0], [-1.0, 10.0])

    clusters = lloyd(points, centroids)

    # row 0: {0, 1} {4, 6, 14}: the 1 is equally far from 0 and 2 and goes to the first; means 0.5 and 8;
    #        the 4 moves (3.5 < 4): means 5/3 and 10; the 6 stays (4.33 > 4)
    # row 1: {-3, -1} {9, 10, 11} at once
    assert clusters.assignment.tolist() == [[0, 0, 0, 1, 1], [0, 1, 0, 1, 1]]
    torch.testing.assert_close(clusters.centroids, _line([5 / 3, 10.0], [-2.0, 10.0]))
    assert clusters.counts.tolist() == [[3, 2], [2, 3]]
    # row 0: 25/9 + 4/9 + 49/9 + 16 + 16 = 366/9;  row 1: 1 + 1 + 1 + 0 + 1
    torch.testing.assert_close(inertia(points, clusters).float(), torch.tensor([366 / 9, 4.0]))


def test_lloyd_stops_at_max_iterations_with_the_means_of_its_assignment() -> None:
    # as row 0 above, before the 4 moves
    clusters = lloyd(_line([0.0, 1.0, 4.0, 6.0, 14.0]), _line([0.0, 2.0]), max_iterations=1)

    assert clusters.assignment.tolist() == [[0, 0, 1, 1, 1]]
    torch.testing.assert_close(clusters.centroids, _line([0.5, 8.0]))


def test_lloyd_matches_a_loop() -> None:
    points = _blobs(6, 40, 3, "loop").double()
    centroids = torch.stack(
        [x[i] for x, i in zip(points, seed_plus_plus(points, _uniforms(6, 5, "loop")), strict=True)]
    )

    clusters = lloyd(points, centroids)

    assert clusters.assignment.tolist() == [
        _lloyd_loop(x, c) for x, c in zip(points.tolist(), centroids.tolist(), strict=True)
    ]


def test_empty_clusters_take_the_farthest_points_each_its_own() -> None:
    points = _line([0.0, 1.0, 5.0, 9.0], [0.0, 1.0, 2.0, 9.0])
    centroids = _line([3.0, 90.0, 80.0], [1.0, 9.0, 90.0])

    clusters = lloyd(points, centroids, max_iterations=1)

    # row 0: all points nearest to 3, squares 9, 4, 4, 36: cluster 1 takes the 9, cluster 2 the 0; mean of 1, 5 left
    # row 1: squares 1, 0, 1, 0: cluster 2 takes the first of the two farthest, the 0; mean of 1, 2 left
    assert clusters.assignment.tolist() == [[2, 0, 0, 1], [2, 0, 0, 1]]
    torch.testing.assert_close(clusters.centroids, _line([3.0, 9.0, 0.0], [1.5, 9.0, 0.0]))


def test_empty_cluster_beside_full_ones_leaves_their_problem_alone() -> None:
    points = _line([0.0, 1.0, 8.0, 9.0], [0.0, 1.0, 8.0, 9.0])

    clusters = lloyd(points, _line([0.0, 8.0], [4.0, 90.0]), max_iterations=1)

    # row 0 has no empty cluster;  row 1: squares 16, 9, 16, 25, the 9 moves
    assert clusters.assignment.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]


def test_cluster_stays_empty_where_every_point_lies_on_its_centroid() -> None:
    points = _line([2.0, 2.0, 5.0, 5.0])

    clusters = lloyd(points, _line([2.0, 5.0, 5.0, 77.0]))

    assert clusters.assignment.tolist() == [[0, 0, 1, 1]]
    assert clusters.counts.tolist() == [[2, 2, 0, 0]]
    assert torch.equal(clusters.centroids, _line([2.0, 5.0, 5.0, 77.0]))  # empty ones keep theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty_clusters_do_not_chase_the_rounding_of_a_mean(dtype: torch.dtype) -> None:
    # in double precision the sum of ten times 0.1 is not 1, so the mean misses its own members
    assert sum([0.1] * 10) != 1.0
    points = torch.full((1, 10, 1), 0.1, dtype=dtype)

    clusters = lloyd(points, points[:, :3], max_iterations=7)

    assert _same(clusters, lloyd(points, points[:, :3], max_iterations=8))
    assert clusters.counts.tolist() == [[10, 0, 0]]


def test_more_empty_clusters_than_points_share_none() -> None:
    clusters = lloyd(_line([0.0, 1.0]), _line([5.0, 90.0, 91.0, 92.0]), max_iterations=1)

    # squares 25, 16 to the 5: cluster 1 takes the 0, cluster 2 the 1, nothing is left for cluster 3
    assert clusters.assignment.tolist() == [[1, 2]]


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_kmeans_does_not_depend_on_the_scale(scale: float) -> None:
    points, uniforms = _blobs(4, 30, 3, "scale"), _uniforms(4, 6, "scale")

    clusters = kmeans(points, 6, uniforms)

    # in single precision the squares would vanish or overflow; a power of two changes no digit
    assert _same(
        kmeans(points * scale, 6, uniforms),
        Clusters(clusters.assignment, clusters.centroids * scale, clusters.counts),
    )


def test_more_clusters_than_points_leave_the_surplus_empty() -> None:
    clusters = kmeans(_line([1.0, 2.0]), 4, torch.tensor([[0.0, 0.5, 0.5, 0.0]]))

    assert clusters.assignment.tolist() == [[0, 1]]
    assert clusters.counts.tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize(("dim", "num_clusters"), [(1, 3), (2, 10), (16, 20), (40, 6)])
def test_kmeans_reaches_the_inertia_of_scikit_learn_from_the_same_seeds(dim: int, num_clusters: int) -> None:
    points, uniforms = _blobs(8, 90, dim, "sklearn").double(), _uniforms(8, num_clusters, "sklearn")
    seeds = seed_plus_plus(points, uniforms)

    clusters = kmeans(points, num_clusters, uniforms)

    for problem in range(8):
        init = points[problem, seeds[problem]].numpy()
        reference = KMeans(num_clusters, init=init, n_init=1, algorithm="lloyd", tol=0.0).fit(points[problem].numpy())
        assert inertia(points, clusters)[problem].item() == pytest.approx(reference.inertia_, rel=1e-9)
        assert clusters.assignment[problem].tolist() == reference.labels_.tolist()


def test_lloyd_reaches_the_inertia_of_scikit_learn_past_an_empty_cluster() -> None:
    points = _blobs(8, 60, 3, "empty").double()
    centroids = points[:, :5].clone()
    centroids[:, 3] = 1000.0

    clusters = lloyd(points, centroids)

    for problem in range(8):
        init = centroids[problem].numpy()
        reference = KMeans(5, init=init, n_init=1, algorithm="lloyd", tol=0.0).fit(points[problem].numpy())
        assert inertia(points, clusters)[problem].item() == pytest.approx(reference.inertia_, rel=1e-9)


@pytest.mark.parametrize("dim", [1, 3, 16])
def test_problems_solved_together_have_the_bits_of_each_alone(dim: int) -> None:
    points, uniforms = _blobs(9, 50, dim, "bits"), _uniforms(9, 7, "bits")
    points[3] = points[3, :1]  # identical points: converges at once, with empty clusters
    points[5] = points[5].round()

    together = kmeans(points, 7, uniforms)

    for problem in range(9):
        only = slice(problem, problem + 1)
        alone = kmeans(points[only], 7, uniforms[only])
        assert _same(alone, Clusters(together.assignment[only], together.centroids[only], together.counts[only]))
        assert torch.equal(inertia(points[only], alone), inertia(points, together)[only])
        assert torch.equal(nearest_points(points[only], alone), nearest_points(points, together)[only])


def test_nearest_points_by_hand() -> None:
    points = _line([0.0, 2.0, 3.0, 10.0, 14.0], [4.0, 0.0, 1.0, 1.0, 8.0])
    assignment = torch.tensor([[0, 0, 0, 2, 2], [1, 0, 0, 0, 1]])
    clusters = Clusters(assignment, _line([5 / 3, 2.0, 12.0], [2 / 3, 6.0, 1.0]), torch.tensor([[3, 0, 2], [3, 2, 0]]))

    # row 0: the 2 is nearest to 5/3; cluster 1 is empty, though points lie on its centroid; 10 and 14 tie: the first
    # row 1: both ones are nearest to 2/3: the first, index 2; 4 and 8 tie for 6: the first, index 0
    assert nearest_points(points, clusters).tolist() == [[1, -1, 3], [2, 0, -1]]


@st.composite
def _degenerate(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Few distinct points, often fewer than clusters, at any scale and offset."""
    num_points, num_clusters, dim = draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)))
    num_distinct = draw(st.integers(1, num_points))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    scale = 10.0 ** draw(st.integers(-40, 37))
    offset = draw(st.sampled_from([0.0, 0.1, -3.0])) * scale
    distinct = torch.randn(2, num_distinct, dim, generator=generator, dtype=dtype) * scale + offset
    which = torch.randint(num_distinct, (2, num_points, 1), generator=generator).expand(-1, -1, dim)
    uniforms = torch.rand(2, num_clusters, generator=generator, dtype=dtype)
    uniforms[0, 0] = draw(st.sampled_from([0.0, ALMOST_ONE]))
    return distinct.gather(1, which), uniforms


@settings(deadline=None)
@given(_degenerate())
def test_degenerate_problems_give_valid_clusters(problem: tuple[Tensor, Tensor]) -> None:
    points, uniforms = problem
    num_clusters = uniforms.shape[1]
    num_distinct = torch.tensor([len(set(map(tuple, rows))) for rows in points.tolist()])

    clusters = kmeans(points, num_clusters, uniforms)
    representatives = nearest_points(points, clusters)

    assert clusters.centroids.isfinite().all()
    assert inertia(points, clusters).isfinite().all()
    assert ((clusters.assignment >= 0) & (clusters.assignment < num_clusters)).all()
    counts = torch.nn.functional.one_hot(clusters.assignment, num_clusters).sum(dim=1)
    assert torch.equal(clusters.counts, counts)
    assert torch.equal((counts > 0).sum(dim=1), num_distinct.clamp_max(num_clusters))
    assert torch.equal(representatives == -1, counts == 0)
    for row, assignment in zip(representatives.tolist(), clusters.assignment.tolist(), strict=True):
        assert all(assignment[point] == cluster for cluster, point in enumerate(row) if point >= 0)
    assert _same(clusters, kmeans(points, num_clusters, uniforms, max_iterations=20))  # none runs in circles


@settings(deadline=None)
@given(_degenerate())
def test_seeds_are_distinct_values_as_long_as_there_are_any(problem: tuple[Tensor, Tensor]) -> None:
    points, uniforms = problem

    seeds = seed_plus_plus(points, uniforms)

    for rows, indices in zip(points.tolist(), seeds.tolist(), strict=True):
        num_distinct = len(set(map(tuple, rows)))
        chosen = [tuple(rows[index]) for index in indices]
        assert len(set(chosen)) == min(num_distinct, len(indices))


@pytest.mark.parametrize("dim", [WIDE, WIDE + 1, 300])
def test_wide_points_are_compared_as_narrow_ones_are(dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    points, others = torch.rand(2, 3, 40, dim, generator=generator), torch.rand(2, 3, 7, dim, generator=generator)
    expected = (points.double().unsqueeze(-2) - others.double().unsqueeze(-3)).square().sum(-1)
    torch.testing.assert_close(squared_distances(points, others).double(), expected, rtol=1e-4, atol=0)
    flat = squared_distances(points[0, 0], others[0, 0])
    torch.testing.assert_close(flat.double(), expected[0, 0], rtol=1e-4, atol=0)
    itself = squared_distances(points, points).diagonal(dim1=-2, dim2=-1)
    assert bool((itself == 0).all())


def test_a_wide_problem_has_the_same_bits_alone_and_beside_others() -> None:
    generator = torch.Generator().manual_seed(1)
    points, uniforms = torch.rand(5, 60, 200, generator=generator), torch.rand(5, 6, generator=generator)
    together = kmeans(points, 6, uniforms)
    for row in range(5):
        alone = kmeans(points[row : row + 1], 6, uniforms[row : row + 1])
        assert torch.equal(alone.assignment[0], together.assignment[row])
        assert torch.equal(alone.centroids[0], together.centroids[row])


def test_wide_clusters_are_means_of_their_members() -> None:
    points = torch.rand(1, 50, 100, generator=torch.Generator().manual_seed(2))
    found = kmeans(points, 4, torch.tensor([[0.1, 0.3, 0.6, 0.9]]))
    for number in range(4):
        members = points[0][found.assignment[0] == number]
        assert len(members) == int(found.counts[0, number]) > 0
        torch.testing.assert_close(found.centroids[0, number], members.mean(dim=0))
    nearest = squared_distances(points, found.centroids)[0].argmin(dim=1)
    assert torch.equal(nearest, found.assignment[0])


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_points_of_the_most_features_that_go_one_by_one_may_have_any_size(scale: float) -> None:
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0]).view(1, 4, 1)
    points = scale * signs * torch.linspace(0.9, 1.0, WIDE)
    found = kmeans(points, 2, torch.tensor([[0.1, 0.9]]))
    # in single precision their squares overflow, or vanish
    assert found.assignment[0, 0] == found.assignment[0, 2] != found.assignment[0, 1] == found.assignment[0, 3]
    torch.testing.assert_close(found.centroids[0, found.assignment[0]] / scale, points[0] / scale)


def test_points_far_from_the_origin_are_told_apart() -> None:
    # both are nearest to the first centroid; a tenth of a thousandth apart at a million is no rounding error
    points = torch.tensor([[[1e6], [1e6 + 1e-4]]], dtype=torch.float64)
    found = lloyd(points, torch.tensor([[[1e6], [0.0]]], dtype=torch.float64))
    assert found.counts.tolist() == [[1, 1]]
    assert found.assignment.tolist() == [[0, 1]]
