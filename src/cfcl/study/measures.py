"""What is read off one run, and how runs are compared: paired by seed, with Student's 95 % intervals."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from cfcl.methods import parse
from cfcl.study.bundle import Cell, Evaluated, Measured

Measure = Callable[[Measured], float]

CONFIDENCE = 0.95
SHARES = (0.5, 0.75, 0.9, 1.0)
"""Milestones: how far from the initial accuracy to that of uniform exchange at the end, both in the pilot."""
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
    saved: bool = False
    """Whether these are savings in percent, whose errors are normal as logarithms of ratios."""


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


def final(run: Measured) -> float:
    """Accuracy in percent, mean of the evaluations in the last fifth of the run."""
    return 100 * statistics.fmean(
        item.accuracy for item in run.evaluations if item.step >= (1 - TAIL) * run.evaluations[-1].step
    )


def alike(run: Measured) -> float | None:
    """How alike local models are (CKA), mean of the evaluations in the last fifth of the run; None where unknown."""
    return _late(run, "cka")


def worst_label(run: Measured) -> float | None:
    """Accuracy on the worst label in percent, over the same evaluations."""
    return _percent(_late(run, "worst_label"))


def worst_device(run: Measured) -> float | None:
    """That of the worst device."""
    return _percent(_late(run, "worst_device"))


def _late(run: Measured, name: str) -> float | None:
    end = run.evaluations[-1].step
    late = [getattr(item, name) for item in run.evaluations if item.step >= (1 - TAIL) * end]
    known = [value for value in late if value is not None]
    return statistics.fmean(known) if known else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def area(run: Measured) -> float:
    """Mean accuracy on the way, in percent: the area under the curve over steps, divided by their number.

    Of a single evaluation it is that one: a file may have lost the others.
    """
    curve = run.evaluations
    if len(curve) == 1:
        return 100 * curve[0].accuracy
    parts = [
        (later.step - earlier.step) * (later.accuracy + earlier.accuracy) / 2
        for earlier, later in itertools.pairwise(curve)
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


def reach(run: Measured, accuracy: float) -> Reached | None:
    """When the curve first crosses `accuracy`, on straight lines between evaluations; None if it never does."""
    curve = run.evaluations
    if curve[0].accuracy >= accuracy:
        return _between(curve[0], curve[0], 0.0)
    for earlier, later in itertools.pairwise(curve):
        if later.accuracy >= accuracy:
            return _between(earlier, later, (accuracy - earlier.accuracy) / (later.accuracy - earlier.accuracy))
    return None


def _between(earlier: Evaluated, later: Evaluated, share: float) -> Reached:
    pairs = zip(_spent(earlier), _spent(later), strict=True)
    return Reached(*((1 - share) * one + share * other for one, other in pairs))


def spent(run: Measured) -> Reached:
    """What a run spent until its end."""
    return Reached(*_spent(run.evaluations[-1]))


def spared(run: Measured) -> float | None:
    """Megabytes that a run sent less than uploading all its data once would take; None where that is not known."""
    return None if run.raw is None else (run.raw - spent(run).bytes) / 1e6


def _spent(item: Evaluated) -> tuple[float, float, float, float, float]:
    return item.step, item.bytes_push, item.bytes_pull, item.bytes_up, item.delay


def milestones(cells: Iterable[Cell], runs: Mapping[str, Measured], pilot: int) -> dict[str, list[float]]:
    """Accuracies to be reached, by panel and mode, from the pilot's uniform exchange."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        method = parse(cell.method)
        if cell.seed == pilot and method.policy == "uniform" and cell.digest in runs:
            run = runs[cell.digest]
            first, last = run.evaluations[0].accuracy, final(run) / 100
            found[f"{cell.panel} {method.mode}"] = [round(first + share * (last - first), 4) for share in SHARES]
    return found


Cost = Callable[[Reached], float]
COSTS: Mapping[str, Cost] = {
    "bytes": lambda item: item.bytes,
    "d2d": lambda item: item.d2d,
    "seconds": lambda item: item.delay,
    "steps": lambda item: item.steps,
}


@dataclass(frozen=True)
class Saving:
    """A saving over seeds, and the seeds that need a word."""

    estimate: Interval | None
    """In percent; ratios are averaged over seeds as logarithms, and turned back."""
    failed: tuple[int, ...]
    """Where only the other method gets there: such a seed has no saving."""
    bounds: tuple[int, ...]
    """Where the other never gets there: it is charged with all it spent, so the saving is at least this."""
    void: tuple[int, ...]
    """Where neither gets there, or one does at no cost."""
    partial: tuple[int, ...]
    """Where that is so at some of the accuracies: the average is over the others."""


Mark = float | None
"""An accuracy to reach; None: the end of the run, whatever its accuracy."""


def saving(
    pairs: Mapping[int, tuple[Measured, Measured]], accuracies: Iterable[Mark], cost: str, *, rise: bool = False
) -> Saving:
    """What the second of each pair of runs saves, by seed, as an average over `accuracies`.

    With `rise`, what it saves at the last of them beyond what it saves at the first.
    """
    marks = list(accuracies)
    logs: dict[int, float] = {}
    failed, bounds, void, partial = [], [], [], []
    for seed, (theirs, mine) in sorted(pairs.items()):
        reached = [(_reached(theirs, mark), _reached(mine, mark)) for mark in marks]
        if any(there and not here for there, here in reached):
            failed.append(seed)
            continue
        paid = [(COSTS[cost](there or spent(theirs)), COSTS[cost](here)) for there, here in reached if here]
        ratios = [math.log(here / there) for there, here in paid if here > 0 and there > 0]
        # A lower bound at the first mark would be none of the rise.
        if not ratios or (rise and (len(ratios) < len(marks) or reached[0][0] is None)):
            void.append(seed)
            continue
        logs[seed] = ratios[-1] - ratios[0] if rise else statistics.fmean(ratios)
        if len(ratios) < len(marks):
            partial.append(seed)
        if any(here and not there for there, here in reached):
            bounds.append(seed)
    estimate = saved(interval(list(logs.values())))
    return Saving(estimate, tuple(failed), tuple(bounds), tuple(void), tuple(partial))


def _reached(run: Measured, mark: Mark) -> Reached | None:
    return spent(run) if mark is None else reach(run, mark)


def saved(logs: Interval | None) -> Interval | None:
    """Logarithms of ratios as savings in percent: the larger the ratio, the smaller the saving."""
    if logs is None:
        return None
    mean, low, high, *values = (100 * (1 - math.exp(log)) for log in (logs.mean, logs.high, logs.low, *logs.values))
    return Interval(mean, low, high, tuple(values), saved=True)
