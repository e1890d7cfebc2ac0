import math
from dataclasses import replace

import pytest

from cfcl.study import measures
from cfcl.study.measures import Interval, Reached
from tests.study import made


def test_an_interval_is_students() -> None:
    found = measures.interval([3.0, 1.0, 2.0])

    # mean 2, deviation 1, t = 4.302653 with two degrees of freedom: 4.302653 / sqrt(3) = 2.484138 either side
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, -0.484138, 4.484138))
    assert found.values == (3.0, 1.0, 2.0)


def test_one_value_bounds_nothing_and_none_is_no_interval() -> None:
    assert measures.interval([0.5]) == Interval(0.5, -math.inf, math.inf, (0.5,))
    assert measures.interval([]) is None


def test_a_difference_is_taken_over_the_seeds_that_both_have() -> None:
    found = measures.paired({3: 8.0, 1: 5.0, 2: 1.0}, {1: 4.0, 3: 6.0, 4: 9.0})

    assert found is not None
    assert found.values == (1.0, 2.0)  # 5 - 4 and 8 - 6
    assert measures.paired({1: 5.0}, {2: 5.0}) is None


def test_the_final_accuracy_is_the_mean_over_the_last_fifth() -> None:
    # evaluations at 0, 10, ... 50: those at 40 and 50 count
    assert measures.final(made.record([1.0, 0.25, 0.5, 0.75, 0.25, 0.75])) == 50
    assert measures.final(made.record([0.25, 0.75])) == 75


def test_the_area_weighs_evaluations_by_the_steps_between_them() -> None:
    first, second, third = made.record([0.5, 1.0, 0.0]).evaluations
    run = replace(made.record([]), evaluations=(first, second, replace(third, step=40)))

    # (10 × 0.75 + 30 × 0.5) / 40
    assert measures.area(run) == 56.25


def test_the_area_is_divided_by_the_steps_that_were_evaluated() -> None:
    run = made.record([0.0, 0.5, 1.0])

    assert measures.area(replace(run, evaluations=run.evaluations[1:])) == 75
    assert measures.area(replace(run, evaluations=run.evaluations[1:2])) == 50


def test_an_accuracy_is_reached_on_the_straight_line_between_evaluations() -> None:
    run = made.record([0.25, 0.5, 1.0, 0.5, 1.0], selection=0.025)

    found = measures.reach(run, 0.625)

    # a quarter of the way from step 10 to 20: 12.5 steps of 50 + 150 + 100 bytes and 0.1 + 0.025 seconds
    assert found == Reached(steps=12.5, push=625.0, pull=1875.0, up=1250.0, delay=1.5625)
    assert found.d2d == 2500.0
    assert found.bytes == 3750.0


@pytest.mark.parametrize(("accuracy", "steps"), [(0.125, 0.0), (0.25, 0.0), (0.5, 10.0), (1.0, 20.0)])
def test_an_accuracy_is_reached_at_an_evaluation(accuracy: float, steps: float) -> None:
    found = measures.reach(made.record([0.25, 0.5, 1.0, 0.0]), accuracy)

    assert found is not None
    assert found.steps == steps


def test_an_accuracy_above_the_curve_is_never_reached() -> None:
    assert measures.reach(made.record([0.25, 0.5, 0.75]), 0.8) is None
