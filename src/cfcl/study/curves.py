"""Accuracies over steps (Fig. 5) and over a swept setting (Figs. 8 to 11)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfcl.runs import style
from cfcl.study import panels
from cfcl.study.bundle import Record, Study, Value
from cfcl.study.measures import Interval

MEASURES: dict[str, panels.Measure] = {"final accuracy (%)": panels.final, "mean accuracy (%)": panels.area}


@dataclass(frozen=True)
class Sweep:
    """A figure of accuracies over a setting."""

    key: str
    """The setting along the axis."""
    axis: str
    """Its name for people."""
    lines: str = ""
    """The setting that tells lines apart; without one, methods do."""
    label: str = ""
    """What a legend says of a line."""


SWEEPS = {
    "fig8": Sweep("devices", "devices in an aggregation"),
    "fig9": Sweep("size", "points in a reserve", "reserve", "{} reserve"),
    "fig10": Sweep("period", "steps between aggregations", "importance", "importance by the {} model"),
    "fig11": Sweep("labels", "labels per device", "degree", "{} neighbours on average"),
}
_WORDS: Mapping[Value, str] = {"kmeans": "K-means"}
_LOOKS = (
    style.Look(style.BLUE, "-", "s"),
    style.Look(style.VERMILLION, (0.0, (5.0, 1.5)), "^"),
    style.Look(style.GREEN, (0.0, (2.0, 1.2)), "P"),
    style.Look("#A8457A", (0.0, (8.0, 2.0, 2.0, 2.0)), "<"),
)


@dataclass(frozen=True)
class _Line:
    """One line of a sweep, in all its panels."""

    label: str
    look: style.Look
    methods: Mapping[str, str]
    """By mode."""
    settings: Mapping[str, Value]


def over_steps(study: Study) -> Figure | None:
    """Probe accuracy over steps: a row a dataset, a column a mode."""
    names, modes = study.panels("fig5"), panels.modes(study, "fig5")
    looks = panels.looks(panels.methods(study, "fig5"))
    figure, rows = panels.grid(len(names), len(modes))
    drawn = set()
    for row, panel in zip(rows, names, strict=True):
        for axes, mode in zip(row, modes, strict=True):
            counts = []
            known = {method: study.find("fig5", panel, method) for method in panels.methods(study, "fig5", mode)}
            for method, runs in panels.alike(known, apart=list(filter(panels.is_yardstick, known))).items():
                steps, points = common_steps(runs.values())
                if points:
                    _curve(axes, steps, points, method, looks[method])
                    counts.append(len(points[0].values))
                    drawn.add(method)
            _frame(axes, f"{panel}, {mode}", counts, "bands")
            if counts:
                axes.set(xlabel="step", ylabel="probe accuracy (%)")
    panels.legend(figure, panels.keys(drawn, looks))
    return figure if drawn else None


def common_steps(runs: Iterable[Record]) -> tuple[list[int], list[Interval]]:
    """The steps at which all runs were evaluated, and the probe accuracies there in percent."""
    found = [{item.step: 100 * item.probe for item in run.evaluations} for run in runs]
    steps = sorted(set[int].intersection(*map(set, found))) if found else []
    points = [panels.spread([curve[step] for curve in found]) for step in steps]
    return steps, [point for point in points if point is not None]


def _curve(axes: Axes, steps: list[int], points: list[Interval], method: str, look: style.Look) -> None:
    axes.plot(steps, [point.mean for point in points], markevery=max(1, len(steps) // 8), **panels.curve(method, look))
    if len(points[0].values) > 1 and not panels.is_yardstick(method):
        low, high = [point.low for point in points], [point.high for point in points]
        axes.fill_between(steps, low, high, color=look.colour, alpha=0.12, linewidth=0)


def _frame(axes: Axes, text: str, counts: list[int], noun: str) -> None:
    panels.title(axes, text, panels.surroundings(counts, noun))
    if not counts:
        panels.blank(axes, "no finished run")


def over_setting(study: Study, name: str) -> Figure | None:
    """Accuracies over a swept setting: a column a mode, per dataset a row of final and one of mean accuracies."""
    modes, lines = panels.modes(study, name), _lines(study, name)
    rows = [(panel, title) for panel in study.panels(name) for title in MEASURES]
    figure, grid = panels.grid(len(rows), len(modes))
    drawn: dict[str, Line2D] = {}
    for row, (panel, title) in zip(grid, rows, strict=True):
        for axes, mode in zip(row, modes, strict=True):
            counts: list[int] = []
            known = {
                (number, place): runs
                for number, line in enumerate(lines)
                for place, runs in _along(study, name, panel, mode, line).items()
            }
            shown = panels.alike(known)
            for place, line in enumerate(lines):
                points = _points(shown, place, MEASURES[title])
                if points:
                    shift = 0.05 * (place - (len(lines) - 1) / 2)
                    drawn[line.label] = _marks(axes, points, line, shift)
                    counts += [len(point.values) for point in points.values()]
            _frame(axes, f"{panel}, {mode}", counts, "bars")
            if counts:
                ticks = panels.values(study, name, SWEEPS[name].key)
                axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
                axes.set(xlabel=SWEEPS[name].axis, ylabel=title, xlim=(-0.4, len(ticks) - 0.6))
    panels.legend(figure, [drawn[line.label] for line in lines if line.label in drawn])
    return figure if drawn else None


def _lines(study: Study, name: str) -> list[_Line]:
    """A line for each kind of method, and within it for each value of the setting that tells lines apart."""
    methods = panels.methods(study, name)
    kinds: dict[str, dict[str, str]] = {}
    for method in methods:
        kinds.setdefault(panels.family(method), {})[panels.mode_of(method)] = method
    key, label = SWEEPS[name].lines, SWEEPS[name].label
    if not key:
        looks = panels.looks(methods)
        known = {kind: next(iter(found.values())) for kind, found in kinds.items()}
        return [_Line(panels.name(known[kind]), looks[known[kind]], kinds[kind], {}) for kind in kinds]
    found = [(kind, value) for kind in kinds for value in panels.values(study, name, key)]
    return [
        _Line(
            label=("" if len(kinds) == 1 else f"{panels.name(kind)}, ") + label.format(_WORDS.get(value, value)),
            look=_LOOKS[place % len(_LOOKS)],
            methods=kinds[kind],
            settings={key: value},
        )
        for place, (kind, value) in enumerate(found)
    ]


def _along(study: Study, name: str, panel: str, mode: str, line: _Line) -> dict[int, dict[int, Record]]:
    """The runs behind a line, by the place of the swept value."""
    method = line.methods.get(mode) or line.methods.get("")
    if method is None:
        return {}
    key = SWEEPS[name].key
    return {
        place: study.find(name, panel, method, **{key: value}, **line.settings)
        for place, value in enumerate(panels.values(study, name, key))
    }


def _points(
    shown: Mapping[tuple[int, int], Mapping[int, Record]], line: int, measure: panels.Measure
) -> dict[int, Interval]:
    """What a line is made of, by the place of the swept value."""
    found = {place: panels.at(runs, measure) for (number, place), runs in shown.items() if number == line}
    return {place: point for place, point in found.items() if point is not None}


def _marks(axes: Axes, points: Mapping[int, Interval], line: _Line, shift: float) -> Line2D:
    """Means joined by a line, each with its interval; lines stand a little apart, so that intervals can be seen."""
    where = [place + shift for place in points]
    method = next(iter(line.methods.values()))
    (drawn,) = axes.plot(
        where, [point.mean for point in points.values()], label=line.label, **panels.curve(method, line.look)
    )
    if not panels.is_yardstick(method):
        low, high = [point.low for point in points.values()], [point.high for point in points.values()]
        axes.vlines(where, low, high, color=line.look.colour, linewidth=1.0, alpha=0.7)
    return drawn
