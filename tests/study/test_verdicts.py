import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfcl.study import verdicts
from cfcl.study.measures import Interval, interval
from cfcl.study.verdicts import CONTRADICTED, NO_DIFFERENCE, SUPPORTED, UNDECIDED, Bounds, Evidence

POINT = Bounds(0.0, 1.0)


def seen(*values: float) -> Evidence:
    return Evidence(interval(values))


def test_evidence_against_is_corrected_for_the_number_of_tests() -> None:
    # -3 on average, spread 1: (-3 + 1) / (1 / sqrt 3) = -3.464, a chance of 0.0371 with two degrees of freedom
    weak = seen(-4.0, -3.0, -2.0)
    # spread 0.5: -6.928, 0.0101: counts alone (0.025), not beside another test (0.0125 would do, 0.0083 not)
    fair = seen(-3.5, -3.0, -2.5)
    even = seen(-0.1, 0.0, 0.1)

    assert verdicts.judge([weak], POINT) == [UNDECIDED]
    assert verdicts.judge([fair], POINT) == [CONTRADICTED]
    assert verdicts.judge([fair, even], POINT) == [CONTRADICTED, NO_DIFFERENCE]
    assert verdicts.judge([fair, even, even], POINT) == [UNDECIDED, NO_DIFFERENCE, NO_DIFFERENCE]
    # Once one counts, there is one test less to correct for: 0.0101 is below 0.025 / 2.
    sure = seen(-30.01, -30.0, -29.99)
    assert verdicts.judge([fair, sure, even], POINT) == [CONTRADICTED, CONTRADICTED, NO_DIFFERENCE]


def test_support_needs_no_correction() -> None:
    good = seen(3.0, 3.5, 4.0)

    assert verdicts.judge([good] * 20, POINT) == [SUPPORTED] * 20


def test_a_number_of_its_own_moves_everything() -> None:
    bounds = Bounds(50.0, 1.0)

    assert verdicts.judge([seen(52.0, 52.1, 52.2)], bounds) == [SUPPORTED]
    assert verdicts.judge([seen(50.1, 50.2, 50.3)], bounds) == [NO_DIFFERENCE]
    assert verdicts.judge([seen(47.9, 48.0, 48.1)], bounds) == [CONTRADICTED]


def test_the_number_of_seeds_that_would_decide() -> None:
    # Mean 2, spread 1, so 1 of room: six seeds reach 2.571 / sqrt(6), and seven 2.447 / sqrt(7).
    estimate = interval([1.0, 2.0, 3.0])
    assert estimate is not None
    assert verdicts.seeds_needed(estimate, POINT) == 7
    # Two seeds may lie as close together as they like: nothing is decided by fewer than three.
    pair = interval([9.9999, 10.0001])
    assert pair is not None
    assert verdicts.seeds_needed(pair, POINT) == 3
    # Against one of 16 tests: mean -4/3, spread 0.6218, so 0.8333 of room below -0.5. Nine seeds reach 4.169 / sqrt(9)
    # spreads, 0.864, and ten 3.997 / sqrt(10), 0.786. Were it the only test, the six that there are would do.
    against = interval([-2.2, -0.5, -1.8, -0.9, -1.5, -1.1])
    assert against is not None
    assert verdicts.seeds_needed(against, Bounds(0.0, 0.5), 16) == 10
    assert verdicts.seeds_needed(against, Bounds(0.0, 0.5)) == 6
    # On the edge no number of seeds will do.
    edge = interval([0.0, 1.0, 2.0])
    assert edge is not None
    assert verdicts.seeds_needed(edge, POINT) is None


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=12), st.floats(0.01, 3), st.floats(-3, 3))
def test_turned_around_a_claim_is_never_supported_twice(values: list[float], smallest: float, number: float) -> None:
    there = verdicts.judge([seen(*values)], Bounds(number, smallest))[0]
    back = verdicts.judge([seen(*(-value for value in values))], Bounds(-number, smallest))[0]

    assert (there, back) != (SUPPORTED, SUPPORTED)
    if there == SUPPORTED and max(values) > min(values):
        assert back == CONTRADICTED
    if there == NO_DIFFERENCE:
        assert back == NO_DIFFERENCE


def test_savings_are_judged_where_their_errors_are_normal() -> None:
    halves = Evidence(Interval(50.0, 45.0, 55.0, (48.0, 50.0, 52.0), saved=True))

    assert verdicts.judge([halves], Bounds(0.0, 1.0)) == [SUPPORTED]
    # logarithms of what is left: -0.654, -0.693, -0.734, on average 0.197 from that of 41 %, which is 8.5 errors
    assert verdicts.judge([halves], Bounds(60.0, 1.0)) == [CONTRADICTED]
    assert verdicts.judge([halves], Bounds(50.0, 20.0)) == [NO_DIFFERENCE]


@pytest.mark.parametrize("seeds", [3, 5, 6])
def test_a_side_that_never_gets_there_counts_as_tosses_of_a_coin(seeds: int) -> None:
    found = verdicts.judge([Evidence(None, "failed", seeds)], POINT)

    assert found == [CONTRADICTED if seeds == 6 else UNDECIDED]  # 1/64 is below 0.025, 1/32 is not
