"""Bytes and seconds that it takes to reach accuracies (Fig. 6)."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from cfcl.methods import ordered, parse
from cfcl.runs import style
from cfcl.runs.progress import size
from cfcl.study import layout
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures.figure import METHODS, StudyFigure, plain
from cfcl.study.measures import Cost, Reached, reach
from cfcl.study.tables import Table

BYTES: dict[str, Cost] = {
    "pushed": lambda found: found.push,
    "pulled": lambda found: found.pull,
    "uplink": lambda found: found.up,
}
SECONDS: dict[str, Cost] = {"delay": lambda found: found.delay}
_SHADES = {"pushed": 1.0, "pulled": 0.6, "uplink": 0.25, "delay": 0.8}
"""How much of a method's colour is in a part of its bar; the rest is white."""
_ORDERS = 100.0
"""Bars that differ by more are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Toll:
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

    def mean(self, part: Cost) -> float:
        """Over the seeds that reached it."""
        return statistics.fmean(part(found) for found in self.reached)


def toll(runs: Iterable[Measured], accuracy: float) -> Toll:
    """What it took `runs` to reach `accuracy`."""
    found = [reach(run, accuracy) for run in runs]
    return Toll(tuple(item for item in found if item is not None), len(found))


def draw(study: Study, name: str) -> Figure | None:
    """Bytes and seconds to each milestone: a row per dataset and mode; a cross where most seeds never reached it."""
    places = [
        (panel, mode) for panel in study.panels(name) for mode in study.modes(name) if study.milestones(panel, mode)
    ]
    found = {place: _tolls(study, name, *place) for place in places}
    methods = ordered(method for tolls in found.values() for method in tolls)
    if not methods:
        return None
    looks = layout.looks(methods)
    figure, rows = layout.grid(len(places), 2)
    for row, (panel, mode) in zip(rows, places, strict=True):
        for axes, parts, unit in zip(row, (BYTES, SECONDS), ("B", "s"), strict=True):
            tolls = found[panel, mode]
            layout.title(axes, f"{panel}, {mode}", layout.seeds(items[0].seeds for items in tolls.values()))
            if not tolls:
                layout.blank(axes, "no finished run")
                continue
            goals = study.milestones(panel, mode)
            _bars(axes, tolls, {method: looks[method].colour for method in tolls}, parts)
            axes.set_xticks(range(len(goals)), [f"{100 * goal:g}" for goal in goals])
            axes.set(xlabel="probe accuracy to reach (%)", ylabel="bytes" if unit == "B" else "seconds")
            axes.yaxis.set_major_formatter(EngFormatter(unit=unit))
    kinds = [Patch(color=looks[method].colour, label=parse(method).title) for method in methods]
    shades = [Patch(facecolor=_shade(style.GREY, _SHADES[part]), edgecolor=style.GREY, label=part) for part in BYTES]
    layout.legend(figure, [*kinds, *shades])
    return figure


def _tolls(study: Study, name: str, panel: str, mode: str) -> dict[str, list[Toll]]:
    """By method, what each milestone took; without yardsticks, and without methods that have no run."""
    known = {
        method: study.find(name, panel, method) for method in study.methods(name, mode) if not parse(method).yardstick
    }
    found = {
        method: [toll(runs.values(), goal) for goal in study.milestones(panel, mode)]
        for method, runs in layout.alike(known).items()
    }
    return {method: items for method, items in found.items() if items[0].seeds}


def _bars(axes: Axes, found: dict[str, list[Toll]], colours: dict[str, str], parts: dict[str, Cost]) -> None:
    """A group of bars per milestone, a bar per method, its parts on top of each other."""
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


def _bar(axes: Axes, x: float, width: float, item: Toll, colour: str, parts: dict[str, Cost]) -> float:
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


def _cross(axes: Axes, x: float, item: Toll, colour: str) -> None:
    where = axes.get_xaxis_transform()
    axes.text(x, 0.02, "×", transform=where, ha="center", va="bottom", color=colour, fontsize=13, fontweight="bold")
    if item.note:
        axes.text(x, 0.12, item.note, transform=where, ha="center", va="bottom", fontsize=8, rotation=90)


def _shade(colour: str, share: float) -> tuple[float, float, float]:
    red, green, blue = (share * part + 1 - share for part in to_rgb(colour))
    return red, green, blue


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
        return [reached, *["×" if found.seeds else "–"] * 5]
    parts = [size(found.mean(part)) for part in BYTES.values()]
    return [reached, f"{found.mean(lambda item: item.steps):.0f}", *parts, f"{found.mean(lambda item: item.delay):.1f}"]


FIGURE = StudyFigure(
    name="fig6",
    title="Fig. 6: bytes and seconds to an accuracy",
    reading="What all devices had sent, and the seconds of the delay model and of selection, when the probe first "
    "reached an accuracy; lower is better. A pilot seed, shown nowhere, has set the accuracies. Bars are means over "
    "the seeds that got there, thin lines span these seeds; k/n says that k of n got there, a cross that fewer than "
    "half did. Shades tell apart what was pushed and pulled between devices and what went up to the server.",
    entries=lambda profile, panel: plain(*(panel.methods or METHODS)),
    draw=draw,
    table=table,
    piloted=True,
)
