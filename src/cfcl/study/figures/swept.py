"""Accuracies over a swept setting (Figs. 8 to 11)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Study, Value
from cfcl.study.figures import beside
from cfcl.study.figures.figure import CFCL, METHODS, UNIFORM, Entry, StudyFigure
from cfcl.study.figures.gains import gain
from cfcl.study.measures import Interval
from cfcl.study.profiles import Group, Panel, Profile


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


Contrast = tuple[str, Value | None]
"""A setting, and the value that others are compared with; None is the smallest."""

_WORDS: Mapping[Value, str] = {"kmeans": "K-means"}
_LINES: tuple[style.Dash, ...] = ("-", (0.0, (4.0, 1.5)), (0.0, (1.5, 1.0)))
_COLOURS = (style.BLUE, style.VERMILLION, style.GREEN)


@dataclass(frozen=True)
class _Kind:
    """The runs of one line, in all panels."""

    label: str
    look: style.Look
    methods: Mapping[str, str]
    """By mode."""
    settings: Mapping[str, Value]


def draw(study: Study, name: str, *, along: Swept, apart: Swept | None, contrast: Contrast | None) -> Figure | None:
    """A row per dataset and mode: mean accuracies over a setting, and beside them differences to a reference."""
    rows = [(panel, mode) for panel in study.panels(name) for mode in study.modes(name)]
    kinds, ticks = _kinds(study, name, apart), study.values(name, along.key)
    base = _base(study, name, contrast)
    reference = "uniform exchange" if base is None else _words(apart, base[1])
    words = beside.Words("mean accuracy", reference, along.title, [str(tick) for tick in ticks])
    figure, grid = layout.grid(len(rows), 2, width=beside.WIDTH)
    drawn = []
    for (left, right), (panel, mode) in zip(grid, rows, strict=True):
        lines = _lines(study, name, panel, mode, kinds, along, base)
        if beside.draw(left, right, f"{panel}, {mode}", lines, words):
            drawn.append((left, right, lines))
    for left, right, lines in drawn:
        beside.name(left, right, lines)
    return figure if drawn else None


def _base(study: Study, name: str, contrast: Contrast | None) -> tuple[str, Value] | None:
    """The setting that lines are compared with; None: with uniform exchange, where the figure has it."""
    if contrast is None or any(parse(method).policy == "uniform" for method in study.methods(name)):
        return None
    key, value = contrast
    return key, (study.values(name, key)[0] if value is None else value)


def _kinds(study: Study, name: str, apart: Swept | None) -> list[_Kind]:
    """A line per policy, and within it per value of the setting that tells lines apart."""
    looks = layout.looks(study.methods(name))
    found: dict[str, dict[str, str]] = {}
    for method in looks:
        found.setdefault(parse(method).policy, {})[parse(method).mode] = method
    if apart is None:
        return [
            _Kind(parse(kind).title, looks[next(iter(methods.values()))], methods, {})
            for kind, methods in found.items()
        ]
    values = study.values(name, apart.key)
    ran = {(parse(cell.method).policy, cell.settings.get(apart.key)) for cell in study.cells if cell.figure == name}
    kinds = []
    for kind, methods in found.items():
        several = sum((kind, value) in ran for value in values) > 1
        for place, value in enumerate(values):
            look = replace(looks[next(iter(methods.values()))], line=_LINES[place % 3], hollow=place > 0)
            alone = replace(look, colour=_COLOURS[place % 3])
            # what runs under one value only, as blind choices do, needs no word for it
            beside_others = f"{parse(kind).title}, {_words(apart, value)}" if several else parse(kind).title
            label = _words(apart, value) if len(found) == 1 else beside_others
            if (kind, value) in ran:
                kinds.append(_Kind(label, alone if len(found) == 1 else look, methods, {apart.key: value}))
    return kinds


def _words(apart: Swept | None, value: Value) -> str:
    return apart.title.format(_WORDS.get(value, value)) if apart else str(value)


def _lines(
    study: Study,
    name: str,
    panel: str,
    mode: str,
    kinds: Sequence[_Kind],
    along: Swept,
    base: tuple[str, Value] | None,
) -> list[beside.Line]:
    """What there is to draw in one row, from the seeds that all its places have."""
    ticks = study.values(name, along.key)
    shown = {kind.label: method for kind in kinds if (method := kind.methods.get(mode) or kind.methods.get(""))}
    found = layout.alike(
        {
            (kind.label, place): study.find(name, panel, shown[kind.label], **{along.key: value}, **kind.settings)
            for kind in kinds
            if kind.label in shown
            for place, value in enumerate(ticks)
        }
    )
    lines = []
    for kind in kinds:
        mine = {place: runs for (label, place), runs in found.items() if label == kind.label}
        other = _other(kind, kinds, base)
        theirs = {place: found.get((other, place), {}) for place in mine}
        if mine:
            levels = {place: layout.at(runs, measures.area) for place, runs in mine.items()}
            gains = {place: gain(runs, theirs[place], measures.area) for place, runs in mine.items()}
            lines.append(beside.Line(kind.label, shown[kind.label], kind.look, _known(levels), _known(gains)))
    return lines


def _known(found: Mapping[int, Interval | None]) -> dict[int, Interval]:
    return {place: point for place, point in found.items() if point}


def _other(kind: _Kind, kinds: Sequence[_Kind], base: tuple[str, Value] | None) -> str:
    """The label of the line that one is compared with; empty for a reference itself.

    A blind choice does not look at scores, so that it runs once, whichever model has them.
    """
    if base is not None:
        wanted = {**kind.settings, base[0]: base[1]}
        others = [other for other in kinds if other.methods == kind.methods and other.settings == wanted]
    else:
        blind = {**kind.settings, "importance": "global"} if "importance" in kind.settings else kind.settings
        uniform = [other for other in kinds if any(parse(one).policy == "uniform" for one in other.methods.values())]
        others = [other for other in uniform if other.settings == blind]
    return next((other.label for other in others if other is not kind), "")


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
    contrast: Contrast | None = None,
    group: Group = "swept",
) -> StudyFigure:
    return StudyFigure(
        name=name,
        title=title,
        reading=f"Left: mean accuracy on the way {reading} Right: paired differences within a seed, with their 95 % "
        "intervals. A point is equally tall at the left and at the right.",
        entries=partial(_entries, along=along, apart=apart, few=group != "swept"),
        draw=partial(draw, along=along, apart=apart, contrast=contrast),
        table=partial(tables.compared, contrast=contrast),
        whiskers="Bars at the right",
        group=group,
    )


FIGURES = (
    _figure(
        "fig8",
        "Fig. 8: devices in an aggregation",
        "over the number of devices that take part in an aggregation.",
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
            "{} model",
        ),
        contrast=("importance", "local"),
    ),
    _figure(
        "fig11",
        "Fig. 11: labels per device, and neighbours",
        "of CF-CL over the number of labels that a device has, with few and with many neighbours.",
        Swept("labels", "partition.labels_per_device", lambda profile: profile.labels, "labels per device"),
        Swept("degree", "graph.degree", lambda profile: profile.degrees, "{} neighbours"),
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
