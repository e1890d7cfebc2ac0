"""Where selection matters: final accuracies and paired differences to uniform, one setting changed at a time."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Measured, Study, Value
from cfcl.study.figures import variations
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.measures import Interval
from cfcl.study.tables import ACCURACIES, Column, Key, Place

_LEFT = ("fedavg", "uniform")
"""Policies that may be left as they are by a change in the selection of others: then `base` has their runs."""
_ROW = 0.36
"""Inches of a variation."""


@dataclass(frozen=True)
class _Block:
    """The variations of one dataset and mode."""

    panel: str
    mode: str
    variations: list[Value]
    methods: list[str]
    places: Mapping[Key, Place]

    def runs(self, method: str, variation: Value) -> tuple[dict[int, Measured], bool]:
        """The runs of a method, and whether they are those of the base, as it was not to run again."""
        key: Key = (self.panel, (("variation", variation),), method)
        found = tables.find(self.places, key, _base)
        return (found.runs if found else {}), key not in self.places

    def points(self, value: Callable[[str, Value], Interval | None]) -> dict[str, dict[int, Interval]]:
        """What there is to draw, by method and row."""
        found = {
            method: {row: point for row, name in enumerate(self.variations) if (point := value(method, name))}
            for method in self.methods
        }
        return {method: points for method, points in found.items() if points}

    def final(self, method: str, variation: Value) -> Interval | None:
        """Final accuracy."""
        return layout.at(self.runs(method, variation)[0], measures.final)

    def over_uniform(self, method: str, variation: Value) -> Interval | None:
        """The paired difference in final accuracy; None for what says nothing about selection."""
        mine, theirs = self.runs(method, variation)[0], self.runs(f"uniform-{self.mode}", variation)[0]
        pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
        compared = parse(method).policy not in (*_LEFT, "centralised")
        return layout.spread([measures.final(one) - measures.final(other) for one, other in pairs if compared])


def draw(study: Study, name: str) -> Figure | None:
    """A row per variation: final accuracies at the left, differences to uniform with their intervals at the right."""
    blocks = _blocks(study, name)
    if not blocks:
        return None
    heights = [1.1 + _ROW * len(block.variations) for block in blocks]
    looks = layout.looks(study.methods(name))
    figure, rows = layout.grid(
        len(blocks), 2, height=sum(heights) / len(heights), height_ratios=heights, width_ratios=[3, 2]
    )
    drawn: set[str] = set()
    for (left, right), block in zip(rows, blocks, strict=True):
        drawn |= _accuracies(left, block, looks)
        _differences(right, block, looks)
    layout.legend(figure, layout.keys(drawn, looks))
    return figure if drawn else None


def _blocks(study: Study, name: str) -> list[_Block]:
    places = tables.places(study, name)
    found = []
    for panel in study.panels(name):
        for mode in study.modes(name):
            there = {dict(key[1])["variation"] for key in places if key[0] == panel and parse(key[2]).mode == mode}
            shown = [value for value in study.values(name, "variation") if value in there]
            found.append(_Block(panel, mode, shown, study.methods(name, mode), places))
    return [block for block in found if block.variations]


def _accuracies(axes: Axes, block: _Block, looks: Mapping[str, style.Look]) -> set[str]:
    """Draw final accuracies; the methods that have some."""
    found = block.points(block.final)
    for place, (method, points) in enumerate(found.items()):
        for row, point in points.items():
            pale = 0.35 if block.runs(method, block.variations[row])[1] else 1.0
            options = looks[method].options | {"linestyle": "", "alpha": pale}
            axes.plot([point.mean], [_height(row, place, len(found))], **options)
    counts = [len(point.values) for points in found.values() for point in points.values()]
    layout.title(axes, f"{block.panel}, {block.mode}", layout.seeds(counts))
    axes.set_xlabel("final accuracy (%)")
    _rows(axes, [textwrap.fill(str(item), 26) for item in block.variations])
    return set(found)


def _differences(axes: Axes, block: _Block, looks: Mapping[str, style.Look]) -> None:
    found = block.points(block.over_uniform)
    for place, (method, points) in enumerate(found.items()):
        where = [_height(row, place, len(found)) for row in points]
        low, high = [point.low for point in points.values()], [point.high for point in points.values()]
        axes.hlines(where, low, high, color=looks[method].colour, linewidth=1.3)
        means = [point.mean for point in points.values()]
        axes.plot(means, where, **looks[method].options | {"linestyle": ""})
    axes.axvline(0, color=style.BLACK, linewidth=0.8)
    counts = [len(point.values) for points in found.values() for point in points.values()]
    layout.title(axes, "against uniform", layout.surroundings(counts, "bars") if counts else "")
    axes.set_xlabel("paired difference (points)")
    _rows(axes, [""] * len(block.variations))


def _height(row: int, place: int, total: int) -> float:
    """Where the dot of one method stands among all in a row."""
    return row + 0.6 * ((place + 0.5) / total - 0.5)


def _rows(axes: Axes, names: list[str]) -> None:
    """Rows for dots, apart by fine lines, the first on top."""
    for line in range(1, len(names)):
        axes.axhline(line - 0.5, color="#DDDDDD", linewidth=0.6)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


_COLUMNS = (
    *ACCURACIES,
    Column("Candidates", lambda run: run.effective_candidates, digits=0, compared=False),
    Column("Held (%)", lambda run: _percent(run.held_labels), digits=1, compared=False),
    Column("False negatives (%)", lambda run: _percent(run.false_negatives), digits=1, compared=False),
    Column("Active (%)", lambda run: _percent(run.active), digits=1, compared=False),
)
"""Accuracies, what was pulled, and how many triplets had a loss."""


def _base(key: Key) -> Key | None:
    """The place in the base of what a variation did not run again."""
    panel, settings, method = key
    if parse(method).policy not in _LEFT or not variations.leaves(dict(settings).get("variation"), method):
        return None
    return panel, (("variation", variations.BASE),), method


FIGURE = StudyFigure(
    name="regime",
    title="Where selection matters",
    reading="One setting changed at a time, the same for every method. Left: final accuracy; what is pale is of the "
    "base, as the change does not touch that method. Right: paired difference to uniform, positive where selection "
    "helps. In the table, Candidates is their effective number, Held the share of pulled items whose label the "
    "receiver has already, False negatives how likely a pulled item has the label of a given point of its receiver "
    "(were those evenly spread over labels), and Active the share of triplets with a loss.",
    entries=lambda profile, panel: [
        Entry(method, {"variation": change.name}, variations.overrides(change, method))
        for change in variations.VARIATIONS
        for method in change.methods
    ],
    draw=draw,
    table=partial(tables.compared, columns=_COLUMNS, stand_in=_base),
    whiskers="Bars at the right",
    group="swept",
    apart=True,
)
