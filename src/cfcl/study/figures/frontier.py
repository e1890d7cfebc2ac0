"""Accuracy against all bytes between devices (ours)."""

import statistics
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Measured, Study, Value
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.figures.gains import gain
from cfcl.study.lines import between
from cfcl.study.profiles import Panel, Profile
from cfcl.study.tables import Column

ITEMS = (1, 2, 5, 10)
SIZES = (5, 10, 20, 30)
USUAL_ITEMS, USUAL_SIZE = 2, 10
BASE = "uniform-explicit"
ENOUGH = 0.75
"""Share of the bytes of uniform exchange with which our rule should get as far."""
BLIND = (BASE, "bulk-explicit")
"""Along the number of items only."""
SCORED = ("cfcl-explicit", "cover-explicit")
"""Along the size of the reserve, too."""


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """Two lines: items with one size of the reserve, and sizes with one number of items."""
    pairs = [(items, USUAL_SIZE) for items in ITEMS] + [(USUAL_ITEMS, size) for size in SIZES if size != USUAL_SIZE]
    return [
        Entry("fedavg", {}, []),
        *(
            Entry(
                method,
                {"n": items, "reserve": size},
                [f"exchange.num_pulled={items}", f"exchange.num_reserve={size}"],
            )
            for items, size in pairs
            for method in (*BLIND, *SCORED)
            if method in SCORED or size == USUAL_SIZE
        ),
    ]


def draw(study: Study, name: str) -> Figure | None:
    """A row per setting: each method along the number of items, and dashed along the size of the reserve.

    Beside it stands how far each is above uniform exchange with the most items.
    """
    names, looks = study.panels(name), layout.looks(study.methods(name))
    figure, rows = layout.grid(len(names), 2, width=5.5, sharex="row")
    drawn: dict[Axes, list[layout.End]] = {}
    for (axes, beside), panel in zip(rows, names, strict=True):
        counts: list[int] = []
        for method in (*BLIND, *SCORED):
            if method not in looks:
                continue
            for along, places in _lines(method).items():
                found = {place: study.find(name, panel, method, **place_of(place)) for place in places}
                points = {place: runs for place, runs in found.items() if runs}
                if points:
                    counts += [len(runs) for runs in points.values()]
                    end = _line(axes, points, along, method, looks[method])
                    drawn.setdefault(axes, []).extend([end] if along == "n" else [])
        alone = study.find(name, panel, "fedavg")
        if alone:
            level = layout.at(alone, measures.final)
            assert level is not None
            axes.axhline(level.mean, color=style.BLACK, linewidth=1.0)
            axes.annotate("FedAvg: nothing between devices", (1.0, level.mean), xycoords=("axes fraction", "data"),
                          ha="right", va="bottom", fontsize=8)  # fmt: skip
        layout.title(axes, f"{panel}: final accuracy (%)", layout.seeds(counts))
        ends = _gains(beside, study, name, panel, looks)
        if ends:
            drawn[beside] = ends
        if not counts:
            layout.blank(axes, "no finished run")
            continue
        shown = [place.runs for key, place in tables.places(study, name).items() if key[0] == panel]
        known = [run.raw for runs in shown for run in runs.values() if run.raw is not None]
        if known:
            _upright(axes, statistics.fmean(known), "upload all data once")
        axes.set(xlabel="all bytes between devices", xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if ends:
            beside.set_xlabel("all bytes between devices")
    for axes, found_ends in drawn.items():
        layout.ends(axes, found_ends)
    return figure if drawn else None


def _gains(axes: Axes, study: Study, name: str, panel: str, looks: Mapping[str, style.Look]) -> list[layout.End]:
    """Draw what each method is above uniform exchange with the most items, seed by seed; where the lines end."""
    most = (ITEMS[-1], USUAL_SIZE)
    theirs = study.find(name, panel, BASE, **place_of(most))
    ends, counts = [], []
    for method in (method for method in (*BLIND, *SCORED) if method in looks):
        line = []
        for place in _lines(method)["n"]:
            runs = study.find(name, panel, method, **place_of(place))
            if more := gain(runs, theirs):
                line.append((statistics.fmean(map(between, runs.values())), more))
        if not line:
            continue
        counts += [len(more.values) for _, more in line]
        sizes, colour = [size for size, _ in line], looks[method].colour
        axes.plot(sizes, [more.mean for _, more in line], **layout.curve(method, looks[method]))
        wide = [(size, more) for size, more in line if len(more.values) > 1]
        axes.vlines([size for size, _ in wide], [more.low for _, more in wide], [more.high for _, more in wide],
                    color=colour, linewidth=1.2, alpha=0.8)  # fmt: skip
        ends.append((parse(method).title, sizes[-1], line[-1][1].mean, colour))
    layout.frame(axes, f"points over uniform exchange, n={ITEMS[-1]}", counts, "bars")
    if ends:
        axes.axhline(0.0, color=style.GREY, linewidth=0.8)
        _upright(axes, ENOUGH * statistics.fmean(map(between, theirs.values())), f"{100 * ENOUGH:g} % of its bytes")
    return ends


def _upright(axes: Axes, size: float, text: str) -> None:
    """A number of bytes, as a dotted line that says what it is."""
    axes.axvline(size, color=style.GREY, linewidth=1.0, linestyle=":")
    axes.annotate(text, (size, 0.15), xycoords=("data", "axes fraction"), xytext=(-3, 0), textcoords="offset points",
                  rotation=90, ha="right", va="bottom", fontsize=8, color=style.GREY,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip


def place_of(place: tuple[int, int]) -> Mapping[str, Value]:
    """Settings of a place."""
    return {"n": place[0], "reserve": place[1]}


def _lines(method: str) -> dict[str, list[tuple[int, int]]]:
    along = {"n": [(items, USUAL_SIZE) for items in ITEMS]}
    return along if method in BLIND else {**along, "reserve": [(USUAL_ITEMS, size) for size in SIZES]}


def _line(
    axes: Axes,
    points: Mapping[tuple[int, int], Mapping[int, Measured]],
    along: str,
    method: str,
    look: style.Look,
) -> layout.End:
    """Draw one line; where it ends."""
    sizes = [statistics.fmean(map(between, runs.values())) for runs in points.values()]
    levels = [layout.at(runs, measures.final) for runs in points.values()]
    dashed = {"linestyle": (0.0, (2.0, 1.5)), "alpha": 0.6} if along == "reserve" else {}
    means = [level.mean for level in levels if level]
    axes.plot(sizes, means, **(layout.curve(method, look) | dashed))
    for size, level, (items, reserve) in zip(sizes, levels, points, strict=True):
        usual = (items, reserve) == (USUAL_ITEMS, USUAL_SIZE)
        end = reserve in (min(SIZES), max(SIZES)) and along == "reserve"
        if level and method == "cover-explicit" and (along == "n" or (end and not usual)):
            text = f"n={items}" if along == "n" else f"K={reserve}"
            axes.annotate(text, (size, level.mean), xytext=(3, 5 if along == "n" else -11), textcoords="offset points",
                          fontsize=8, color=look.colour)  # fmt: skip
    return parse(method).title, sizes[-1], means[-1], look.colour


FIGURE = StudyFigure(
    name="frontier",
    title="Accuracy against bytes between devices",
    reading="Final accuracy against all that devices sent to each other, reserves and radii included: solid lines "
    "along the number n of items per link and exchange, dashed ones along the size K of the reserve. At the right what "
    "each is above uniform exchange with the most items, seed by seed: what is above zero left of the dotted line gets "
    "further with three quarters of its bytes. The dotted line at the left is what uploading all data of all devices "
    "once would take; models on their way up to the server are in the table.",
    entries=entries,
    draw=draw,
    table=lambda study, name: tables.compared(
        study,
        name,
        columns=(
            Column("Final (%)", measures.final),
            Column("D2D (MB)", lambda run: between(run) / 1e6, compared=False),
            Column("Uplink (MB)", lambda run: measures.spent(run).up / 1e6, compared=False),
            *tables.BESIDE,
        ),
    ),
    whiskers="Bars at the right",
    group="bytes",
)
