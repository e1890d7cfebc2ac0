"""What is read off several places of a figure at once: a frontier, and how well an estimate foretells a gain."""

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cfcl.study import measures, tables
from cfcl.study.bundle import Measured, Study, Value
from cfcl.study.measures import Saving


class Point(NamedTuple):
    """One run of a method: what it took, and where it got."""

    between: float
    """Bytes between devices, reserves and radii included."""
    accuracy: float
    """At the end, in percent."""


def between(run: Measured) -> float:
    """Bytes that devices sent to each other, reserves and radii included."""
    return measures.spent(run).d2d


def frontier(study: Study, figure: str, panel: str, method: str, **settings: Value) -> dict[int, list[Point]]:
    """The runs of a method at the places of a panel with these `settings`, by seed, in the seeds that have them all."""
    found = [
        place.runs
        for (there, mine, other), place in tables.places(study, figure).items()
        if (there, other) == (panel, method) and settings.items() <= dict(mine).items()
    ]
    seeds = set[int].intersection(*map(set, found)) if found else set()
    return {seed: [Point(between(runs[seed]), measures.final(runs[seed])) for runs in found] for seed in sorted(seeds)}


def reaching(theirs: Mapping[int, Iterable[Point]], mine: Mapping[int, Iterable[Point]]) -> Saving:
    """What the cheapest of my places that is as accurate as their best saves of the bytes of that, by seed."""
    logs, failed = [], []
    for seed in sorted(theirs.keys() & mine.keys()):
        best = max(theirs[seed], key=lambda point: (point.accuracy, -point.between))
        costs = [point.between for point in mine[seed] if point.accuracy >= best.accuracy]
        if costs:
            logs.append(math.log(min(costs) / best.between))
        else:
            failed.append(seed)
    return Saving(measures.saved(measures.interval(logs)), tuple(failed), (), (), ())


class World(NamedTuple):
    """Data and network of one seed, under one setting."""

    new: float
    """Share of a neighbour's data that is new to a device, as estimated before training."""
    gain: float
    """What one method ends above another there, in points."""


def worlds(study: Study, figure: str, panel: str, mine: str, other: str) -> dict[int, list[World]]:
    """The worlds of a panel by seed; the estimate is that in the records of uniform exchange."""
    found: dict[int, list[World]] = {}
    places = tables.places(study, figure)
    for (there, settings, method), place in places.items():
        if (there, method) != (panel, ESTIMATED):
            continue
        sides = [places.get((panel, settings, side)) for side in (mine, other)]
        for seed, run in place.runs.items():
            pair = [measures.final(side.runs[seed]) for side in sides if side and seed in side.runs]
            if run.new is not None and len(pair) == 2:
                found.setdefault(seed, []).append(World(run.new, pair[0] - pair[1]))
    return found


ESTIMATED = "uniform-explicit"
"""The method whose records have the estimate: it does not depend on methods."""


def correlation(found: Iterable[World]) -> float | None:
    """Between estimate and gain; None where there are too few worlds, or all are alike."""
    some = list(found)
    new, gains = [world.new for world in some], [world.gain for world in some]
    if len(some) < 3 or len(set(new)) == 1 or len(set(gains)) == 1:
        return None
    return statistics.correlation(new, gains)
