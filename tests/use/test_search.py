import math

import numpy as np
import pytest

from cfcl.errors import CfclError
from cfcl.use import search
from cfcl.use.embedding import Values

LINE = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [6.0, 8.0], [0.0, -1.0]], dtype=np.float32)


def test_the_nearest_come_first_with_their_distances() -> None:
    queries = np.array([[0.0, 0.0], [3.0, 0.0]], dtype=np.float32)

    found = search.nearest(queries, LINE, 3)

    # from (0, 0): 0, 5, 1, 10, 1, and of the two at distance 1 the one that stands before
    # from (3, 0): 3, 4, sqrt 10, sqrt 73, sqrt 10
    assert found.positions.tolist() == [[0, 2, 4], [0, 2, 4]]
    assert found.distances.tolist() == [[0, 1, 1], [3, math.sqrt(10), math.sqrt(10)]]


def test_an_image_is_not_its_own_neighbour_unless_it_may_be() -> None:
    found = search.nearest(LINE, LINE, 2, itself=False)
    # row 1: to (0, 1) sqrt 18, to (0, 0) and (6, 8) 5, of which the first; row 3: 5 to row 1, sqrt 85 to row 2
    assert found.positions.tolist() == [[2, 4], [2, 0], [0, 4], [1, 2], [0, 2]]
    assert found.distances[4].tolist() == [1, 2]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("itself", [True, False])
def test_blocks_and_the_product_change_nothing(block: int, itself: bool) -> None:
    generator = np.random.default_rng(0)
    # few values, so that many distances are equal; far from zero, where a product of float32 is rough
    gallery = (generator.integers(0, 3, (150, 3)) * 0.125 + 1000.3).astype(np.float32)

    found = search.nearest(gallery, gallery, 6, itself=itself, block=block)

    for row, vector in enumerate(gallery):
        exact = [sum((float(a) - float(b)) ** 2 for a, b in zip(vector, other, strict=True)) for other in gallery]
        order = sorted((away, place) for place, away in enumerate(exact) if itself or place != row)[:6]
        assert found.positions[row].tolist() == [place for _, place in order]
        assert found.distances[row].tolist() == pytest.approx([math.sqrt(away) for away, _ in order], rel=1e-12)


def test_equal_images_are_at_distance_zero_whatever_the_rounding() -> None:
    gallery = np.random.default_rng(1).normal(size=(300, 64)).astype(np.float32) * 100
    gallery[200] = gallery[7]
    found = search.nearest(gallery[7:8], gallery, 2)
    assert found.positions.tolist() == [[7, 200]]
    assert found.distances.tolist() == [[0.0, 0.0]]


def test_a_small_gallery_gives_what_it_has() -> None:
    assert search.nearest(LINE[:2], LINE[:1], 10).positions.tolist() == [[0], [0]]
    assert search.nearest(LINE[:1], LINE[:1], 10, itself=False).positions.shape == (1, 0)


def test_features_are_scaled_to_length_one_and_embeddings_are_not() -> None:
    values: Values = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 0.5]], dtype=np.float32)
    expected = np.array([[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    np.testing.assert_array_equal(search.comparable(values, "features"), expected)
    assert search.comparable(values, "embedding") is values


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 2e9])
def test_numbers_beyond_measure_are_refused(wrong: float) -> None:
    with pytest.raises(CfclError, match=r"some features values are not within ±1,000,000,000: train the encoder again"):
        search.comparable(np.array([[1.0, wrong]], dtype=np.float32), "features")
