import numpy as np
import pytest

from cfcl.use import overview
from cfcl.use.embedding import Values
from cfcl.use.overview import Outlier, Pair
from cfcl.use.search import Found, nearest


def found(positions: list[list[int]], distances: list[list[float]]) -> Found:
    return Found(np.array(positions), np.array(distances))


def column(*values: float) -> Values:
    return np.array(values, dtype=np.float32)[:, None]


def test_near_duplicates_are_far_closer_than_a_fifth_neighbour_is() -> None:
    near = [[1, 2, 3, 4, 5], [0, 2, 3, 4, 5], [0, 1, 3, 4, 5], [4, 0, 1, 2, 5], [3, 0, 1, 2, 5], [0, 1, 2, 3, 4]]
    away: list[list[float]] = [
        [1.4, 5, 6, 7, 9], [1.4, 5, 6, 7, 8], [5, 5, 6, 7, 10], [1.5, 6, 7, 8, 11], [1.5, 6, 7, 8, 10],
        [1.6, 7, 8, 9, 20],
    ]  # fmt: skip
    # fifth neighbours at 8, 9, 10, 10, 11, 20: the median is 10, and 15 % of it are 1.5
    assert overview.near_duplicates(found(near, away)) == [Pair(0, 1, 1.4), Pair(3, 4, 1.5)]


def test_copies_are_found_even_where_most_images_have_one() -> None:
    values = column(0, 0, 10, 10, 20, 20, 30, 30.01)
    pairs = overview.near_duplicates(nearest(values, values, 10, itself=False))
    assert [pair[:2] for pair in pairs] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert pairs[3].distance == pytest.approx(0.01, abs=1e-5)


def test_images_that_are_all_one_are_all_pairs() -> None:
    values = column(3, 3, 3)
    assert [pair[:2] for pair in overview.near_duplicates(nearest(values, values, 10, itself=False))] == [
        (0, 1), (0, 2), (1, 2)
    ]  # fmt: skip


def test_outliers_have_their_neighbours_far_away() -> None:
    values = column(0, 1, 2, 9)
    near = nearest(values, values, 2, itself=False)
    # means of the two nearest: 1.5, 1, 1.5, 7.5; a tenth of four images is one
    assert overview.outliers(near, 20) == [Outlier(3, 7.5)]
    many = found([[0]] * 25, [[float(place == 7 or place == 3)] for place in range(25)])
    assert overview.outliers(many, 20) == [Outlier(3, 1.0), Outlier(7, 1.0), Outlier(0, 0.0)]
    assert len(overview.outliers(many, 2)) == 2


def test_one_image_has_neither() -> None:
    alone = nearest(column(1), column(1), 10, itself=False)
    assert (overview.near_duplicates(alone), overview.outliers(alone, 20)) == ([], [])


def test_a_sample_is_spread_out_around_those_that_must_be_in_it() -> None:
    values = column(0, 1, 2, 3, 10, 11, 12, 50)
    # from 11: 50 is farthest, then 0 (11 away), then 2 and 3 (2 and 3 from 0, 9 and 8 from 11): 3
    assert overview.spread(values, 4, [5]) == [0, 3, 5, 7]
    assert overview.spread(values, 2, [5, 6, 7]) == [5, 6]
    assert overview.spread(values, 8, [5]) == list(range(8))
    assert overview.spread(column(1, 1, 1, 1), 3, []) == [0, 1, 2]


def test_principal_components_by_hand() -> None:
    values = np.array(
        [[1.0, 0.0, 5.0], [-1.0, 0.0, 5.0], [0.0, -3.0, 5.0], [0.0, 2.0, 5.0], [0.0, 1.0, 5.0]], np.float32
    )
    # the second number varies most and reaches farther down, so its sign is turned; the third does not vary
    np.testing.assert_allclose(overview.principal(values, 2), [[0, 1], [0, -1], [3, 0], [-2, 0], [-1, 0]], atol=1e-12)
    assert overview.principal(column(1, 3), 2).tolist() == [[-1, 0], [1, 0]]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 20])
@pytest.mark.parametrize("dim", [1, 2, 60])
def test_any_number_of_points_has_places_in_the_unit_square(size: int, dim: int) -> None:
    values = np.random.default_rng(size).normal(size=(size, dim)).astype(np.float32)
    for given in (values, np.zeros_like(values)):
        points = overview.plane(given)
        assert points.shape == (size, 2)
        assert np.isfinite(points).all()
        assert points.min() >= 0
        assert points.max() <= 1
        assert len({tuple(point) for point in points.tolist()}) == size


def test_clusters_stay_together_and_nothing_is_left_to_chance() -> None:
    draws = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 8) * 10, 20, axis=0)
    values = (centres + draws.normal(size=(60, 8))).astype(np.float32)
    points = overview.plane(values)
    for row in range(60):
        near = nearest(points[row : row + 1].astype(np.float32), points.astype(np.float32), 10).positions[0]
        assert {int(place) // 20 for place in near} == {row // 20}
    assert np.array_equal(points, overview.plane(values.copy()))
    assert np.ptp(points, axis=0).max() == pytest.approx(1)
