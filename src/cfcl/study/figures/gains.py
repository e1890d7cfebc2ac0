"""What each method gains at the end, over FedAvg and over uniform exchange, seed by seed (ours)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, names, tables
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures import steps
from cfcl.study.figures.figure import StudyFigure
from cfcl.study.measures import Interval, Measure

WIDTH = 4.8
"""Inches of one of the two columns."""
LINE = 0.25
"""Inches of one method."""
HEAD = 0.95
"""Inches of titles and an axis."""
HERO = ("usps-common", "usps")
"""The panels of the picture that stands for the study."""
HERO_WIDTH, HERO_DPI = 3.9, 200
"""Inches of its columns, so that a page's column of 830 pixels does not make its words small, and its sharpness."""


def gain(
    mine: Mapping[int, Measured], theirs: Mapping[int, Measured], measure: Measure = measures.final
) -> Interval | None:
    """What one method has more than another, as a figure shows it, over the seeds that both have."""
    return layout.spread([measure(mine[seed]) - measure(theirs[seed]) for seed in sorted(mine) if seed in theirs])


def draw(study: Study, name: str) -> Figure | None:
    """A row per panel; a line per method with its mean difference and interval."""
    return _drawn(study, name, study.panels(name), WIDTH)


@style.styled
def hero(study: Study) -> Figure | None:
    """The picture that stands for the study; None where its panels have not run."""
    there = study.panels(FIGURE.name)
    figure = _drawn(study, FIGURE.name, [panel for panel in HERO if panel in there], HERO_WIDTH)
    if figure is not None:
        figure.set_dpi(HERO_DPI)
    return figure


def _drawn(study: Study, name: str, panels: Iterable[str], width: float) -> Figure | None:
    """Both columns of a row have the same axis."""
    found = {panel: rows for panel in panels if (rows := _gains(study, name, panel))}
    if not found:
        return None
    heights = [len(rows) for rows in found.values()]
    figure = Figure(figsize=(2 * width, LINE * sum(heights) + HEAD * len(heights)))
    grid = figure.subplots(len(found), 2, squeeze=False, sharex="row", sharey="row", height_ratios=heights)
    looks = layout.looks(study.methods(name))
    for row, (panel, rows) in zip(grid, found.items(), strict=True):
        numbers: list[int] = []
        for axes, other, place in zip(row, ("FedAvg", "uniform exchange"), (0, 1), strict=True):
            values = {method: pair[place] for method, pair in rows.items()}
            _dots(axes, values, looks)
            axes.set_title(f"points over {other}")
            counts = [len(value.values) for value in values.values() if value]
            numbers += counts
            if not counts:
                place_of = {"transform": axes.transAxes, "ha": "center", "va": "center"}
                axes.text(0.5, 0.5, f"no run of {other} here", color=style.GREY, **place_of)
        _headed(row, names.of(panel), layout.surroundings(numbers, "bars"))
        low, high = row[0].get_xlim()
        row[0].set_xlim(low, high + 0.15 * (high - low))  # for the numbers at the ends
        row[0].xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10]))
    return figure


def _headed(row: Sequence[Axes], text: str, note: str) -> None:
    """Put a heading over the titles of a row, and in small print how sure it is; the first title makes room for it."""
    row[0].set_title("\n" + row[0].get_title("left"))
    over: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    head = row[0].annotate(text, (0, 1), xytext=(0, 20), fontsize=10.5, fontweight="bold", **over)
    small = row[-1].annotate(note, (1, 1), xytext=(0, 20), ha="right", fontsize=8, color=style.GREY, **over)
    for words in (head, small):
        words.set_in_layout(False)  # they may be wider than their panels


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
        end = value.high if len(value.values) > 1 else value.mean
        number = f"{value.mean:+z.1f}".replace("-", "\N{MINUS SIGN}")
        axes.annotate(number, (end, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5,
                      color=look.colour)  # fmt: skip
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
