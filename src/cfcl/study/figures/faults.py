"""What devices that are offline and messages that are lost cost each method (ours)."""

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Study
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.figures.gains import gain
from cfcl.study.measures import Interval
from cfcl.study.profiles import TENFOLD, Panel, Profile

KEY, NONE = "faults", "none"
METHODS = ("fedavg", "uniform-explicit", "cfcl-explicit", "cover-explicit", "uniform-activations")
REDUCED = 3
"""How many of them run in a reduced profile."""
WIDTH, HEIGHT = 2.5, 2.4
"""Inches of one panel."""


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """All methods with every pair of rates."""
    return [
        Entry(method, {KEY: _words(*rates)}, [*_budget(method), *_overrides(*rates)])
        for rates in profile.faults
        for method in (METHODS[:REDUCED] if profile.reduced else METHODS)
    ]


def _budget(method: str) -> list[str]:
    """Activations are dropped at the next exchange, so that there may be more of them."""
    return [TENFOLD] if parse(method).mode == "activations" else []


def _overrides(offline: float, loss: float) -> list[str]:
    rates = {"faults.offline": offline, "faults.loss": loss}
    return [f"{key}={rate}" for key, rate in rates.items() if rate > 0]


def _words(offline: float, loss: float) -> str:
    """Such as `30 % offline, 20 % lost`."""
    parts = {"offline": offline, "lost": loss}
    return ", ".join(f"{100 * rate:g} % {word}" for word, rate in parts.items() if rate > 0) or NONE


def draw(study: Study, name: str) -> Figure | None:
    """Per panel a row of accuracies and a row of differences to the runs without faults; a column per method."""
    names, methods = study.panels(name), study.methods(name)
    looks = layout.looks(methods)
    figure, rows = layout.grid(2 * len(names), len(methods), width=WIDTH, height=HEIGHT, sharex="col", sharey="row")
    drawn = False
    for panel, levels, changes in zip(names, rows[::2], rows[1::2], strict=True):
        for method, upper, lower in zip(methods, levels, changes, strict=True):
            measured = _measured(study, name, panel, method)
            for axes, points in zip((upper, lower), measured, strict=True):
                _dots(axes, points, looks[method])
                _named(axes, [str(kind) for kind in study.values(name, KEY)])
            drawn = drawn or any(measured[0])
            upper.set_title(_title(method))
            lower.axhline(0.0, color=style.GREY, linewidth=0.8)
        levels[0].set_ylabel(f"{panel}: accuracy (%)")
        changes[0].set_ylabel("points against no faults")
    return figure if drawn else None


def _measured(study: Study, name: str, panel: str, method: str) -> tuple[list[Interval | None], list[Interval | None]]:
    """Accuracies by what goes wrong, and how much they differ from those where nothing does."""
    kinds = study.values(name, KEY)
    runs = [study.find(name, panel, method, **{KEY: kind}) for kind in kinds]
    base = study.find(name, panel, method, **{KEY: NONE})
    changes = [None if kind == NONE else gain(mine, base) for kind, mine in zip(kinds, runs, strict=True)]
    return [layout.at(mine, measures.final) for mine in runs], changes


def _title(method: str) -> str:
    found = parse(method)
    return f"{found.title}, {found.mode}" if found.mode else found.title


def _dots(axes: Axes, points: Sequence[Interval | None], look: style.Look) -> None:
    known = [(place, point) for place, point in enumerate(points) if point]
    axes.plot(
        [place for place, _ in known],
        [point.mean for _, point in known],
        **(look.options | {"linestyle": "", "markersize": 5.0}),
    )
    wide = [(place, point) for place, point in known if len(point.values) > 1]
    axes.vlines(
        [place for place, _ in wide],
        [point.low for _, point in wide],
        [point.high for _, point in wide],
        color=look.colour,
        linewidth=1.4,
    )


def _named(axes: Axes, kinds: Sequence[str]) -> None:
    axes.set_xticks(range(len(kinds)), [kind.replace(", ", ",\n") for kind in kinds], rotation=60, fontsize=8)
    axes.set_xlim(-0.5, len(kinds) - 0.5)


FIGURE = StudyFigure(
    name="faults",
    title="What faults cost",
    reading="Final accuracy where devices are offline and messages are lost, with these probabilities in every round "
    "and for every message; below, the difference to the run of the same method and seed without faults.",
    entries=entries,
    draw=draw,
    table=partial(tables.compared, contrast=(KEY, NONE)),
    whiskers="Bars",
    group="outages",
)
