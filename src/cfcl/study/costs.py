"""Bytes and seconds that it takes to reach accuracies (Fig. 6)."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from cfcl.runs import style
from cfcl.study import panels
from cfcl.study.bundle import Record, Study
from cfcl.study.measures import Reached, reach

Part = Callable[[Reached], float]

BYTES: dict[str, Part] = {
    "pushed": lambda found: found.push,
    "pulled": lambda found: found.pull,
    "uplink": lambda found: found.up,
}
SECONDS: dict[str, Part] = {"delay": lambda found: found.delay}
_SHADES = {"pushed": 1.0, "pulled": 0.6, "uplink": 0.25, "delay": 0.8}
"""How much of a method's colour is in a part of its bar; the rest is white."""
_ORDERS = 100.0
"""Bars that differ by more are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Outcome:
    """What it took one method to reach an accuracy, in the seeds that reached it."""

    reached: tuple[Reached, ...]
    seeds: int

    @property
    def shown(self) -> bool:
        """Whether there is a bar: half of the seeds or more reached it."""
        return bool(self.reached) and 2 * len(self.reached) >= self.seeds

    @property
    def note(self) -> str:
        """How many seeds reached it, if some did and some did not."""
        return f"{len(self.reached)}/{self.seeds}" if 0 < len(self.reached) < self.seeds else ""

    def mean(self, part: Part) -> float:
        """Over the seeds that reached it."""
        return statistics.fmean(part(found) for found in self.reached)


def outcome(runs: Iterable[Record], accuracy: float) -> Outcome:
    """What it took `runs` to reach `accuracy`."""
    found = [reach(run, accuracy) for run in runs]
    return Outcome(tuple(item for item in found if item is not None), len(found))


def to_milestones(study: Study) -> Figure | None:
    """Bytes and seconds to each milestone: a row a dataset and mode; a cross where most seeds never reached it."""
    places = [
        (panel, mode)
        for panel in study.panels("fig6")
        for mode in panels.modes(study, "fig6")
        if study.milestones(panel, mode)
    ]
    found = {place: _outcomes(study, *place) for place in places}
    methods = panels.sort(method for outcomes in found.values() for method in outcomes)
    if not methods:
        return None
    looks = panels.looks(methods)
    figure, rows = panels.grid(len(places), 2)
    for row, (panel, mode) in zip(rows, places, strict=True):
        for axes, parts, unit in zip(row, (BYTES, SECONDS), ("B", "s"), strict=True):
            outcomes = found[panel, mode]
            panels.title(axes, f"{panel}, {mode}", panels.seeds(items[0].seeds for items in outcomes.values()))
            if not outcomes:
                panels.blank(axes, "no finished run")
                continue
            goals = study.milestones(panel, mode)
            _bars(axes, outcomes, {method: looks[method].colour for method in outcomes}, parts)
            axes.set_xticks(range(len(goals)), [f"{100 * goal:g}" for goal in goals])
            axes.set(xlabel="probe accuracy to reach (%)", ylabel="bytes" if unit == "B" else "seconds")
            axes.yaxis.set_major_formatter(EngFormatter(unit=unit))
    kinds = [Patch(color=looks[method].colour, label=panels.name(method)) for method in methods]
    shades = [Patch(facecolor=_shade(style.GREY, _SHADES[name]), edgecolor=style.GREY, label=name) for name in BYTES]
    panels.legend(figure, [*kinds, *shades])
    return figure


def _outcomes(study: Study, panel: str, mode: str) -> dict[str, list[Outcome]]:
    """By method, what each milestone took; without yardsticks, and without methods that have no run."""
    known = {
        method: study.find("fig6", panel, method)
        for method in panels.methods(study, "fig6", mode)
        if not panels.is_yardstick(method)
    }
    found = {
        method: [outcome(runs.values(), goal) for goal in study.milestones(panel, mode)]
        for method, runs in panels.alike(known).items()
    }
    return {method: items for method, items in found.items() if items[0].seeds}


def _bars(axes: Axes, found: dict[str, list[Outcome]], colours: dict[str, str], parts: dict[str, Part]) -> None:
    """A group of bars a milestone, a bar a method, its parts on top of each other."""
    width = 0.84 / len(found)
    tops: list[float] = []
    for number, (method, items) in enumerate(found.items()):
        for group, item in enumerate(items):
            x = group + (number - (len(found) - 1) / 2) * width
            if item.shown:
                tops.append(_bar(axes, x, 0.9 * width, item, colours[method], parts))
            else:
                _cross(axes, x, item, colours[method])
    positive = [top for top in tops if top > 0]
    if positive and max(positive) > _ORDERS * min(positive):
        axes.set_yscale("log")
        axes.set_ylim(min(positive) / 3, max(positive) * 3)
    else:
        axes.set_ylim(0, 1.2 * max([*positive, 1e-9]))
    axes.set_xlim(-0.5, len(next(iter(found.values()))) - 0.5)
    axes.grid(False, axis="x")


def _bar(axes: Axes, x: float, width: float, item: Outcome, colour: str, parts: dict[str, Part]) -> float:
    """One bar with its range over seeds; its top."""
    done = 0.0
    for name, part in parts.items():
        height = item.mean(part)
        if height > 0:
            axes.bar(
                x, height, width, bottom=done, color=_shade(colour, _SHADES[name]), edgecolor=colour, linewidth=0.6
            )
        done += height
    totals = [sum(part(found) for part in parts.values()) for found in item.reached]
    axes.vlines(x, min(totals), max(totals), color=style.GREY, linewidth=1.0)
    if item.note:
        above: Any = {"xytext": (0, 3), "textcoords": "offset points"}
        axes.annotate(item.note, (x, max(totals)), ha="center", va="bottom", fontsize=8, rotation=90, **above)
    return max(totals)


def _cross(axes: Axes, x: float, item: Outcome, colour: str) -> None:
    where = axes.get_xaxis_transform()
    axes.text(x, 0.02, "×", transform=where, ha="center", va="bottom", color=colour, fontsize=13, fontweight="bold")
    if item.note:
        axes.text(x, 0.12, item.note, transform=where, ha="center", va="bottom", fontsize=8, rotation=90)


def _shade(colour: str, share: float) -> tuple[float, float, float]:
    red, green, blue = (share * part + 1 - share for part in to_rgb(colour))
    return red, green, blue
