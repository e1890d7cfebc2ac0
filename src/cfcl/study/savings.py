"""What one method saves of what another spends until it is as accurate."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cfcl.study import measures
from cfcl.study.bundle import Record
from cfcl.study.measures import Interval, Reached

COSTS: Mapping[str, Callable[[Reached], float]] = {
    "bytes": lambda spent: spent.bytes,
    "d2d": lambda spent: spent.d2d,
    "seconds": lambda spent: spent.delay,
    "steps": lambda spent: spent.steps,
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


def saving(pairs: Mapping[int, tuple[Record, Record]], accuracies: Iterable[float], cost: str) -> Saving:
    """What the second of each pair of runs saves, by seed, as an average over `accuracies`."""
    marks = list(accuracies)
    logs: dict[int, float] = {}
    failed, bounds, void, partial = [], [], [], []
    for seed, (theirs, mine) in sorted(pairs.items()):
        reached = [(measures.reach(theirs, mark), measures.reach(mine, mark)) for mark in marks]
        if any(there and not here for there, here in reached):
            failed.append(seed)
            continue
        spent = [(COSTS[cost](there or measures.spent(theirs)), COSTS[cost](here)) for there, here in reached if here]
        ratios = [math.log(here / there) for there, here in spent if here > 0 and there > 0]
        if not ratios:
            void.append(seed)
            continue
        logs[seed] = statistics.fmean(ratios)
        if len(ratios) < len(marks):
            partial.append(seed)
        if any(here and not there for there, here in reached):
            bounds.append(seed)
    estimate = _saved(measures.interval(list(logs.values())))
    return Saving(estimate, tuple(failed), tuple(bounds), tuple(void), tuple(partial))


def _saved(logs: Interval | None) -> Interval | None:
    """Logarithms of ratios as savings in percent: the larger the ratio, the smaller the saving."""
    if logs is None:
        return None
    mean, low, high, *values = (100 * (1 - math.exp(log)) for log in (logs.mean, logs.high, logs.low, *logs.values))
    return Interval(mean, low, high, tuple(values))
