"""From estimates to verdicts: pure rules, the same for every claim.

A claim says that a difference is larger than a number, 0 unless it states one, and it has a smallest size worth naming.
Its tests are judged together.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtr, stdtrit

from cfcl.study.measures import CONFIDENCE, Interval

SUPPORTED, CONTRADICTED, NO_DIFFERENCE, UNDECIDED = "supported", "contradicted", "no difference", "undecided"
SAME, NOT_RUN = "nothing compared", "not run"
VERDICTS = (SUPPORTED, CONTRADICTED, NO_DIFFERENCE, UNDECIDED, NOT_RUN)
"""Of claims, in the order in which they are counted."""
MARKS = {SUPPORTED: "✓", CONTRADICTED: "✗", NO_DIFFERENCE: "≈", UNDECIDED: "?", NOT_RUN: "–", SAME: "="}

FEWEST_SEEDS = 3
"""Two that happen to agree would decide anything."""
MOST_SEEDS = 10_000
"""Nobody will run more."""
ROUNDING = 1e-9
"""Sums of the same numbers in another order differ by less."""
_AGAINST = (1 - CONFIDENCE) / 2
"""The chance, on one side, that an interval misses what it should hold."""


@dataclass(frozen=True)
class Bounds:
    """Where a difference begins to count."""

    number: float
    """That a claim states, or 0."""
    smallest: float
    """Size worth naming."""

    @property
    def low(self) -> float:
        """Below it a difference speaks against the claim."""
        return self.number - self.smallest

    @property
    def high(self) -> float:
        """Above it a difference speaks for the claim."""
        return self.number + self.smallest


@dataclass(frozen=True)
class Evidence:
    """What one test of a claim rests on."""

    estimate: Interval | None
    limits: Literal["", "lower bound", "failed", "some failed"] = ""
    """A `lower bound` can only support. `failed`: in no seed does the favoured side get where the other gets; `some
    failed`: in some it does not."""
    seeds: int = 0
    """Behind a failure, which has no estimate."""


def judge(tests: Sequence[Evidence], bounds: Bounds) -> list[str]:
    """A verdict on every test; those against a claim are corrected for their number by Holm's rule."""
    against = _holm([_chance(test, bounds) for test in tests])
    return [CONTRADICTED if wrong else _alone(test, bounds) for test, wrong in zip(tests, against, strict=True)]


def conclude(verdicts: Sequence[str]) -> str:
    """The verdict on a claim from those of its tests; where runs were the same, they decide nothing."""
    found = set(verdicts) - {SAME}
    if CONTRADICTED in found:
        return CONTRADICTED
    if not found - {NOT_RUN}:
        return NOT_RUN if NOT_RUN in found or not verdicts else UNDECIDED
    return found.pop() if len(found) == 1 else UNDECIDED


def seeds_needed(estimate: Interval, bounds: Bounds, tests: int = 1) -> int | None:
    """How many seeds would decide, were their mean and spread those of the seeds so far; None for more than anybody
    would run.

    What speaks against a claim of several `tests` has to pass the strictest of their corrections.
    """
    values = _working(estimate)
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    low, high = (_placed(estimate, bound) for bound in (bounds.low, bounds.high))
    room = low - mean if mean < low else mean - high if mean > high else min(high - mean, mean - low)
    chance = _AGAINST / tests if mean < low else _AGAINST
    number = max(len(values), FEWEST_SEEDS)
    while _reach(spread, number, chance) >= room:
        if number >= MOST_SEEDS:
            return None
        number = max(number + 1, math.ceil(1.02 * number))
    return number


def _alone(test: Evidence, bounds: Bounds) -> str:
    """The verdict on a test, but for what speaks against the claim."""
    estimate = test.estimate
    if estimate is None:
        return UNDECIDED if test.limits else NOT_RUN
    if all(abs(value) < ROUNDING for value in estimate.values):
        return SAME  # whatever the number: the two sides are one
    if len(estimate.values) < FEWEST_SEEDS:
        return UNDECIDED
    if estimate.low > bounds.high:
        return SUPPORTED
    within = bounds.low < estimate.low and estimate.high < bounds.high
    return NO_DIFFERENCE if within and not test.limits else UNDECIDED


def _chance(test: Evidence, bounds: Bounds) -> float | None:
    """The chance of such evidence, were the difference just large enough to speak against it; None if unknown."""
    estimate = test.estimate
    if test.limits == "failed":
        return 0.5**test.seeds
    if estimate is None or test.limits or len(estimate.values) < FEWEST_SEEDS or _alone(test, bounds) == SAME:
        return None
    values = _working(estimate)
    short = statistics.fmean(values) - _placed(estimate, bounds.low)
    error = statistics.stdev(values) / math.sqrt(len(values))
    if error == 0.0:
        return float(short >= 0)
    return float(stdtr(len(values) - 1, short / error))


def _holm(chances: Sequence[float | None]) -> list[bool]:
    """Which of them count, stepping up from the smallest until one does not."""
    found = [False] * len(chances)
    known = sorted((chance, place) for place, chance in enumerate(chances) if chance is not None)
    for rank, (chance, place) in enumerate(known):
        if chance > _AGAINST / (len(known) - rank):
            break
        found[place] = True
    return found


def _working(estimate: Interval) -> list[float]:
    return [_placed(estimate, value) for value in estimate.values]


def _placed(estimate: Interval, value: float) -> float:
    """`value` where errors are taken as normal: savings as logarithms of what is left."""
    return -math.log(max(1 - value / 100, 1e-12)) if estimate.saved else value


def _reach(spread: float, number: int, chance: float) -> float:
    return float(stdtrit(number - 1, 1 - chance)) * spread / math.sqrt(number)
