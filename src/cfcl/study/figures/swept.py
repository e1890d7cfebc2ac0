"""Accuracies over a swept setting (Figs. 8 to 11)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfcl.methods import MODES, parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Record, Study, Value
from cfcl.study.figures.figure import CFCL, METHODS, Entry, StudyFigure
from cfcl.study.measures import Interval, Measure
from cfcl.study.profiles import Profile

MEASURES: dict[str, Measure] = {"final accuracy (%)": measures.final, "mean accuracy (%)": measures.area}


@dataclass(frozen=True)
class Axis:
    """What such a figure has along its axis, and what tells its lines apart."""

    key: str
    """The setting along the axis."""
    title: str
    """Its name for people."""
    lines: str = ""
    """The setting that tells lines apart; without one, methods do."""
    label: str = ""
    """What a legend says of a line."""


_WORDS: Mapping[Value, str] = {"kmeans": "K-means"}
_LOOKS = (
    style.Look(style.BLUE, "-", "s"),
    style.Look(style.VERMILLION, (0.0, (5.0, 1.5)), "^"),
    style.Look(style.GREEN, (0.0, (2.0, 1.2)), "P"),
    style.Look("#A8457A", (0.0, (8.0, 2.0, 2.0, 2.0)), "<"),
)


@dataclass(frozen=True)
class _Line:
    """One line, in all its panels."""

    label: str
    look: style.Look
    methods: Mapping[str, str]
    """By mode."""
    settings: Mapping[str, Value]


def draw(study: Study, name: str, *, axis: Axis) -> Figure | None:
    """Accuracies over a setting: a column per mode, and per dataset a row of final and one of mean accuracies."""
    modes, lines = study.modes(name), _lines(study, name, axis)
    rows = [(panel, title) for panel in study.panels(name) for title in MEASURES]
    figure, grid = layout.grid(len(rows), len(modes))
    drawn: dict[str, Line2D] = {}
    for row, (panel, title) in zip(grid, rows, strict=True):
        for axes, mode in zip(row, modes, strict=True):
            counts: list[int] = []
            known = {
                (number, place): runs
                for number, line in enumerate(lines)
                for place, runs in _along(study, name, axis.key, panel, mode, line).items()
            }
            shown = layout.alike(known)
            for place, line in enumerate(lines):
                points = _points(shown, place, MEASURES[title])
                if points:
                    shift = 0.05 * (place - (len(lines) - 1) / 2)
                    drawn[line.label] = _marks(axes, points, line, shift)
                    counts += [len(point.values) for point in points.values()]
            layout.frame(axes, f"{panel}, {mode}", counts, "bars")
            if counts:
                ticks = study.values(name, axis.key)
                axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
                axes.set(xlabel=axis.title, ylabel=title, xlim=(-0.4, len(ticks) - 0.6))
    layout.legend(figure, [drawn[line.label] for line in lines if line.label in drawn])
    return figure if drawn else None


def _lines(study: Study, name: str, axis: Axis) -> list[_Line]:
    """A line for each kind of method, and within it for each value of the setting that tells lines apart."""
    methods = study.methods(name)
    kinds: dict[str, dict[str, str]] = {}
    for method in methods:
        kinds.setdefault(parse(method).policy, {})[parse(method).mode] = method
    key, label = axis.lines, axis.label
    if not key:
        looks = layout.looks(methods)
        known = {kind: next(iter(found.values())) for kind, found in kinds.items()}
        return [_Line(parse(known[kind]).title, looks[known[kind]], kinds[kind], {}) for kind in kinds]
    found = [(kind, value) for kind in kinds for value in study.values(name, key)]
    return [
        _Line(
            label=("" if len(kinds) == 1 else f"{parse(kind).title}, ") + label.format(_WORDS.get(value, value)),
            look=_LOOKS[place % len(_LOOKS)],
            methods=kinds[kind],
            settings={key: value},
        )
        for place, (kind, value) in enumerate(found)
    ]


def _along(study: Study, name: str, key: str, panel: str, mode: str, line: _Line) -> dict[int, dict[int, Record]]:
    """The runs behind a line, by the place of the swept value."""
    method = line.methods.get(mode) or line.methods.get("")
    if method is None:
        return {}
    return {
        place: study.find(name, panel, method, **{key: value}, **line.settings)
        for place, value in enumerate(study.values(name, key))
    }


def _points(shown: Mapping[tuple[int, int], Mapping[int, Record]], line: int, measure: Measure) -> dict[int, Interval]:
    """What a line is made of, by the place of the swept value."""
    found = {place: layout.at(runs, measure) for (number, place), runs in shown.items() if number == line}
    return {place: point for place, point in found.items() if point is not None}


def _marks(axes: Axes, points: Mapping[int, Interval], line: _Line, shift: float) -> Line2D:
    """Means joined by a line, each with its interval; lines stand a little apart, so that intervals can be seen."""
    where = [place + shift for place in points]
    method = next(iter(line.methods.values()))
    (drawn,) = axes.plot(
        where, [point.mean for point in points.values()], label=line.label, **layout.curve(method, line.look)
    )
    if not parse(method).yardstick:
        low, high = [point.low for point in points.values()], [point.high for point in points.values()]
        axes.vlines(where, low, high, color=line.look.colour, linewidth=1.0, alpha=0.7)
    return drawn


def _crossed(
    first: tuple[str, str], values: Sequence[Value], other: tuple[str, str], kinds: Sequence[Value]
) -> list[Entry]:
    """CF-CL under every pair of two settings, each given as the figure's name for it and the config's."""
    return [
        Entry(method, {other[0]: kind, first[0]: value}, [f"{other[1]}={kind}", f"{first[1]}={value}"])
        for value in values
        for kind in kinds
        for method in CFCL
    ]


def _devices(profile: Profile) -> list[Entry]:
    few = ("fedavg", *(f"{policy}-{mode}" for mode in MODES for policy in ("cfcl", "uniform")))
    return [
        Entry(method, {"devices": number}, [f"aggregation.num_devices={number}"])
        for number in profile.devices
        for method in (few if profile.reduced else METHODS)
    ]


FIGURES = (
    StudyFigure(
        name="fig8",
        title="Fig. 8: devices in an aggregation",
        reading="Final and mean accuracy over the number of devices that take part in an aggregation; higher is "
        "better.",
        entries=_devices,
        draw=partial(draw, axis=Axis("devices", "devices in an aggregation")),
        table=tables.compared,
        whiskers="Bars",
        swept=True,
    ),
    StudyFigure(
        name="fig9",
        title="Fig. 9: choice and size of the reserve",
        reading="Final and mean accuracy of CF-CL over the size of the reserve, its points chosen by K-means or at "
        "random.",
        entries=lambda profile: _crossed(
            ("size", "exchange.num_reserve"), profile.sizes, ("reserve", "exchange.reserve"), ("kmeans", "random")
        ),
        draw=partial(draw, axis=Axis("size", "points in a reserve", "reserve", "{} reserve")),
        table=partial(tables.compared, contrast=("reserve", "random")),
        whiskers="Bars",
        swept=True,
    ),
    StudyFigure(
        name="fig10",
        title="Fig. 10: the model that scores candidates",
        reading="Final and mean accuracy of CF-CL over the steps between aggregations, with candidates scored by the "
        "last global model or by the transmitter's own.",
        entries=lambda profile: _crossed(
            ("period", "aggregation.period"),
            profile.periods,
            ("importance", "exchange.importance_model"),
            ("global", "local"),
        ),
        draw=partial(
            draw, axis=Axis("period", "steps between aggregations", "importance", "importance by the {} model")
        ),
        table=partial(tables.compared, contrast=("importance", "local")),
        whiskers="Bars",
        swept=True,
    ),
    StudyFigure(
        name="fig11",
        title="Fig. 11: labels per device, and neighbours",
        reading="Final and mean accuracy of CF-CL over the number of labels that a device has, with few and with many "
        "neighbours.",
        entries=lambda profile: _crossed(
            ("labels", "partition.labels_per_device"), profile.labels, ("degree", "graph.degree"), profile.degrees
        ),
        draw=partial(draw, axis=Axis("labels", "labels per device", "degree", "{} neighbours on average")),
        table=partial(tables.compared, contrast=("degree", None)),
        whiskers="Bars",
        swept=True,
    ),
)
