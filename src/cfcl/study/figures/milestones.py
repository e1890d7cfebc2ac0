"""Bytes and seconds that it takes to reach accuracies (Fig. 6)."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.runs.progress import size
from cfcl.study import layout
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures.figure import METHODS, StudyFigure, plain
from cfcl.study.measures import Cost, Reached, Saving, reach, saving
from cfcl.study.tables import Table

BYTES: dict[str, Cost] = {
    "pushed": lambda found: found.push,
    "pulled": lambda found: found.pull,
    "uplink": lambda found: found.up,
}
SAVED = ("bytes", "seconds")
"""What is compared with uniform exchange."""
_LINE = 0.19
"""Inches of one dot."""
_NEAREST, _FARTHEST = 1.2, 3.0
"""Doublings that an axis shows at least, and at most of an interval, on either side of no saving."""


@dataclass(frozen=True)
class Toll:
    """What it took one method to reach an accuracy, in the seeds that reached it."""

    reached: tuple[Reached, ...]
    seeds: int

    @property
    def shown(self) -> bool:
        """Whether a table has it: half of the seeds or more reached it."""
        return bool(self.reached) and 2 * len(self.reached) >= self.seeds

    def mean(self, part: Cost) -> float:
        """Over the seeds that reached it."""
        return statistics.fmean(part(found) for found in self.reached)


def toll(runs: Iterable[Measured], accuracy: float) -> Toll:
    """What it took `runs` to reach `accuracy`."""
    found = [reach(run, accuracy) for run in runs]
    return Toll(tuple(item for item in found if item is not None), len(found))


def draw(study: Study, name: str) -> Figure | None:
    """What each method saves on the way to each milestone: a row per dataset and mode, bytes and seconds beside it."""
    places = [(panel, mode) for panel in study.panels(name) for mode in study.modes(name)]
    blocks = {place: found for place in places if (found := _pairs(study, name, *place))}
    if not blocks:
        return None
    goals = {place: study.milestones(*place) for place in blocks}
    lines = [len(goals[place]) * len(pairs) for place, pairs in blocks.items()]
    figure = Figure(figsize=(10.0, _LINE * sum(lines) + 0.8 * len(lines)))
    grid = figure.subplots(len(blocks), 2, squeeze=False, sharex="row", sharey="row", height_ratios=lines)
    looks = layout.looks(study.methods(name))
    for row, (place, pairs) in zip(grid, blocks.items(), strict=True):
        _notes(row[-1], pairs, goals[place])
        reaches = [_dots(axes, pairs, goals[place], cost, looks) for axes, cost in zip(row, SAVED, strict=True)]
        _frame(row[0], [_name(goal, method, pairs) for goal in goals[place] for method in pairs], max(reaches))
        for axes, cost in zip(row, SAVED, strict=True):
            counts = [len(found) for found in pairs.values()]
            layout.title(axes, f"{', '.join(place)}: {cost}", layout.surroundings(counts, "bars"))
            axes.set_xlabel(f"{cost} saved against uniform exchange (%)")
            axes.grid(False, axis="y")
            for group in range(1, len(goals[place])):
                axes.axhline(group * len(pairs) - 0.5, color="#BBBBBB", linewidth=0.8)
    return figure


Pairs = Mapping[str, Mapping[int, tuple[Measured, Measured]]]
"""By method and seed: the run of uniform exchange, and the method's own."""


def _pairs(study: Study, name: str, panel: str, mode: str) -> Pairs:
    """The methods to compare in one row; none without milestones."""
    if not study.milestones(panel, mode):
        return {}
    base = f"uniform-{mode}"
    methods = [item for item in study.methods(name, mode) if not parse(item).yardstick]
    runs = layout.alike({method: study.find(name, panel, method) for method in methods})
    theirs = runs.pop(base, {})
    found = {
        method: {seed: (theirs[seed], run) for seed, run in mine.items() if seed in theirs}
        for method, mine in runs.items()
    }
    return {method: pairs for method, pairs in found.items() if pairs}


def _name(goal: float, method: str, pairs: Pairs) -> str:
    title = parse(method).title
    return f"to {100 * goal:.1f} %:   {title}" if method == next(iter(pairs)) else title


def _dots(axes: Axes, pairs: Pairs, goals: Iterable[float], cost: str, looks: Mapping[str, style.Look]) -> float:
    """Draw a dot and its interval, or words, per milestone and method; how far the dots lie from no saving."""
    farthest = 0.0
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    for place, (method, goal) in enumerate((method, goal) for goal in goals for method in pairs):
        found = saving(pairs[method], [goal], cost)
        if found.estimate is None or found.failed:
            words: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(_missed(found, pairs[method], goal), (0.0, place), color=style.GREY, **words)
            continue
        estimate, colour = layout.spread_of(found.estimate), looks[method].colour
        mean, low, high = (_doublings(value) for value in (estimate.mean, estimate.low, estimate.high))
        axes.hlines(place, low, high, color=colour, linewidth=1.5)
        axes.plot([mean], [place], **(looks[method].options | {"linestyle": ""}))
        farthest = max(farthest, abs(mean), *(min(abs(end), _FARTHEST) for end in (low, high)))
    return farthest


def _missed(found: Saving, pairs: Mapping[int, tuple[Measured, Measured]], goal: float) -> str:
    """Why there is no dot."""
    if found.failed:
        whole = len(found.failed) == len(pairs)
        return "never reached" if whole else f"not reached in {len(found.failed)} of {len(pairs)} seeds"
    there = any(reach(run, goal) for _, run in pairs.values())
    return "reached before anything was sent" if there else "never reached, nor by uniform"


def _notes(axes: Axes, pairs: Pairs, goals: Sequence[float]) -> None:
    """At the right, what dots do not say: fewer seeds than others have, and lower bounds."""
    for place, (method, goal) in enumerate((method, goal) for goal in goals for method in pairs):
        found = saving(pairs[method], [goal], SAVED[-1])
        if found.estimate is None or found.failed:
            continue
        few = f"{len(found.estimate.values)} of {len(pairs[method])} seeds" if found.void else ""
        words = ", ".join(filter(None, ["at least" if found.bounds else "", few]))
        axes.text(1.02, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize=8, color=style.GREY)


def _doublings(saved: float) -> float:
    """A saving in percent where half and double lie equally far from no saving."""
    return -math.log2(max(1 - saved / 100, 2.0**-10))


def _frame(axes: Axes, names: list[str], farthest: float) -> None:
    end = max(1.05 * farthest, _NEAREST)
    axes.set_yticks(range(len(names)), names)
    axes.set(ylim=(len(names) - 0.5, -0.5), xlim=(-end, end))
    ticks = range(-int(end), int(end) + 1)
    axes.set_xticks(list(ticks), [f"{100 * (1 - 2.0**-tick):.3g}" for tick in ticks])
    axes.tick_params(axis="y", length=0)


def table(study: Study, name: str) -> Table:
    """A row per dataset, mode, milestone and method: what it took to get there."""
    head = ["Dataset", "Mode", "To reach (%)", "Method", "Reached", "Steps", "Pushed", "Pulled", "Uplink", "Seconds"]
    rows = []
    whole = {panel: _uploaded(study, name, panel) for panel in study.panels(name)}
    if any(whole.values()):
        head.append("Upload all")
    for panel in study.panels(name):
        for mode in study.modes(name):
            methods = [item for item in study.methods(name, mode) if not parse(item).yardstick]
            for goal in study.milestones(panel, mode):
                for method in methods:
                    found = toll(study.find(name, panel, method).values(), goal)
                    beside = [whole[panel] or "–"] if any(whole.values()) else []
                    rows.append([panel, mode, f"{100 * goal:g}", method, *_spent(found), *beside])
    return Table(head, rows)


def _uploaded(study: Study, name: str, panel: str) -> str:
    """What uploading all data of a panel once would take, on average; empty where it is not known."""
    runs = (run for method in study.methods(name) for run in study.find(name, panel, method).values())
    known = [run.raw for run in runs if run.raw is not None]
    return size(statistics.fmean(known)) if known else ""


def _spent(found: Toll) -> list[str]:
    reached = f"{len(found.reached)} of {found.seeds}"
    if not found.shown:
        return [reached, *["never" if found.seeds and not found.reached else "–"] * 5]
    parts = [size(found.mean(part)) for part in BYTES.values()]
    return [reached, f"{found.mean(lambda item: item.steps):.0f}", *parts, f"{found.mean(lambda item: item.delay):.1f}"]


FIGURE = StudyFigure(
    name="fig6",
    title="Fig. 6: bytes and seconds to an accuracy",
    reading="What a method saves, within a seed, of all bytes that devices send and of the seconds of the delay model "
    "and of selection, until the probe first reaches an accuracy; right of zero is better than uniform exchange, and "
    "twice the cost lies as far from zero as half of it. A pilot seed, shown nowhere, has set the accuracies. There "
    "are words in place of a dot where a method did not get there in a seed in which uniform exchange did. Where "
    "uniform exchange did not get there, it is charged with all that it spent, so that the saving is at least this. "
    "The table has means over the seeds that got there, if half of them did.",
    entries=lambda profile, panel: plain(*(panel.methods or METHODS)),
    draw=draw,
    table=table,
    whiskers="Bars",
    piloted=True,
)
