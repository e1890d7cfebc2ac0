"""Accuracy over steps (Fig. 5)."""

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import ordered, parse
from cfcl.runs import style
from cfcl.study import layout, tables
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures.figure import METHODS, Entry, StudyFigure, plain
from cfcl.study.measures import Interval
from cfcl.study.profiles import Panel, Profile

YARDSTICKS = ("oracle-explicit", "oracle-implicit", "centralised")


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """The methods of a panel; all, and yardsticks, where it names none."""
    return plain(*(panel.methods or (*METHODS, *(() if profile.reduced else YARDSTICKS))))


def draw(study: Study, name: str) -> Figure | None:
    """Probe accuracy over steps: a row per dataset, a column per mode; those with one mode stand side by side."""
    looks = layout.looks(study.methods(name))
    blocks = _rows({panel: _modes(study, name, panel) for panel in study.panels(name)})
    figure, grid = layout.grid(len(blocks), max(map(len, blocks)), width=5.2)
    drawn: list[tuple[Axes, list[layout.End]]] = []
    for row, there in zip(grid, blocks, strict=True):
        for axes in row[len(there) :]:
            axes.remove()
        for place, (axes, (panel, mode)) in enumerate(zip(row, there, strict=False)):
            if place and there[place - 1][0] == panel:
                axes.sharey(row[place - 1])
            counts: list[int] = []
            ends: list[layout.End] = []
            methods = [method for method in _methods(study, name, panel) if parse(method).mode in ("", mode)]
            known = {method: study.find(name, panel, method) for method in methods}
            for method, runs in layout.alike(known, apart=[one for one in known if parse(one).yardstick]).items():
                steps, points = common_steps(runs.values())
                if points:
                    _curve(axes, steps, points, method, looks[method])
                    counts.append(len(points[0].values))
                    ends.append((parse(method).title, steps[-1], points[-1].mean, looks[method].colour))
            layout.frame(axes, f"{panel}, {mode}", counts, "bands")
            if counts:
                axes.set(xlabel="step", ylabel="probe accuracy (%)")
                drawn.append((axes, ends))
    for axes, found in drawn:
        layout.ends(axes, found)
    return figure if drawn else None


def _methods(study: Study, name: str, panel: str) -> list[str]:
    """Those of a panel, in the order of legends."""
    return ordered(cell.method for cell in study.cells if (cell.figure, cell.panel) == (name, panel))


def _modes(study: Study, name: str, panel: str) -> list[str]:
    """The modes of a panel, from most that travels to least; those of the figure if it has methods without exchange
    only.
    """
    found = {parse(method).mode for method in _methods(study, name, panel)}
    return [mode for mode in ("explicit", "activations", "implicit") if mode in found] or study.modes(name)


def _rows(modes: Mapping[str, Sequence[str]]) -> list[list[tuple[str, str]]]:
    """Panels and modes, two in a row or as many as a panel has; all of a panel are in one."""
    widest = max(2, *map(len, modes.values()))
    rows: list[list[tuple[str, str]]] = [[]]
    for panel, some in modes.items():
        if len(rows[-1]) + len(some) > widest:
            rows.append([])
        rows[-1] += [(panel, mode) for mode in some]
    return rows


def common_steps(runs: Iterable[Measured]) -> tuple[list[int], list[Interval]]:
    """The steps at which all runs were evaluated, and the accuracies there in percent."""
    found = [{item.step: 100 * item.accuracy for item in run.evaluations} for run in runs]
    steps = sorted(set[int].intersection(*map(set, found))) if found else []
    points = [layout.spread([curve[step] for curve in found]) for step in steps]
    return steps, [point for point in points if point is not None]


def _curve(axes: Axes, steps: list[int], points: list[Interval], method: str, look: style.Look) -> None:
    axes.plot(steps, [point.mean for point in points], markevery=max(1, len(steps) // 8), **layout.curve(method, look))
    if len(points[0].values) > 1 and not parse(method).yardstick:
        low, high = [point.low for point in points], [point.high for point in points]
        axes.fill_between(steps, low, high, color=look.colour, alpha=0.12, linewidth=0)


FIGURE = StudyFigure(
    name="fig5",
    title="Fig. 5: accuracy over steps",
    reading="Probe accuracy of the global encoder while it learns; higher is better, and earlier is cheaper.",
    entries=entries,
    draw=draw,
    table=tables.compared,
    whiskers="Bands",
    group="compared",
)
