import math
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfcl.core import importance

INF = math.inf


def _f64(*rows: object) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.equation("6")
def test_reserve_is_the_points_nearest_to_the_centroids() -> None:
    # Two groups on a line: 0, 1, 2.5 (mean 1.17, nearest is 1) and 10, 11, 14 (mean 11.67, nearest is 11)
    points = torch.tensor([[0.0], [1.0], [2.5], [10.0], [11.0], [14.0]])
    chosen = importance.reserve_by_kmeans(points, torch.tensor([0.0, 0.9]))
    assert sorted(chosen.tolist()) == [1, 4]


@pytest.mark.equation("6")
def test_reserve_of_identical_points_is_still_of_full_size() -> None:
    chosen = importance.reserve_by_kmeans(torch.ones(4, 2), torch.tensor([0.9, 0.5, 0.1]))
    assert len(set(chosen.tolist())) == 3


@pytest.mark.equation("7")
def test_candidates_are_distinct_and_follow_the_uniforms() -> None:
    chosen = importance.uniform_sample(_f64(0.4, 0.1, 0.9, 0.2), 3)
    # ascending: 0.1 (1), 0.2 (3), 0.4 (0)
    assert chosen.tolist() == [1, 3, 0]


@pytest.mark.equation("8", "9")
def test_explicit_macro_by_hand() -> None:
    candidates, reserve = torch.tensor([[3, 2, 0, 0]]), torch.tensor([[1, 0, 5, 0]])

    ratio = importance.macro_ratio(candidates, reserve)
    macro = importance.macro_explicit(ratio).exp()

    # 3/4, 2/2, 0/5, and 0 for the empty cluster; normalised by 1.75: 3/7, 4/7, 0, 0
    torch.testing.assert_close(ratio, _f64([0.75, 1.0, 0.0, 0.0]))
    torch.testing.assert_close(macro, _f64([3 / 7, 4 / 7, 0.0, 0.0]))


@pytest.mark.equation("10")
def test_expected_loss_by_hand() -> None:
    reserve = torch.tensor([[[0.0, 0.0], [2.0, 0.0]]])
    positives = torch.tensor([[[1.0, 0.0], [2.0, 2.0]]])
    candidates = torch.tensor([[[0.0, 1.0], [4.0, 0.0]]])

    found = importance.expected_loss(reserve, positives, candidates, margin=2.0)

    # candidate 0: anchor 0: 1 - 1 + 2 = 2; anchor 1: 4 - 5 + 2 = 1 -> 1.5
    # candidate 1: anchor 0: 1 - 16 + 2 < 0 -> 0; anchor 1: 4 - 4 + 2 = 2 -> 1
    torch.testing.assert_close(found, _f64([1.5, 1.0]))


@pytest.mark.equation("11")
@pytest.mark.parametrize(
    ("softmax", "expected"),
    [
        ("cluster", [0.25, 0.75, 1.0]),  # cluster {0, 1}: weights 1 and 3; cluster {2}: alone
        ("global", [1 / 13, 3 / 13, 9 / 13]),  # weights 1, 3, 9
    ],
)
def test_explicit_micro_by_hand(softmax: Literal["cluster", "global"], expected: list[float]) -> None:
    losses = _f64([0.0, math.log(3.0) / 2, math.log(9.0) / 2])
    member = torch.tensor([[[True, False], [True, False], [False, True]]])

    found = importance.micro_explicit(losses, member, temperature=2.0, softmax=softmax)

    torch.testing.assert_close(found.exp(), _f64(expected))


def test_scale_by_spread_makes_the_deviation_one_and_leaves_equal_losses() -> None:
    # 0 and 4 have mean 2 and standard deviation 2: 0 and 2
    found = importance.scale_by_spread(_f64([0.0, 4.0], [3.0, 3.0]))
    torch.testing.assert_close(found, _f64([0.0, 2.0], [3.0, 3.0]))


@pytest.mark.equation("12", "22")
def test_joint_is_macro_times_micro() -> None:
    macro, micro = _f64([0.25, 0.75]).log(), _f64([0.4, 0.6, 1.0]).log()
    found = importance.joint(macro, micro, torch.tensor([[0, 0, 1]])).exp()
    # 0.25 * 0.4, 0.25 * 0.6, 0.75 * 1
    torch.testing.assert_close(found, _f64([0.1, 0.15, 0.75]))


SCORE_MEMBER = torch.tensor([[[True, False], [True, False], [False, True]]])
SCORE_TO_OWN = _f64([1.0, 4.0, 0.0])  # squared distances to the own centroid
SCORE_TO_RESERVE = _f64([[1.0, 2.0], [3.0, 5.0], [9.0, 4.0]])  # three candidates, two reserve embeddings


@pytest.mark.equation("16")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        # radius of cluster 0 is 4, of cluster 1 is 0; sums 3, 8, 13
        ("literal_radius", [12.0, 32.0, 0.0]),
        # own distance times sum: 1*3, 4*8, 0*13
        ("literal_point", [3.0, 32.0, 0.0]),
        # M = median(1, 2, 3, 5, 9, 4) = 3.5: (2.5 + 1.5), (0.5 + 0), (0 + 0)
        ("draft", [4.0, 0.5, 0.0]),
        # v = 5/3; 4 / (1 + 0.6) = 2.5, 0.5 / (1 + 2.4), eps / 1
        ("text", [2.5, 0.5 / 3.4, 0.0]),
    ],
)
def test_embedding_score_by_hand(form: importance.Score, expected: list[float]) -> None:
    found = importance.embedding_score(SCORE_TO_RESERVE, SCORE_TO_OWN, SCORE_MEMBER, form=form)
    torch.testing.assert_close(found, _f64(expected), atol=1e-9, rtol=1e-9)
    if form == "text":
        assert bool((found > 0).all())


def test_the_median_of_an_odd_and_of_an_even_number() -> None:
    assert importance.median(_f64([5.0, 1.0, 3.0])).tolist() == [3.0]
    assert importance.median(_f64([5.0, 1.0, 4.0, 2.0])).tolist() == [3.0]
    assert importance.median(_f64([7.0])).tolist() == [7.0]


@pytest.mark.equation("15", "17")
def test_implicit_macro_by_hand() -> None:
    score = importance.cluster_score(_f64([12.0, 32.0, 11.0]), SCORE_MEMBER)
    macro = importance.macro_implicit(score).exp()
    # means 22 and 11; shares 2/3 and 1/3
    torch.testing.assert_close(score, _f64([22.0, 11.0]))
    torch.testing.assert_close(macro, _f64([2 / 3, 1 / 3]))


@pytest.mark.equation("19")
def test_overlap_by_hand() -> None:
    centroids = _f64([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [99.0, 99.0]])
    reserve = _f64([[1.0, 0.0], [0.0, 3.0], [50.0, 50.0]])
    occupied = torch.tensor([[True, True, True, False]])
    reserve_occupied = torch.tensor([[True, True, False]])

    found = importance.overlap(centroids, occupied, reserve, reserve_occupied)

    # c0: reserve (1 + 9)/2 = 5;   local (4 + 16)/2 = 10;  (5 - 10)/10 = -0.5
    # c1: reserve (1 + 13)/2 = 7;  local (4 + 20)/2 = 12;  (7 - 12)/12 = -5/12
    # c2: reserve (17 + 1)/2 = 9;  local (16 + 20)/2 = 18; (9 - 18)/18 = -0.5
    torch.testing.assert_close(found[:, :3], _f64([-0.5, -5 / 12, -0.5]))


@pytest.mark.equation("18")
def test_overlap_density_by_hand() -> None:
    found = importance.overlap_density(_f64([1.0, 0.5, 2.0]), mean=1.0, std=0.5).exp()
    # 1/(0.5 sqrt(2 pi)) = 0.797885; at one deviation times e^-0.5; at two times e^-2
    torch.testing.assert_close(found, _f64([0.797885, 0.483941, 0.107982]), atol=1e-6, rtol=0)


@pytest.mark.equation("20")
def test_macro_with_overlap_by_hand() -> None:
    macro, factor = _f64([0.5, 0.3, 0.2], [1.0, 0.0, 0.0]).log(), _f64([0.2, 0.5, 9.0], [0.01, 1.0, 1.0]).log()
    occupied = torch.tensor([[True, True, False], [True, False, False]])

    found = importance.macro_with_overlap(macro, factor, occupied).exp()

    # 0.5*0.2 = 0.1, 0.3*0.5 = 0.15, the empty cluster drops out: 0.4, 0.6, 0; one cluster alone keeps its 1
    torch.testing.assert_close(found, _f64([0.4, 0.6, 0.0], [1.0, 0.0, 0.0]))


def test_macro_with_overlap_survives_densities_that_underflow() -> None:
    macro, occupied = _f64([0.5, 0.5]).log(), torch.tensor([[True, True]])
    factor = importance.overlap_density(_f64([100.0, 101.0]), mean=1.0, std=0.5)
    found = importance.macro_with_overlap(macro, factor, occupied).exp()
    torch.testing.assert_close(found, _f64([1.0, 0.0]))


@pytest.mark.equation("21")
def test_implicit_micro_by_hand() -> None:
    found = importance.micro_implicit(_f64([12.0, 36.0, 5.0]), SCORE_MEMBER).exp()
    # cluster {0, 1}: 12/48, 36/48; cluster {2}: 1
    torch.testing.assert_close(found, _f64([0.25, 0.75, 1.0]))


def test_micro_of_zero_scores_is_uniform_inside_the_cluster() -> None:
    found = importance.micro_implicit(_f64([0.0, 0.0, 5.0]), SCORE_MEMBER).exp()
    torch.testing.assert_close(found, _f64([0.5, 0.5, 1.0]))


def test_log_normalise_of_nothing_is_uniform() -> None:
    found = importance.log_normalise(_f64([-INF, -INF, -INF, -INF], [0.0, -INF, 0.0, -INF])).exp()
    torch.testing.assert_close(found, _f64([0.25, 0.25, 0.25, 0.25], [0.5, 0.0, 0.5, 0.0]))


def test_gumbel_top_n_by_hand() -> None:
    log_p = _f64([0.1, 0.6, 0.3], [0.5, 0.5, 0.0]).log()
    uniforms = _f64([math.exp(-1.0), math.exp(-1.0), math.exp(-1.0)], [0.5, 0.6, 0.9])

    first, second = importance.gumbel_top_n(log_p, (2, 3), uniforms)

    # link 0: equal noise, so by probability: 1, 2. Link 1: more noise for 1; item 2 has P = 0 and is never sent.
    assert first.tolist() == [1, 2]
    assert second.tolist() == [1, 0]


def test_gumbel_top_n_draws_in_proportion() -> None:
    log_p = _f64([0.1, 0.6, 0.3]).log().expand(40_000, -1)
    uniforms = torch.rand(40_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = torch.cat(importance.gumbel_top_n(log_p, (1,) * 40_000, uniforms))
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.6, 0.3]), atol=0.01, rtol=0)


def test_gumbel_top_n_survives_extreme_uniforms() -> None:
    log_p = _f64([0.5, 0.5]).log()
    for value in (0.0, 1.0):
        (chosen,) = importance.gumbel_top_n(log_p, (2,), torch.full((1, 2), value, dtype=torch.float64))
        assert sorted(chosen.tolist()) == [0, 1]


@given(
    weights=st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 1.0, 1e9]), min_size=1, max_size=6),
    clusters=st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_probabilities_are_never_nan_and_sum_to_one(weights: list[float], clusters: list[int]) -> None:
    assignment = torch.tensor([clusters[: len(weights)]])
    member = importance.membership(assignment, 3)
    score = torch.tensor([weights], dtype=torch.float64)

    macro = importance.macro_implicit(importance.cluster_score(score, member))
    law = importance.joint(macro, importance.micro_implicit(score, member), assignment).exp()

    assert not bool(law.isnan().any())
    assert float(law.sum()) == pytest.approx(1.0)


@pytest.mark.equation("16")
def test_where_all_candidates_are_centroids_their_distance_takes_nothing_off() -> None:
    to_reserve, member = _f64([[1.0, 4.0], [9.0, 8.0]]), torch.eye(2, dtype=torch.bool).unsqueeze(0)
    found = importance.embedding_score(to_reserve, torch.zeros(1, 2, dtype=torch.float64), member, form="text")
    closeness = importance.embedding_score(to_reserve, torch.zeros(1, 2, dtype=torch.float64), member, form="draft")
    assert float(closeness[0, 0]) > 0
    torch.testing.assert_close(found, closeness, atol=1e-11, rtol=0)
    # the second is farther off than the median from both, and keeps a trace of a chance
    assert float(found[0, 1]) == pytest.approx(1e-12, rel=1e-6, abs=0)


def test_copies_are_no_nearer_to_their_like_than_a_millionth_of_the_largest_distance() -> None:
    # like 0 counts as 4e-6: the ratio 1.5 gives a half, and 0.75 and 3.0 give 1/3 and 2/3; the largest is as it is
    share = importance.foreign_share(_f64(6e-6, 3e-6, 12e-6, 6.0), _f64(0.0, 0.0, 0.0, 4.0), sharpness=1.0).exp()
    torch.testing.assert_close(share, _f64(1 / 2, 1 / 3, 2 / 3, 1 / 2))
