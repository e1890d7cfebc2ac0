"""Where selection matters: final accuracies and paired differences to uniform, one setting changed at a time."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.runs import style
from cfcl.study import panels, regime
from cfcl.study.bundle import Record, Study, Value
from cfcl.study.measures import Interval

REFERENCES = ("fedavg", "uniform")
"""Methods that may be left as they are by a change in the selection of others: then `base` has their runs."""
_APART = (*REFERENCES, "centralised")
"""Methods whose difference to uniform says nothing about selection."""
_ROW = 0.36
"""Inches of a variation."""


@dataclass(frozen=True)
class _Block:
    """The variations of one dataset and mode."""

    panel: str
    mode: str
    variations: list[Value]


def variations(study: Study) -> Figure | None:
    """A row a variation: final accuracies at the left, differences to uniform with their intervals at the right."""
    blocks = _blocks(study)
    if not blocks:
        return None
    heights = [1.1 + _ROW * len(block.variations) for block in blocks]
    looks = panels.looks(panels.methods(study, "regime"))
    figure, rows = panels.grid(
        len(blocks), 2, height=sum(heights) / len(heights), height_ratios=heights, width_ratios=[3, 2]
    )
    drawn: set[str] = set()
    for (left, right), block in zip(rows, blocks, strict=True):
        drawn |= _accuracies(left, study, block, looks)
        _differences(right, study, block, looks)
    panels.legend(figure, panels.keys(drawn, looks, dots=True))
    return figure if drawn else None


def runs(study: Study, panel: str, method: str, variation: Value) -> tuple[dict[int, Record], bool]:
    """The runs of a method under a variation, and whether they are those of `base`, as it was not to run again."""
    planned = {
        cell.settings.get("variation")
        for cell in study.cells
        if (cell.figure, cell.panel, cell.method) == ("regime", panel, method)
    }
    kept = variation not in planned and panels.family(method) in REFERENCES and regime.leaves(variation, method)
    return study.find("regime", panel, method, variation=regime.BASE if kept else variation), kept


def _blocks(study: Study) -> list[_Block]:
    found = []
    for panel in study.panels("regime"):
        for mode in panels.modes(study, "regime"):
            there = {
                cell.settings.get("variation")
                for cell in study.cells
                if (cell.figure, cell.panel, panels.mode_of(cell.method)) == ("regime", panel, mode)
            }
            found.append(_Block(panel, mode, [v for v in panels.values(study, "regime", "variation") if v in there]))
    return [block for block in found if block.variations]


def _accuracies(axes: Axes, study: Study, block: _Block, looks: Mapping[str, style.Look]) -> set[str]:
    """Draw final accuracies; the methods that have some."""
    found: dict[str, dict[int, Interval]] = {}
    kept: set[tuple[str, int]] = set()
    for method in panels.methods(study, "regime", block.mode):
        for row, variation in enumerate(block.variations):
            known, borrowed = runs(study, block.panel, method, variation)
            point = panels.at(known, panels.final)
            if point is not None:
                found.setdefault(method, {})[row] = point
                kept |= {(method, row)} if borrowed else set()
    for place, (method, points) in enumerate(found.items()):
        for row, point in points.items():
            where = row + 0.6 * ((place + 0.5) / len(found) - 0.5)
            pale = 0.35 if (method, row) in kept else 1.0
            axes.plot([point.mean], [where], **looks[method].options | {"linestyle": "", "alpha": pale})
    counts = [len(point.values) for points in found.values() for point in points.values()]
    panels.title(axes, f"{block.panel}, {block.mode}", panels.seeds(counts))
    axes.set_xlabel("final accuracy (%)")
    _rows(axes, [textwrap.fill(str(item), 26) for item in block.variations])
    return set(found)


def _differences(axes: Axes, study: Study, block: _Block, looks: Mapping[str, style.Look]) -> None:
    found: dict[str, dict[int, Interval]] = {}
    methods = [item for item in panels.methods(study, "regime", block.mode) if panels.family(item) not in _APART]
    for method in methods:
        for row, variation in enumerate(block.variations):
            point = _difference(study, block, method, variation)
            if point is not None:
                found.setdefault(method, {})[row] = point
    for place, (method, points) in enumerate(found.items()):
        where = [row + 0.6 * ((place + 0.5) / len(found) - 0.5) for row in points]
        low, high = [point.low for point in points.values()], [point.high for point in points.values()]
        axes.hlines(where, low, high, color=looks[method].colour, linewidth=1.3)
        means = [point.mean for point in points.values()]
        axes.plot(means, where, **looks[method].options | {"linestyle": ""})
    axes.axvline(0, color=style.BLACK, linewidth=0.8)
    counts = [len(point.values) for points in found.values() for point in points.values()]
    panels.title(axes, "against uniform", panels.surroundings(counts, "bars") if counts else "")
    axes.set_xlabel("paired difference (points)")
    _rows(axes, [""] * len(block.variations))


def _difference(study: Study, block: _Block, method: str, variation: Value) -> Interval | None:
    mine, theirs = (
        {seed: panels.final(run) for seed, run in runs(study, block.panel, name, variation)[0].items()}
        for name in (method, f"uniform-{block.mode}")
    )
    return panels.spread([mine[seed] - theirs[seed] for seed in mine if seed in theirs])


def _rows(axes: Axes, names: list[str]) -> None:
    """Rows for dots, apart by fine lines, the first on top."""
    for line in range(1, len(names)):
        axes.axhline(line - 0.5, color="#DDDDDD", linewidth=0.6)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
