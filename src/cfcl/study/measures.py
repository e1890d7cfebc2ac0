"""What is read off one run, and how runs are compared: paired by seed, with Student's 95 % intervals."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from cfcl.study.bundle import Evaluation, Record

Measure = Callable[[Record], float]

CONFIDENCE = 0.95
TAIL = 0.2
"""Share of the run that the final accuracy is a mean over: one evaluation alone is off by half a point."""


@dataclass(frozen=True)
class Interval:
    """A mean with the interval that holds the true one in 95 of 100 studies, if errors are normal."""

    mean: float
    low: float
    high: float
    values: tuple[float, ...]
    """One a seed."""


def interval(values: Sequence[float]) -> Interval | None:
    """Student's interval of the mean; unbounded for one value, None for none."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Interval(mean, -math.inf, math.inf, tuple(values))
    reach = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - reach, mean + reach, tuple(values))


def paired(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """The difference of two methods over the seeds that both have."""
    return interval([mine[seed] - theirs[seed] for seed in sorted(mine) if seed in theirs])


def final(run: Record) -> float:
    """Probe accuracy in percent, mean of the evaluations in the last fifth of the run."""
    return 100 * statistics.fmean(
        item.probe for item in run.evaluations if item.step >= (1 - TAIL) * run.evaluations[-1].step
    )


def area(run: Record) -> float:
    """Mean probe accuracy on the way, in percent: the area under the curve over steps, divided by their number."""
    curve = run.evaluations
    parts = [
        (later.step - earlier.step) * (later.probe + earlier.probe) / 2 for earlier, later in itertools.pairwise(curve)
    ]
    return 100 * (sum(parts) / (curve[-1].step - curve[0].step))


@dataclass(frozen=True)
class Reached:
    """What it took to reach an accuracy."""

    steps: float
    push: float
    pull: float
    up: float
    delay: float

    @property
    def d2d(self) -> float:
        """Bytes between devices."""
        return self.push + self.pull

    @property
    def bytes(self) -> float:
        """All bytes that devices sent, to each other and to the server."""
        return self.d2d + self.up


def reach(run: Record, accuracy: float) -> Reached | None:
    """When the curve first crosses `accuracy`, on straight lines between evaluations; None if it never does."""
    curve = run.evaluations
    if curve[0].probe >= accuracy:
        return _between(curve[0], curve[0], 0.0)
    for earlier, later in itertools.pairwise(curve):
        if later.probe >= accuracy:
            return _between(earlier, later, (accuracy - earlier.probe) / (later.probe - earlier.probe))
    return None


def _between(earlier: Evaluation, later: Evaluation, share: float) -> Reached:
    pairs = zip(_spent(earlier), _spent(later), strict=True)
    return Reached(*((1 - share) * one + share * other for one, other in pairs))


def spent(run: Record) -> Reached:
    """What a run spent until its end."""
    return Reached(*_spent(run.evaluations[-1]))


def _spent(item: Evaluation) -> tuple[float, float, float, float, float]:
    return item.step, item.bytes_push, item.bytes_pull, item.bytes_up, item.delay
