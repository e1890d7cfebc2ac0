from typing import Literal

import pytest
import torch

from cfcl.core.batches import compose, compose_views, compose_within

Composition = Literal["cross", "union", "negatives_only"]

UNIFORMS = torch.tensor(
    [
        [0.00, 0.30, 0.60, 0.99],
        [0.00, 0.50, 0.99, 0.40],
        [0.10, 0.90, 0.20, 0.70],
        [0.60, 0.10, 0.80, 0.30],
    ],
    dtype=torch.float64,
)


def _compose(composition: Composition, num_pulled: int, remote_fraction: float = 0.5) -> tuple[list[int], list[int]]:
    anchor, negative = compose(
        UNIFORMS,
        num_local=10,
        num_pulled=num_pulled,
        composition=composition,
        remote_fraction=remote_fraction,
    )
    return anchor.tolist(), negative.tolist()


@pytest.mark.parametrize("composition", ["cross", "union", "negatives_only"])
def test_without_pulled_points_every_composition_is_the_same_batch(composition: Composition) -> None:
    # anchors floor(10u) = 0, 3, 6, 9; negatives a + 1 + floor(9u) mod 10: 1, 3+1+4 = 8, 6+1+8 = 15 -> 5, 9+1+3 -> 3
    assert _compose(composition, 0) == ([0, 3, 6, 9], [1, 8, 5, 3])


def test_cross_pairs_either_way_round() -> None:
    # half of 4 is 2 cross pairs: the first with a pulled negative 10 + floor(5*0.1) = 10, the second with a pulled
    # anchor 10 + floor(5*0.1) = 10; the rest as without pulled points
    assert _compose("cross", 5) == ([0, 10, 6, 9], [10, 8, 5, 3])


def test_of_an_odd_number_of_cross_pairs_the_greater_half_has_pulled_negatives() -> None:
    # three quarters of 4 are 3 cross pairs: two pulled negatives, 10 + floor(5*0.1) and 10 + floor(5*0.9), and one
    # pulled anchor, 10 + floor(5*0.8)
    assert _compose("cross", 5, 0.75) == ([0, 3, 14, 9], [10, 14, 5, 3])


def test_negatives_only_leaves_anchors_local() -> None:
    # two pulled negatives: 10 + floor(5*0.1) = 10 and 10 + floor(5*0.9) = 14
    assert _compose("negatives_only", 5) == ([0, 3, 6, 9], [10, 14, 5, 3])


def test_union_draws_from_all_points_alike() -> None:
    # anchors floor(15u) = 0, 4, 9, 14; negatives a + 1 + floor(14u) mod 15: 1, 4+1+7 = 12, 9+1+13 -> 8, 14+1+5 -> 5
    assert _compose("union", 5) == ([0, 4, 9, 14], [1, 12, 8, 5])


@pytest.mark.parametrize("composition", ["cross", "union", "negatives_only"])
def test_no_point_is_its_own_negative(composition: Composition) -> None:
    uniforms = torch.rand(4, 5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    anchor, negative = compose(
        uniforms,
        num_local=2,
        num_pulled=3,
        composition=composition,
        remote_fraction=1.0,
    )
    assert not bool((anchor == negative).any())
    assert int(anchor.max()) < 5
    assert int(negative.max()) < 5


def test_every_other_point_is_an_equally_likely_negative() -> None:
    uniforms = torch.rand(4, 40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    anchor, negative = compose(uniforms, num_local=5, num_pulled=0, composition="cross", remote_fraction=0.5)
    shares = torch.bincount(negative[anchor == 2], minlength=5) / (anchor == 2).sum()
    torch.testing.assert_close(shares, torch.tensor([0.25, 0.25, 0.0, 0.25, 0.25]), atol=0.02, rtol=0)


@pytest.mark.parametrize("size", [2, 3, 8, 31, 32])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("num_pulled", [0, 1, 70])
def test_negatives_within_a_batch_are_other_points(size: int, fraction: float, num_pulled: int) -> None:
    generator = torch.Generator().manual_seed(size)
    local = torch.randperm(40, generator=generator)[:size]
    uniforms = torch.rand(size, dtype=torch.float64, generator=generator)
    anchor, rows = compose_within(local, uniforms, num_local=40, num_pulled=num_pulled, remote_fraction=fraction)
    negative = anchor[rows]
    assert bool((anchor != negative).all())
    assert int(anchor.max()) < 40 + num_pulled
    crossing = int(((anchor >= 40) != (negative >= 40)).sum())
    wanted = round(fraction * size)
    # one cross pair alone would need a pulled anchor that nobody asked for
    assert crossing == (wanted if num_pulled and wanted > 1 else 0)
    assert not bool(((anchor >= 40) & (negative >= 40)).any())


def test_negatives_within_a_batch_by_hand() -> None:
    local = torch.tensor([5, 6, 7, 8, 9, 4, 3, 2])
    uniforms = torch.tensor([0.0, 0.0, 0.1, 0.9, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    anchor, rows = compose_within(local, uniforms, num_local=10, num_pulled=4, remote_fraction=0.5)
    # of four cross pairs two have local anchors and two pulled ones, floor(0.1 * 4) and floor(0.9 * 4)
    assert anchor.tolist() == [5, 6, 10, 13, 9, 4, 3, 2]
    assert rows.tolist() == [2, 3, 0, 1, 5, 6, 7, 4]


def test_of_an_odd_number_of_cross_pairs_within_a_batch_the_greater_half_has_local_anchors() -> None:
    local = torch.tensor([5, 6, 7, 8, 9, 4])
    uniforms = torch.tensor([0.0, 0.0, 0.6, 0.0, 0.0, 0.0], dtype=torch.float64)
    anchor, rows = compose_within(local, uniforms, num_local=10, num_pulled=4, remote_fraction=0.5)
    # of three cross pairs two have local anchors, and their negative is the one pulled anchor, 10 + floor(0.6 * 4)
    assert anchor.tolist() == [5, 6, 12, 8, 9, 4]
    assert rows.tolist() == [2, 2, 0, 4, 5, 3]


@pytest.mark.parametrize(
    ("fraction", "num_pulled", "expected"),
    [
        (0.5, 5, [7, 2, 12, 10]),
        (0.5, 0, [7, 2, 9, 4]),
        (0.0, 5, [7, 2, 9, 4]),
        (0.75, 5, [7, 12, 10, 14]),
        (1.0, 5, [12, 10, 14, 13]),
        (0.75, 2, [7, 2, 12, 10]),  # no more pulled points than there are
    ],
)
def test_of_a_batch_of_views_a_share_is_pulled(fraction: float, num_pulled: int, expected: list[int]) -> None:
    local, pulled = torch.tensor([7, 2, 9, 4]), torch.tensor([2, 0, 4, 3, 1])[:num_pulled]
    found = compose_views(local, pulled, num_local=10, remote_fraction=fraction)
    assert found.tolist() == expected
