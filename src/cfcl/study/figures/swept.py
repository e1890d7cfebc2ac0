"""Accuracies over a swept setting (Figs. 8 to 11)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Study, Value
from cfcl.study.figures.figure import CFCL, METHODS, UNIFORM, Entry, StudyFigure
from cfcl.study.measures import Interval, Measure
from cfcl.study.profiles import Group, Panel, Profile

MEASURES: dict[str, Measure] = {"final accuracy (%)": measures.final, "mean accuracy (%)": measures.area}


@dataclass(frozen=True)
class Swept:
    """What such a figure sweeps."""

    key: str
    """The figure's name for it."""
    field: str
    """The config's."""
    values: Callable[[Profile], Sequence[Value]]
    title: str
    """The name of an axis, or with a gap for the value, of a line."""


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


def draw(study: Study, name: str, *, along: Swept, apart: Swept | None) -> Figure | None:
    """Accuracies over a setting: a column per mode, and per dataset a row of final and one of mean accuracies."""
    modes, lines, ticks = study.modes(name), _lines(study, name, apart), study.values(name, along.key)
    rows = [(panel, title) for panel in study.panels(name) for title in MEASURES]
    figure, grid = layout.grid(len(rows), len(modes))
    drawn: dict[str, Line2D] = {}
    for row, (panel, title) in zip(grid, rows, strict=True):
        for axes, mode in zip(row, modes, strict=True):
            counts: list[int] = []
            known = {
                (line.label, place): study.find(name, panel, method, **{along.key: value}, **line.settings)
                for line in lines
                if (method := line.methods.get(mode) or line.methods.get(""))
                for place, value in enumerate(ticks)
            }
            shown = {key: layout.at(runs, MEASURES[title]) for key, runs in layout.alike(known).items()}
            for number, line in enumerate(lines):
                points = {place: point for (label, place), point in shown.items() if label == line.label and point}
                if points:
                    drawn[line.label] = _marks(axes, points, line, 0.05 * (number - (len(lines) - 1) / 2))
                    counts += [len(point.values) for point in points.values()]
            layout.frame(axes, f"{panel}, {mode}", counts, "bars")
            if counts:
                axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
                axes.set(xlabel=along.title, ylabel=title, xlim=(-0.4, len(ticks) - 0.6))
    layout.legend(figure, [drawn[line.label] for line in lines if line.label in drawn])
    return figure if drawn else None


def _lines(study: Study, name: str, apart: Swept | None) -> list[_Line]:
    """A line per policy, and within it per value of the setting that tells lines apart."""
    looks = layout.looks(study.methods(name))
    kinds: dict[str, dict[str, str]] = {}
    for method in looks:
        kinds.setdefault(parse(method).policy, {})[parse(method).mode] = method
    if apart is None:
        return [_Line(parse(kind).title, looks[next(iter(found.values()))], found, {}) for kind, found in kinds.items()]
    found = [(kind, value) for kind in kinds for value in study.values(name, apart.key)]
    return [
        _Line(
            label=("" if len(kinds) == 1 else f"{parse(kind).title}, ") + apart.title.format(_WORDS.get(value, value)),
            look=_LOOKS[place % len(_LOOKS)],
            methods=kinds[kind],
            settings={apart.key: value},
        )
        for place, (kind, value) in enumerate(found)
    ]


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


def _entries(profile: Profile, panel: Panel, *, along: Swept, apart: Swept | None, few: bool) -> list[Entry]:
    """CF-CL under every pair of settings; all methods, or a `few`, where there is one setting only."""
    every = ("fedavg", *CFCL, *UNIFORM) if few or profile.reduced else panel.methods or METHODS
    if apart is None:
        pairs = [{along: value} for value in along.values(profile)]
    else:
        pairs = [{apart: kind, along: value} for value in along.values(profile) for kind in apart.values(profile)]
    return [
        Entry(
            method,
            {swept.key: value for swept, value in pair.items()},
            [f"{swept.field}={value}" for swept, value in pair.items() if _acts(swept, method)],
        )
        for pair in pairs
        for method in ((*CFCL, *_beside(profile, pair)) if apart else every)
    ]


def _acts(swept: Swept, method: str) -> bool:
    """Whether a setting changes a method: what does not is one run."""
    return method != "fedavg" or not swept.field.startswith("exchange.")


def _beside(profile: Profile, pair: Mapping[Swept, Value]) -> tuple[str, ...]:
    """Methods that CF-CL is compared with where a figure of the paper has it alone; blind ones need no local scores."""
    if not profile.placed or any(swept.key == "reserve" or value == "local" for swept, value in pair.items()):
        return ()
    return ("fedavg", *UNIFORM)


def _figure(
    name: str,
    title: str,
    reading: str,
    along: Swept,
    apart: Swept | None = None,
    contrast: tuple[str, Value | None] | None = None,
    group: Group = "swept",
) -> StudyFigure:
    return StudyFigure(
        name=name,
        title=title,
        reading=f"Final and mean accuracy {reading}",
        entries=partial(_entries, along=along, apart=apart, few=group != "swept"),
        draw=partial(draw, along=along, apart=apart),
        table=partial(tables.compared, contrast=contrast),
        whiskers="Bars",
        group=group,
    )


FIGURES = (
    _figure(
        "fig8",
        "Fig. 8: devices in an aggregation",
        "over the number of devices that take part in an aggregation; higher is better.",
        Swept("devices", "aggregation.num_devices", lambda profile: profile.devices, "devices in an aggregation"),
    ),
    _figure(
        "fig9",
        "Fig. 9: choice and size of the reserve",
        "of CF-CL over the size of the reserve, its points chosen by K-means or at random.",
        Swept("size", "exchange.num_reserve", lambda profile: profile.sizes, "points in a reserve"),
        Swept("reserve", "exchange.reserve", lambda profile: ("kmeans", "random"), "{} reserve"),
        contrast=("reserve", "random"),
    ),
    _figure(
        "fig10",
        "Fig. 10: the model that scores candidates",
        "of CF-CL over the steps between aggregations, with candidates scored by the last global model or by the "
        "transmitter's own.",
        Swept("period", "aggregation.period", lambda profile: profile.periods, "steps between aggregations"),
        Swept(
            "importance",
            "exchange.importance_model",
            lambda profile: ("global", "local"),
            "importance by the {} model",
        ),
        contrast=("importance", "local"),
    ),
    _figure(
        "fig11",
        "Fig. 11: labels per device, and neighbours",
        "of CF-CL over the number of labels that a device has, with few and with many neighbours.",
        Swept("labels", "partition.labels_per_device", lambda profile: profile.labels, "labels per device"),
        Swept("degree", "graph.degree", lambda profile: profile.degrees, "{} neighbours on average"),
        contrast=("degree", None),
    ),
)

EXCHANGES = _figure(
    "exchanges",
    "How often devices exchange",
    "over the steps between exchanges.",
    Swept("every", "exchange.period", lambda profile: profile.exchanges, "steps between exchanges"),
    group="frequency",
)
