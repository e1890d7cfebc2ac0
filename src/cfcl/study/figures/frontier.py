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
from cfcl.study.lines import between
from cfcl.study.profiles import Panel, Profile
from cfcl.study.tables import Column

ITEMS = (1, 2, 5, 10)
SIZES = (5, 10, 20, 30)
USUAL_ITEMS, USUAL_SIZE = 2, 10
BLIND = ("uniform-explicit", "bulk-explicit")
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
    """A panel per setting: each method along the number of items, and dashed along the size of the reserve."""
    names, looks = study.panels(name), layout.looks(study.methods(name))
    figure, (row,) = layout.grid(1, len(names), width=7.0)
    drawn: dict[Axes, list[layout.End]] = {}
    for axes, panel in zip(row, names, strict=True):
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
        layout.title(axes, panel, layout.seeds(counts))
        if not counts:
            layout.blank(axes, "no finished run")
        shown = [place.runs for key, place in tables.places(study, name).items() if key[0] == panel]
        known = [run.raw for runs in shown for run in runs.values() if run.raw is not None]
        if known:
            axes.axvline(statistics.fmean(known), color=style.GREY, linewidth=1.0, linestyle=":")
            axes.annotate("upload all data once", (statistics.fmean(known), 0.02), xycoords=("data", "axes fraction"),
                          rotation=90, ha="right", va="bottom", fontsize=8, color=style.GREY)  # fmt: skip
        if counts:
            axes.set(xlabel="all bytes between devices", ylabel="final accuracy (%)", xscale="log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    for axes, ends in drawn.items():
        layout.ends(axes, ends)
    return figure if drawn else None


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
        if level and method == "cover-explicit" and not (usual and along == "reserve"):
            text = f"n={items}" if along == "n" else f"K={reserve}"
            axes.annotate(text, (size, level.mean), xytext=(3, 5 if along == "n" else -11), textcoords="offset points",
                          fontsize=8, color=look.colour)  # fmt: skip
    return parse(method).title, sizes[-1], means[-1], look.colour


FIGURE = StudyFigure(
    name="frontier",
    title="Accuracy against bytes between devices",
    reading="Final accuracy against all that devices sent to each other, reserves and radii included: solid lines "
    "along the number n of items per link and exchange, dashed ones along the size K of the reserve. The dotted line "
    "is what uploading all data of all devices once would take; models on their way up to the server are in the table.",
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
    group="bytes",
)
