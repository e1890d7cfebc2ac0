"""What each method gains at the end, over FedAvg and over uniform exchange, seed by seed (ours)."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures import steps
from cfcl.study.figures.figure import StudyFigure
from cfcl.study.measures import Interval

WIDTH = 5.6
"""Inches of one of the two columns."""
LINE = 0.3
"""Inches of one method."""


def gain(mine: Mapping[int, Measured], theirs: Mapping[int, Measured]) -> Interval | None:
    """What one method ends above another, over the seeds that both have."""
    levels = [{seed: measures.final(run) for seed, run in side.items()} for side in (mine, theirs)]
    return measures.paired(*levels)


def draw(study: Study, name: str) -> Figure | None:
    """A row per panel; a line per method with its mean difference and interval. Both columns have the same axis."""
    found = {panel: _gains(study, name, panel) for panel in study.panels(name)}
    found = {panel: rows for panel, rows in found.items() if rows}
    if not found:
        return None
    heights = [len(rows) for rows in found.values()]
    figure = Figure(figsize=(2 * WIDTH, LINE * sum(heights) + 1.0 * len(heights)))
    grid = figure.subplots(len(found), 2, squeeze=False, sharex="row", sharey="row", height_ratios=heights)
    looks = layout.looks(study.methods(name))
    for row, (panel, rows) in zip(grid, found.items(), strict=True):
        for axes, other, place in zip(row, ("FedAvg", "uniform exchange"), (0, 1), strict=True):
            _dots(axes, {method: pair[place] for method, pair in rows.items()}, looks)
            counts = [len(pair[place].values) for pair in rows.values() if pair[place]]  # type: ignore[union-attr]
            layout.title(axes, f"{panel}: points over {other}", layout.surroundings(counts, "bars"))
    return figure


def _gains(study: Study, name: str, panel: str) -> dict[str, tuple[Interval | None, Interval | None]]:
    """By method: over FedAvg, and over uniform exchange of its mode."""
    runs = {method: study.find(name, panel, method) for method in study.methods(name)}
    found = {}
    for method, mine in runs.items():
        mode = parse(method).mode
        others = runs.get("fedavg", {}), runs.get(f"uniform-{mode}", {})
        pair = tuple(None if other is mine else gain(mine, other) for other in others)
        if any(pair):
            found[method] = (pair[0], pair[1])
    return found


def _dots(axes: Axes, found: Mapping[str, Interval | None], looks: Mapping[str, style.Look]) -> None:
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    for place, (method, value) in enumerate(found.items()):
        if value is None:
            continue
        look = looks[method]
        if len(value.values) > 1:
            axes.hlines(place, value.low, value.high, color=look.colour, linewidth=1.6)
        axes.plot([value.mean], [place], **(look.options | {"linestyle": "", "markersize": 6.0}))
        axes.annotate(f"{value.mean:+.1f}", (value.mean, place), xytext=(0, 5), textcoords="offset points", ha="center",
                      fontsize=8)  # fmt: skip
    _named(axes, list(found))


def _named(axes: Axes, found: Sequence[str]) -> None:
    modes = {parse(method).mode for method in found}
    several = len(modes - {""}) > 1
    words = [f"{parse(method).title}, {parse(method).mode}" if several else parse(method).title for method in found]
    axes.set_yticks(range(len(found)), words)
    axes.set_ylim(len(found) - 0.4, -0.8)
    axes.grid(axis="y", visible=False)


FIGURE = StudyFigure(
    name="gains",
    title="What each method gains",
    reading="Final accuracy, as differences within a seed: how far each method ends above FedAvg, and above uniform "
    "exchange of the same mode. Bars are 95 % intervals of the mean; one that does not touch zero is a difference.",
    entries=steps.entries,
    draw=draw,
    table=lambda study, name: tables.compared(study, name, columns=(*tables.ACCURACIES, *tables.BESIDE[1:])),
    whiskers="Bars",
    group="differences",
)
