"""What the paper says of its equations, tried with our functions: a counterexample or a check for each of its claims.

Numbers are those of `docs/errata.md`. A test whose claim is "always" lets hypothesis look for exceptions.
"""

import ast
import itertools
import json
import math
import re
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import cfcl
from cfcl import config as configs
from cfcl import schedule
from cfcl.config import CostConfig
from cfcl.core import importance, losses
from cfcl.core.clustering import squared_distances
from cfcl.data import catalogue
from cfcl.exchange import cost
from cfcl.exchange.messages import SERVER, DataItems, EmbeddingItems, LocalModel, Message
from cfcl.models import networks
from tests.conftest import small

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "errata.md").read_text()
VERDICTS = {"holds", "holds with a change", "does not hold", "ambiguous", "not decided here"}

Points = list[list[float]]
COORDINATES = st.floats(-10, 10).map(lambda value: round(value, 3))
PLANE = st.tuples(COORDINATES, COORDINATES).map(list)


def _f64(*rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def _uniform(*sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters of so many candidates with equal losses: assignment, membership, log micro probability."""
    assignment = torch.tensor([[cluster for cluster, size in enumerate(sizes) for _ in range(size)]])
    member = importance.membership(assignment, len(sizes))
    micro = importance.micro_explicit(
        torch.zeros(assignment.shape, dtype=torch.float64), member, temperature=4.0, softmax="cluster"
    )
    return assignment, member, micro


# Losses


def _triplet(to_positive: float, to_negative: float, margin: float) -> float:
    """The loss of a triplet on a line, given both distances."""
    sides = torch.tensor([[[0.0]], [[to_positive]], [[-to_negative]]], dtype=torch.float64)
    return float(losses.triplet_loss(sides[0], sides[1], sides[2], margin=margin))


def test_1_the_margin_is_one_of_squared_distances() -> None:
    # no loss: 10 - 9 = 1, but the distances differ by sqrt(10) - 3 = 0.162 only
    assert _triplet(3.0, math.sqrt(10.0), margin=1.0) == pytest.approx(0.0, abs=1e-12)
    # the distances differ by 0.6 > 0.5, but 0.5 - 0.36 = 0.14 of loss is left
    assert _triplet(0.0, 0.6, margin=0.5) == pytest.approx(0.14)


@given(to_positive=st.floats(0, 10), excess=st.floats(1e-6, 10), margin=st.floats(1, 5))
@settings(deadline=None)
def test_1_with_a_margin_of_one_or_more_lengths_do(to_positive: float, excess: float, margin: float) -> None:
    # (n - p)(n + p) > m (n + p) >= m m >= m
    assert _triplet(to_positive, to_positive + margin + excess, margin) == 0.0


def _open(anchor: float, received: float, margin: float) -> bool:
    """Whether a received embedding counts for an anchor that lies on its positive."""
    place = torch.tensor([[anchor]], dtype=torch.float64)
    other = torch.tensor([[received]], dtype=torch.float64)
    return float(losses.regulariser(place, place, other, margin=margin, reduction="sum")) > 0


def _margin(*radii: float, factor: float, radius: Literal["length", "squared"]) -> float:
    squares = torch.tensor(radii, dtype=torch.float64).square()
    return losses.regulariser_margin(squares, torch.ones(len(radii), dtype=torch.bool), factor=factor, radius=radius)


@pytest.mark.parametrize(
    ("radii", "factor", "radius", "expected"),
    [
        ((1.0,), 1.0, "length", False),  # 4 > 1
        ((0.2,), 1.0, "length", True),  # 0.16 < 0.2
        ((1.0,), 4.1, "length", True),  # 4 < 4.1
        ((2.0,), 4.1, "length", False),  # 16 > 8.2: no factor does for all sizes
        ((2.0,), 1.0, "squared", False),  # 16 > 4
        ((2.0,), 4.1, "squared", True),  # 16 < 16.4
        ((3.0, 1.0), 4.1, "squared", False),  # 36 > 4.1 * 5 = 20.5: the mean is not the largest
        ((3.0, 1.0), 8.1, "squared", True),  # 36 < 8.1 * 5 = 40.5
    ],
)
def test_2_who_is_a_hard_negative_across_the_first_cluster(
    radii: tuple[float, ...], factor: float, radius: Literal["length", "squared"], expected: bool
) -> None:
    # two members at both ends of a cluster around 0: their squared distance is four squared radii
    assert _open(-radii[0], radii[0], _margin(*radii, factor=factor, radius=radius)) is expected


@given(
    radii=st.lists(st.floats(0.01, 50), min_size=1, max_size=8),
    places=st.tuples(st.floats(-0.999, 0.999), st.floats(-0.999, 0.999)),
    data=st.data(),
)
@settings(deadline=None)
def test_2_four_squared_radii_times_the_number_of_clusters_are_enough(
    radii: list[float], places: tuple[float, float], data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(radii))
    margin = _margin(*radii, factor=4.0 * len(radii), radius="squared")
    assert _open(places[0] * own, places[1] * own, margin)


@given(
    radius=st.floats(0.01, 50), number=st.integers(1, 6), places=st.tuples(st.floats(-0.999, 0.999), st.floats(-1, 1))
)
@settings(deadline=None)
def test_2_four_squared_radii_are_enough_where_all_are_equal(
    radius: float, number: int, places: tuple[float, float]
) -> None:
    margin = _margin(*[radius] * number, factor=4.0, radius="squared")
    assert _open(places[0] * radius, places[1] * radius, margin)


@pytest.mark.parametrize(("radius", "same"), [("squared", True), ("length", False)])
def test_2_only_squares_keep_hard_negatives_under_another_scale(
    radius: Literal["length", "squared"], same: bool
) -> None:
    # a cluster of radius 1 and a received embedding at 0.9, or all of it ten times as large; k = 1
    before = _open(0.0, 0.9, _margin(1.0, factor=1.0, radius=radius))
    after = _open(0.0, 9.0, _margin(10.0, factor=1.0, radius=radius))
    assert before
    assert after is same  # 81 < 100, but 81 > 10


def _weight(step: int, *, num_steps: int = 2000, period: int = 25, staleness: float = 1.0) -> float:
    return losses.regulariser_weight(
        step, num_steps=num_steps, aggregation_period=period, weight=1.0, staleness=staleness
    )


def test_3_the_first_term_peaks_at_aggregations() -> None:
    first = [_weight(t, period=5, staleness=1e4) for t in range(11)]  # so stale that the second term is 0
    # e^0, e^-1/4, e^-1/2, e^-3/4, e^-1, and again
    tooth = [1.0, 0.778801, 0.606531, 0.472367, 0.367879]
    assert first == pytest.approx([*tooth, *tooth, 1.0], abs=1e-6)


def test_3_with_the_minus_inside_the_remainder_it_would_be_lowest_there() -> None:
    # (-t) mod 5 for t = 0..4 is 0, 4, 3, 2, 1; our form has the minus outside
    inside = [math.exp((-t % 5) / 4) for t in range(5)]
    outside = [_weight(t, period=5, staleness=1e4) for t in range(5)]
    assert inside.index(min(inside)) == 0
    assert outside.index(max(outside)) == 0


def test_3_an_aggregation_at_every_step_leaves_the_first_term_at_its_peak() -> None:
    # -0 / 0 as printed
    assert [_weight(t, period=1, staleness=1e4) for t in range(4)] == [1.0] * 4


@given(period=st.integers(2, 100), staleness=st.floats(0, 2), more=st.integers(0, 2000), data=st.data())
@settings(deadline=None)
def test_4_the_weight_falls_within_a_round_if_the_run_is_long(
    period: int, staleness: float, more: int, data: st.DataObject
) -> None:
    num_steps = math.ceil(math.exp(2 - staleness) * (period - 1)) + 1 + more
    step = data.draw(st.integers(0, num_steps - 2))
    assume((step + 1) % period != 0)
    here, next_one = (_weight(t, num_steps=num_steps, period=period, staleness=staleness) for t in (step, step + 1))
    assert next_one < here


def test_4_in_a_short_run_it_may_rise_within_a_round() -> None:
    # T = T_a = 4: e^-2/3 + e^(1/2 - 1) = 0.513417 + 0.606531; e^-1 + e^(3/4 - 1) = 0.367879 + 0.778801
    assert _weight(2, num_steps=4, period=4) == pytest.approx(1.119948, abs=1e-6)
    assert _weight(3, num_steps=4, period=4) == pytest.approx(1.146680, abs=1e-6)


def test_4_the_weight_keeps_more_than_half_of_its_peak() -> None:
    # T = 2000, T_a = 25: e^-1 + e^(24/2000 - 1) over 1 + e^-1; in the last round e^-1 + e^-0.0005 over 1 + e^-0.0125
    assert _weight(24) / _weight(0) == pytest.approx(0.740200 / 1.367879, abs=1e-5)
    assert _weight(1999) / _weight(1975) == pytest.approx(1.367379 / 1.987578, abs=1e-5)


def test_5_with_the_periods_of_usps_fresh_embeddings_weigh_less_than_old_ones() -> None:
    # T_a = 10, T_p = 25: at 25 new embeddings have come; at 40 they are 15 updates old, and the tooth is at its peak
    fresh, old = (_weight(t, num_steps=1500, period=10) for t in (25, 40))
    # e^-5/9 + e^(25/1500 - 1) = 0.573753 + 0.374062; 1 + e^(40/1500 - 1) = 1 + 0.377822
    assert (fresh, old) == pytest.approx((0.947815, 1.377822), abs=1e-5)
    # with zeta = age / T_p: 0.573753 + e^(1/60) and 1 + e^(2/75 - 0.6)
    fresh, old = (_weight(t, num_steps=1500, period=10, staleness=(t - 25) / 25) for t in (25, 40))
    assert (fresh, old) == pytest.approx((1.590559, 1.563642), abs=1e-5)


def test_5_with_equal_periods_the_tooth_is_the_age() -> None:
    clock = schedule.build(configs.load("fashion-mnist-paper"), once=False)
    pulls = clock.exchange_steps
    ages = {t: t - max(pull for pull in pulls if pull <= t) for t in range(25, 2000)}
    first = {t: _weight(t, staleness=1e4) for t in ages}
    assert all(first[t] == pytest.approx(math.exp(-age / 24)) for t, age in ages.items())


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 4.0), ("mean", 1.0)])
def test_6_the_sum_weighs_four_times_as_much_with_four_times_the_neighbours(
    reduction: Literal["mean", "sum"], expected: float
) -> None:
    anchor = torch.tensor([[0.0, 0.0]])
    two = torch.tensor([[1.0, 0.0], [0.0, 1.5]])  # what two neighbours send, and eight of the same kind
    sparse, dense = (
        float(losses.regulariser(anchor, anchor, received, margin=3.0, reduction=reduction))
        for received in (two, two.repeat(4, 1))
    )
    assert sparse > 0
    assert dense / sparse == pytest.approx(expected)


# Explicit selection


@given(uniforms=st.lists(st.floats(0, 0.999999), min_size=3, max_size=3))
@settings(deadline=None)
def test_7_a_reserve_by_kmeans_has_every_kind_and_no_shares(uniforms: list[float]) -> None:
    points = torch.tensor([[0.0]] * 98 + [[10.0], [20.0]], dtype=torch.float64)
    chosen = points[importance.reserve_by_kmeans(points, _f64(*uniforms))]
    # each kind once: nothing is far from the reserve, but its mean is 10, and that of the data 0.3
    assert sorted(chosen.flatten().tolist()) == [0.0, 10.0, 20.0]
    assert float(squared_distances(points, chosen).amin(dim=1).sum()) == 0.0
    assert (float(chosen.mean()), float(points.mean())) == pytest.approx((10.0, 0.3))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_8_every_point_is_a_candidate_equally_often(size: int) -> None:
    orders = list(itertools.permutations([0.1, 0.3, 0.6, 0.8]))
    drawn = torch.cat([importance.uniform_sample(_f64(*order), size) for order in orders])
    # 24 orders, `size` of 4 points each: 6 * size
    assert torch.bincount(drawn, minlength=4).tolist() == [6 * size] * 4


def test_9_candidates_of_all_that_is_held_are_passed_on() -> None:
    # three points of its own and a pulled one, two candidates: the last point is passed on in half of all draws
    orders = list(itertools.permutations([0.1, 0.3, 0.6, 0.8]))
    passed_on = sum(3 in importance.uniform_sample(_f64(*order), 2).tolist() for order in orders)
    assert passed_on == 12
    # the presets that take the printed word leave that out, as the text speaks of one hop
    assert configs.load("usps-paper").exchange.candidates == "per_aggregation"


@given(counts=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50)), min_size=1, max_size=25))
@settings(deadline=None)
def test_10_the_ratio_is_in_0_to_1_and_the_macro_law_sums_to_one(counts: list[tuple[int, int]]) -> None:
    assume(any(candidates for candidates, _ in counts))
    candidates, reserve = torch.tensor([counts]).unbind(dim=-1)
    ratio = importance.macro_ratio(candidates, reserve)
    assert bool(((ratio >= 0) & (ratio <= 1)).all())
    assert float(importance.macro_explicit(ratio).exp().sum()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("preset", "expected"), [("usps-paper", 1.1), ("fashion-mnist-paper", 1.2), ("svhn-paper", 1.125)]
)
def test_11_a_foreign_kind_has_hardly_more_weight_than_a_known_one(preset: str, expected: float) -> None:
    exchange = configs.load(preset).exchange
    # clusters of equal size, one as common at the receiver as here, one that it lacks: 1 + K^Reserve / K^Approx
    size, shown = exchange.num_candidates // exchange.num_clusters, exchange.num_reserve // exchange.num_clusters
    macro = importance.macro_explicit(importance.macro_ratio(torch.tensor([[size, size]]), torch.tensor([[shown, 0]])))
    known, foreign = macro.exp()[0].tolist()
    assert foreign / known == pytest.approx(expected)


def test_11_a_known_item_may_be_likelier_than_a_foreign_one() -> None:
    # a small kind that the receiver has shown (2 candidates, 1 reserve point), a large one that it lacks (20 and 0)
    ratio = importance.macro_ratio(torch.tensor([[2, 20]]), torch.tensor([[1, 0]]))
    assignment, _, micro = _uniform(2, 20)
    law = importance.joint(importance.macro_explicit(ratio), micro, assignment).exp()[0]
    # X: 2/3 and 1; macro 0.4 and 0.6; per item 0.2 and 0.03
    assert (float(law[0]), float(law[-1])) == pytest.approx((0.2, 0.03))


@given(counts=st.tuples(st.integers(1, 100), st.integers(0, 50), st.integers(0, 50)))
@settings(deadline=None)
def test_11_the_more_reserve_points_the_less_weight(counts: tuple[int, int, int]) -> None:
    size, fewer, more = counts[0], min(counts[1:]), max(counts[1:])
    ratio = importance.macro_ratio(torch.tensor([[size, size]]), torch.tensor([[fewer, more]]))[0]
    assert bool(ratio[0] >= ratio[1])


def test_12_an_outlier_weighs_as_much_as_a_crowd() -> None:
    # nine candidates of one kind and one outlier, nothing of either at the receiver: X = 1 for both
    assignment, _, micro = _uniform(9, 1)
    macro = importance.macro_explicit(importance.macro_ratio(torch.tensor([[9, 1]]), torch.tensor([[0, 0]])))
    law = importance.joint(macro, micro, assignment).exp()[0]
    # half of the chances for one item of ten
    torch.testing.assert_close(law, _f64(*[1 / 18] * 9, 1 / 2))


@given(
    scores=st.lists(st.floats(0.1, 100), min_size=3, max_size=8),
    clusters=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    factors=st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
)
@settings(deadline=None)
def test_12_two_stages_are_one_weight_over_the_size_of_the_cluster(
    scores: list[float], clusters: list[int], factors: list[float]
) -> None:
    assignment = torch.tensor([clusters[: len(scores)]])
    member, score = importance.membership(assignment, 3), _f64(scores)
    occupied = member.any(dim=-2)
    macro = importance.macro_implicit(importance.cluster_score(score, member))
    macro = importance.macro_with_overlap(macro, _f64(factors).log(), occupied)
    law = importance.joint(macro, importance.micro_implicit(score, member), assignment).exp()
    sizes = [clusters[: len(scores)].count(cluster) for cluster in clusters[: len(scores)]]
    # one cluster alone has B = 1, which makes no difference here either
    weights = [s * factors[h] / size for s, h, size in zip(scores, clusters[: len(scores)], sizes, strict=True)]
    torch.testing.assert_close(law, _f64([weight / sum(weights) for weight in weights]))


def test_13_a_softmax_over_all_of_a_cluster_leaves_chances_to_the_reserve() -> None:
    # one cluster with a candidate and a reserve point, both at 0 like the augmentation: losses 1 and 1
    both = importance.expected_loss(_f64([[0.0]]), _f64([[0.0]]), _f64([[0.0], [0.0]]), margin=1.0)
    torch.testing.assert_close(both, _f64([1.0, 1.0]))
    member = torch.ones(1, 2, 1, dtype=torch.bool)
    micro = importance.micro_explicit(both, member, temperature=4.0, softmax="cluster").exp()
    # over candidate and reserve point the candidate has a half, and macro is 1: Eq. (12) sums to a half
    assert float(micro[0, 0]) == pytest.approx(0.5)
    # over candidates alone it has all
    alone = importance.micro_explicit(both[:, :1], member[:, :1], temperature=4.0, softmax="cluster").exp()
    assert float(alone) == pytest.approx(1.0)


def _micro(found: Tensor, temperature: float) -> Tensor:
    """Eq. (11) in one cluster."""
    member = torch.ones(*found.shape, 1, dtype=torch.bool)
    return importance.micro_explicit(found, member, temperature=temperature, softmax="cluster").exp()


def _effective(law: Tensor) -> float:
    """The number of equally likely candidates that would be as uncertain."""
    return math.exp(float(-(law * law.clamp_min(1e-300).log()).sum()))


@given(
    found=st.lists(st.floats(0, 2), min_size=1, max_size=30),
    temperature=st.floats(0, 10),
)
@settings(deadline=None)
def test_14_losses_within_a_narrow_range_give_nearly_uniform_chances(found: list[float], temperature: float) -> None:
    spread = temperature * (max(found) - min(found))
    number = _effective(_micro(_f64(found), temperature))
    assert number >= len(found) * math.exp(-(spread**2) / 8) * (1 - 1e-9)


def test_14_two_losses_by_hand() -> None:
    law = _micro(_f64([1.0, 0.9]), 4.0)
    # odds e^0.4 = 1.491825: 0.598688 and 0.401312; the bound is 2 e^(-0.16 / 8) = 1.960397
    torch.testing.assert_close(law, _f64([0.598688, 0.401312]), atol=1e-6, rtol=0)
    assert _effective(law) == pytest.approx(1.961168, abs=1e-5)
    # where no loss is left, no temperature helps
    torch.testing.assert_close(_micro(_f64([0.0, 0.0]), 1e6), _f64([0.5, 0.5]))


@given(
    found=st.lists(st.floats(0, 2).map(lambda value: round(value, 3)), min_size=2, max_size=10),
    temperatures=st.tuples(st.floats(0, 20), st.floats(0, 20)),
)
@settings(deadline=None)
def test_14_the_higher_the_temperature_the_greedier(found: list[float], temperatures: tuple[float, float]) -> None:
    lower, higher = (_micro(_f64(found), temperature).amax() for temperature in sorted(temperatures))
    assert float(higher) >= float(lower) - 1e-12


def test_14_the_drafted_ramp_makes_up_for_losses_that_shrink_to_two_fifths() -> None:
    start, end = (schedule.temperature(t, num_steps=2000, start=4.0, end=10.0) for t in (0, 2000))
    found = _f64([1.0, 0.5, 0.0])
    torch.testing.assert_close(_micro(found / 2.5, end), _micro(found, start))
    assert _effective(_micro(found / 5, end)) > _effective(_micro(found, start)) + 0.5
    # in units of their spread, it does not matter how small they are
    scaled = [importance.scale_by_spread(found / size) for size in (1.0, 1000.0)]
    torch.testing.assert_close(_micro(scaled[0], end), _micro(scaled[1], end))


def test_15_the_likeliest_item_of_a_cluster_is_a_copy_of_what_the_receiver_has() -> None:
    reserve = _f64([[0.0]])
    found = importance.expected_loss(reserve, reserve, _f64([[0.0], [0.5], [2.0]]), margin=1.0)
    # 0 - 0 + 1, 0 - 0.25 + 1, 0 - 4 + 1 < 0
    torch.testing.assert_close(found, _f64([1.0, 0.75, 0.0]))
    assert int(_micro(found, 4.0).argmax()) == 0


@given(place=PLANE, candidate=PLANE, stretch=st.floats(1, 3))
@settings(deadline=None)
def test_15_who_moves_away_from_a_reserve_point_never_gains(
    place: list[float], candidate: list[float], stretch: float
) -> None:
    away = [own + (value - own) * stretch for value, own in zip(candidate, place, strict=True)]
    near, far = importance.expected_loss(_f64([place]), _f64([place]), _f64([candidate, away]), margin=1.0)[0]
    assert float(far) <= float(near) + 1e-9


# Implicit selection


def _scores(candidates: Points, reserve: Points, clusters: list[int], form: importance.Score) -> Tensor:
    """Eq. (16) of candidates in given clusters."""
    points = _f64(candidates)
    member = importance.membership(torch.tensor([clusters]), max(clusters) + 1)
    weights = member.mT.double()
    centroids = weights @ points / weights.sum(dim=-1, keepdim=True).clamp_min(1)
    to_own = (points - centroids[:, clusters]).square().sum(dim=-1)
    return importance.embedding_score(squared_distances(points, _f64(reserve)), to_own, member, form=form)


def _shares(scores: Tensor) -> list[float]:
    """Eq. (21) in one cluster."""
    member = torch.ones(*scores.shape, 1, dtype=torch.bool)
    return importance.micro_implicit(scores, member).exp()[0].tolist()


# Three members at distance 1 from the only reserve embedding; the first is nearest to their centroid (2/3, 0):
# squared distances 1/9, 1/36 + 3/4 = 7/9 and 7/9
RIM = [[1.0, 0.0], [0.5, math.sqrt(0.75)], [0.5, -math.sqrt(0.75)]]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("literal_radius", [1 / 3, 1 / 3, 1 / 3]),  # the radius is the same for all
        ("literal_point", [1 / 15, 7 / 15, 7 / 15]),  # the farther from the centroid the likelier
        ("text", [1 / 2, 1 / 4, 1 / 4]),  # mean 5/9: 1 / (1 + 1/5) and 1 / (1 + 7/5)
    ],
)
def test_16_which_member_is_likelier_near_the_centroid(form: importance.Score, expected: list[float]) -> None:
    assert _shares(_scores(RIM, [[0.0, 0.0]], [0, 0, 0], form)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        # members 1 and 3 around 2, a reserve embedding at 0: 1 * 1 and 1 * 9
        ("literal_radius", [0.1, 0.9]),
        ("literal_point", [0.1, 0.9]),
        # M = (1 + 9) / 2 = 5: 4 and 0
        ("text", [1.0, 0.0]),
        ("draft", [1.0, 0.0]),
    ],
)
def test_16_which_member_is_likelier_near_the_reserve(form: importance.Score, expected: list[float]) -> None:
    assert _shares(_scores([[1.0], [3.0]], [[0.0]], [0, 0], form)) == pytest.approx(expected, abs=1e-6)


FORMS: dict[importance.Score, int] = {"literal_radius": 1, "literal_point": 1, "text": -1, "draft": -1}


@given(
    distances=st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), min_size=2, max_size=5),
    more=st.floats(0, 50),
)
@settings(deadline=None)
def test_16_as_printed_distance_never_costs_and_by_the_text_it_never_pays(
    distances: list[tuple[float, float]], more: float
) -> None:
    member = torch.ones(1, len(distances), 1, dtype=torch.bool)
    to_own = torch.ones(1, len(distances), dtype=torch.float64)
    near = _f64(distances)
    far = near.clone()
    far[0, 0] += more  # the first candidate moves away from the whole reserve
    # the threshold of the last two, a median, rises by no more than the distance
    for form, sign in FORMS.items():
        before, after = (
            float(importance.embedding_score(to_reserve, to_own, member, form=form)[0, 0]) for to_reserve in (near, far)
        )
        assert sign * after >= sign * before - 1e-9


def test_17_a_cluster_of_one_is_never_sent_and_clusters_of_one_have_no_law() -> None:
    # {1, 3} and {9}, a reserve embedding at 0: the last lies on its own centroid, as near as can be, and scores 0
    score = _scores([[1.0], [3.0], [9.0]], [[0.0]], [0, 0, 1], "literal_radius")
    torch.testing.assert_close(score, _f64([1.0, 9.0, 0.0]))
    member = importance.membership(torch.tensor([[0, 0, 1]]), 2)
    macro = importance.macro_implicit(importance.cluster_score(score, member)).exp()
    torch.testing.assert_close(macro, _f64([1.0, 0.0]))
    # every candidate alone: 0 / 0 as printed, and equal chances here
    alone = _scores([[1.0], [3.0], [9.0]], [[0.0]], [0, 1, 2], "literal_radius")
    assert alone.tolist() == [[0.0, 0.0, 0.0]]
    torch.testing.assert_close(importance.macro_implicit(alone).exp(), _f64([1 / 3, 1 / 3, 1 / 3]))


@pytest.mark.parametrize(
    ("form", "same"), [("literal_radius", True), ("literal_point", True), ("text", False), ("draft", False)]
)
def test_18_two_reserves_of_one_mean_and_spread_score_alike(form: importance.Score, same: bool) -> None:
    candidates = [[1.0, 0.0], [1.0, 2.0], [-3.0, 1.0]]
    # the first candidate is the first point of one reserve, and as far from both points of the other as can be
    scores = [
        _scores(candidates, reserve, [0, 0, 0], form)
        for reserve in ([[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]])
    ]
    assert torch.allclose(scores[0], scores[1]) is same
    assert not torch.allclose(scores[0][0, 0], scores[0][0, 1])


@given(reserve=st.lists(PLANE, min_size=1, max_size=6), centroids=st.lists(PLANE, min_size=2, max_size=4))
@settings(deadline=None)
def test_18_sums_of_squares_know_only_mean_and_spread(reserve: Points, centroids: Points) -> None:
    # sum |z' - z|^2 = K (|z - mean|^2 + spread): two embeddings at the mean's either side do for the whole reserve
    shown, places = _f64(reserve), _f64(centroids)
    mean = shown.mean(dim=1, keepdim=True)
    spread = (shown - mean).square().sum(dim=-1).mean()
    step = torch.stack([spread.sqrt(), torch.zeros_like(spread)])
    pair = torch.cat([mean + step, mean - step], dim=1)
    whole, two = (squared_distances(places, other).mean(dim=-1) for other in (shown, pair))
    torch.testing.assert_close(whole, two, atol=1e-9, rtol=1e-9)
    occupied = torch.ones(1, len(centroids), dtype=torch.bool)
    assume(float(squared_distances(places, places).sum(dim=-1).min()) > 1e-3)
    found = [
        importance.overlap(places, occupied, other, torch.ones(1, other.shape[1], dtype=torch.bool))
        for other in (shown, pair)
    ]
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        # densities of deviation 0.5 at b = -1, -0.5, 0, 1, 2: the peak 0.797885 times e^(-2 (b - mean)^2)
        (1.0, [0.000268, 0.008864, 0.107982, 0.797885, 0.107982]),
        (0.0, [0.107982, 0.483941, 0.797885, 0.107982, 0.000268]),
    ],
)
def test_19_the_factor_peaks_at_its_mean(mean: float, expected: list[float]) -> None:
    # on all reserve centroids; twice as near to them as to local ones (in squares); as near; half as near; a third
    found = importance.overlap_density(_f64([-1.0, -0.5, 0.0, 1.0, 2.0]), mean=mean, std=0.5).exp()
    torch.testing.assert_close(found, _f64(expected), atol=1e-6, rtol=0)


@given(
    centroids=st.lists(PLANE, min_size=2, max_size=4, unique_by=tuple), reserve=st.lists(PLANE, min_size=1, max_size=4)
)
@settings(deadline=None)
def test_19_no_cluster_is_nearer_than_minus_one(centroids: Points, reserve: Points) -> None:
    occupied, shown = (torch.ones(1, len(group), dtype=torch.bool) for group in (centroids, reserve))
    found = importance.overlap(_f64(centroids), occupied, _f64(reserve), shown)
    assert float(found.min()) >= -1.0 - 1e-9


def test_20_a_cluster_on_a_reserve_centroid_may_have_the_largest_factor() -> None:
    # local centroids 0 and 10, reserve centroids 0 and 20
    occupied = torch.ones(1, 2, dtype=torch.bool)
    found = importance.overlap(_f64([[0.0], [10.0]]), occupied, _f64([[0.0], [20.0]]), occupied)
    # the first: (0 + 400) / 2 against 100 -> 1, the peak; the second: (100 + 100) / 2 against 100 -> 0
    torch.testing.assert_close(found, _f64([1.0, 0.0]))
    factor = importance.overlap_density(found, mean=1.0, std=0.5).exp()
    assert float(factor[0, 0] / factor[0, 1]) == pytest.approx(math.e**2)


@pytest.mark.parametrize(("std", "total"), [(0.5, 0.797885), (0.1, 3.989423)])
def test_21_scaled_by_a_density_chances_no_longer_sum_to_one(std: float, total: float) -> None:
    macro, occupied = _f64([0.5, 0.5]).log(), torch.ones(1, 2, dtype=torch.bool)
    factor = importance.overlap_density(_f64([1.0, 1.0]), mean=1.0, std=std)
    printed = (macro + factor).exp()
    # both at the peak 1 / (std sqrt(2 pi)); with deviation 0.1 each "probability" is 1.99
    assert float(printed.sum()) == pytest.approx(total, abs=1e-6)
    normalised = importance.macro_with_overlap(macro, factor, occupied).exp()
    torch.testing.assert_close(normalised, _f64([0.5, 0.5]))


@given(uniforms=st.lists(st.floats(0.001, 0.999), min_size=3, max_size=3))
@settings(deadline=None)
def test_22_of_n_candidates_n_are_sent_whatever_their_chances(uniforms: list[float]) -> None:
    (chosen,) = importance.gumbel_top_n(_f64([0.9, 0.09, 0.01]).log(), (3,), _f64(uniforms))
    assert sorted(chosen.tolist()) == [0, 1, 2]


@given(points=st.lists(PLANE, min_size=3, max_size=8), angle=st.floats(0, 2 * math.pi), flip=st.booleans())
@settings(deadline=None)
def test_23_a_turned_model_has_the_same_losses(points: Points, angle: float, flip: bool) -> None:
    sine, cosine = math.sin(angle), math.cos(angle)
    turn = torch.tensor([[cosine, sine], [sine, -cosine] if flip else [-sine, cosine]], dtype=torch.float64)
    before = torch.tensor(points, dtype=torch.float64)
    anchors, positives, negatives = before[:1], before[1:2], before[2:]
    found = [
        importance.expected_loss(*(part.unsqueeze(0) for part in parts), margin=1.0)
        for parts in ((anchors, positives, negatives), (anchors @ turn, positives @ turn, negatives @ turn))
    ]
    torch.testing.assert_close(found[0], found[1], atol=1e-9, rtol=1e-9)


def test_23_but_embeddings_of_two_such_models_do_not_compare() -> None:
    # the receiver's model is the transmitter's with the other sign: 1 becomes -1, and the order of scores turns round
    candidates = [[1.0], [-1.5]]
    same = _scores(candidates, [[1.0]], [0, 0], "literal_radius")
    turned = _scores(candidates, [[-1.0]], [0, 0], "literal_radius")
    # radius^2 1.5625 times 0 and 6.25; times 4 and 0.25
    torch.testing.assert_close(same, _f64([0.0, 9.765625]))
    torch.testing.assert_close(turned, _f64([6.25, 0.390625]))


# Roles and time


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_24_the_receiver_shows_its_reserve_and_the_transmitter_draws(mode: str, tmp_path: Path) -> None:
    table, trace = tmp_path / "budgets.csv", tmp_path / "trace.jsonl"
    table.write_text("transmitter,receiver,num_pulled,num_reserve\n0,1,2,3\n")
    overrides = ("train.steps=4", f"exchange.mode={mode}", "exchange.num_pulled=0", f"exchange.budgets_file={table}")
    cfcl.run(small(*overrides), trace=trace, engine="loop")
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    told = [(row["kind"], row["from"], row["to"]) for row in rows if "Model" not in row["kind"]]
    kind = "Data" if mode == "explicit" else "Embedding"
    assert sorted(set(told)) == sorted([(f"{kind}Items", 0, 1), (f"{kind}Reserve", 1, 0), ("PullRequest", 1, 0)])


def test_25_by_the_text_every_pull_of_fashion_mnist_has_a_fresh_model() -> None:
    clock = schedule.build(configs.load("fashion-mnist-paper"), once=False)
    assert clock.exchange_steps[0] == 25
    # T_a = T_p = 25: ours is the text's; in the printed order the newest aggregation would be one before t
    assert all(clock.last_aggregation(t) == t for t in clock.exchange_steps)
    assert all(clock.last_aggregation(t - 1) == t - 25 for t in clock.exchange_steps)


def test_25_in_the_printed_order_the_weight_peaks_at_the_end_of_a_round() -> None:
    # t = 26..50 are the updates between two aggregations of Alg. 1, t = 25..49 are ours
    printed, ours = ([_weight(t) for t in range(first, first + 25)] for first in (26, 25))
    assert printed.index(max(printed)) == 24
    assert ours.index(max(ours)) == 0


def test_26_pulls_before_the_first_aggregation_use_the_initial_model() -> None:
    overrides = ["aggregation.period=100", "exchange.mode=implicit"]
    clock = schedule.build(configs.load("usps-paper", overrides), once=False)
    early = [t for t in clock.exchange_steps if t < 100]
    assert early == [25, 50, 75]
    assert [clock.last_aggregation(t) for t in early] == [0, 0, 0]
    assert clock.pushes(0)


# Costs and data


def _link_bytes(preset: str, mode: str, num_pulled: int) -> int:
    """What goes over one link in a whole run, both ways."""
    config = configs.load(preset, [f"exchange.mode={mode}", f"exchange.num_pulled={num_pulled}"])
    clock = schedule.build(config, once=False)
    pushes = sum(clock.pushes(t) for t in range(clock.num_steps))
    shape = catalogue.find_set(config.data.dataset).image_shape
    item = cost.item_size(config.exchange, shape, {"embedding": (config.model.embedding_dim,)})
    return item * (config.exchange.num_reserve * pushes + num_pulled * len(clock.exchange_steps))


@pytest.mark.parametrize(
    ("preset", "num_pulled", "explicit", "implicit"),
    [
        # 10 points once and 59 pulls of 256 bytes; 10 embeddings 150 times and 59 pulls of 64
        ("usps-paper", 10, 153_600, 133_760),
        ("usps-paper", 9, 138_496, 129_984),
        ("usps-paper", 8, 123_392, 126_208),
        # 20 points once and 79 pulls of 784 bytes; 20 embeddings 80 times and 79 pulls of 64
        ("fashion-mnist-paper", 10, 635_040, 152_960),
        ("fashion-mnist-paper", 1, 77_616, 107_456),
        # pushed at exchanges only: 10 embeddings 59 times
        ("usps-study", 10, 153_600, 75_520),
        ("usps-study", 4, 62_976, 52_864),
        ("usps-study", 3, 47_872, 49_088),
    ],
)
def test_28_embeddings_save_bytes_if_many_are_pulled(
    preset: str, num_pulled: int, explicit: int, implicit: int
) -> None:
    assert _link_bytes(preset, "explicit", num_pulled) == explicit
    assert _link_bytes(preset, "implicit", num_pulled) == implicit


@pytest.mark.parametrize(("preset", "items", "held"), [("fashion-mnist-paper", 790, 10), ("usps-paper", 590, 10)])
def test_29_bulk_moves_as_much_and_holds_more(preset: str, items: int, held: int) -> None:
    config = configs.load(preset)
    clock = schedule.build(config, once=False)
    assert config.exchange.retention == "purge"
    assert config.exchange.num_pulled == held  # of each neighbour, until the next pull
    assert len(clock.exchange_steps) * config.exchange.num_pulled == items  # in total, and with bulk from the start on


@pytest.mark.parametrize(
    ("message", "num_parameters", "milliseconds"),
    [
        (LocalModel(0, SERVER, 0, torch.zeros(1), torch.zeros(0), 1.0), 45_433, 1453.856),
        (LocalModel(0, SERVER, 0, torch.zeros(1), torch.zeros(0), 1.0), 26_704, 854.528),
        # printed as 36.566 s
        (LocalModel(0, SERVER, 0, torch.zeros(1), torch.zeros(0), 1.0), 1_142_352, 36_555.264),
        (DataItems(0, 1, 0, torch.zeros(1, 1, 28, 28, dtype=torch.uint8)), 1, 6.272),
        (DataItems(0, 1, 0, torch.zeros(1, 3, 32, 32, dtype=torch.uint8)), 1, 24.576),
        (EmbeddingItems(0, 1, 0, torch.zeros(1, 256)), 1, 8.192),
    ],
    ids=["Fashion-MNIST", "USPS", "SVHN", "grey image", "colour image", "embedding"],
)
def test_30_seconds_of_a_transfer(message: Message, num_parameters: int, milliseconds: float) -> None:
    ledger = cost.Ledger(CostConfig(), num_parameters=num_parameters)
    ledger.charge(message)
    assert ledger.settle() * 1000 == pytest.approx(milliseconds)


def _size(network: torch.nn.Module) -> int:
    return sum(tensor.numel() for tensor in network.parameters())


def test_31_the_printed_networks_have_other_numbers_of_parameters() -> None:
    with torch.device("meta"):
        # one of the printed layers of USPS has ten times the printed number; another network has just that number
        assert _size(torch.nn.Linear(1024, 256, bias=False)) == 262_144
        assert _size(networks.UspsCnn((1, 16, 16), 16)) == 26_704
        # ResNet-18 of the usual width has ten times the printed number, and no narrower one has it
        assert _size(networks.SlimResNet18((3, 32, 32), 256, "batch", 64)) == 11_300_160
        sizes = [_size(networks.SlimResNet18((3, 32, 32), 256, "batch", width)) for width in range(16, 25)]
        assert sizes == sorted(sizes)
        assert sizes[0] < 1_142_352 < sizes[-1]
        assert 1_142_352 not in sizes
        # the second linear layer of AlexNet alone
        assert _size(torch.nn.Linear(4096, 4096, bias=False)) == 16_777_216


def test_32_svhn_is_larger_than_printed() -> None:
    assert {name: entry.num_train for name, entry in catalogue.SETS.items()} == {
        "fashion-mnist": 60_000,
        "usps": 7_291,
        "svhn": 73_257,
    }


# The page


def _rows() -> list[tuple[int, str, list[str]]]:
    """Number, verdict and tests of every row of the table."""
    rows = [row.split("|") for row in PAGE.splitlines() if re.match(r"^\| \[?\d+", row)]
    return [(int(re.findall(r"\d+", row[1])[0]), row[4].strip(), re.findall(r"`(test_\w+)`", row[5])) for row in rows]


def _names(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_table_and_the_sections_go_together() -> None:
    numbers = [number for number, _, _ in _rows()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [int(found) for found in re.findall(r"^### (\d+)\. ", PAGE, flags=re.MULTILINE)] == numbers
    assert {verdict for _, verdict, _ in _rows()} == VERDICTS


def test_every_row_has_tests_that_exist_and_every_test_here_has_a_row() -> None:
    known = set().union(*(_names(path) for path in TESTS.rglob("test_*.py")))
    named = [test for _, _, tests in _rows() for test in tests]
    assert [test for test in named if test not in known] == []
    undecided = [number for number, verdict, tests in _rows() if not tests and verdict != "not decided here"]
    assert undecided == []
    own = {name for name in _names(Path(__file__)) if re.match(r"test_\d+_", name)}
    assert own - set(named) == set()
    for number, _, tests in _rows():
        assert [test for test in tests if test in own and not test.startswith(f"test_{number}_")] == []
