"""Accuracy against the share of data that all devices have (ours)."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Study, Value
from cfcl.study.figures import beside
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.figures.gains import gain
from cfcl.study.profiles import COMMON, EXPLICIT, ORACLE, Panel, Profile

KEY = "share"
METHODS = (*(method for method in EXPLICIT if not method.startswith("bulk")), ORACLE)
BASE = "uniform-explicit"


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """All methods with every share."""
    return [
        Entry(method, {KEY: share}, [*COMMON, f"partition.main_share={share}"])
        for share in profile.shares
        for method in METHODS
    ]


def draw(study: Study, name: str) -> Figure | None:
    """A row per panel: accuracies, and beside them what each method gains over uniform exchange, seed by seed."""
    names, shares = study.panels(name), study.values(name, KEY)
    ticks = [f"{100 * float(share):g}" for share in shares]
    words = beside.Words(
        "final accuracy", "uniform exchange", "share of a device's data of one common label (%)", ticks
    )
    figure, rows = layout.grid(len(names), 2, width=beside.WIDTH)
    drawn = []
    for (left, right), panel in zip(rows, names, strict=True):
        lines = _lines(study, name, panel, shares)
        if beside.draw(left, right, panel, lines, words):
            drawn.append((left, right, lines))
    for left, right, lines in drawn:
        beside.name(left, right, lines)
    return figure if drawn else None


def _lines(study: Study, name: str, panel: str, shares: Sequence[Value]) -> list[beside.Line]:
    lines = []
    for method, look in layout.looks(study.methods(name)).items():
        levels, gains = {}, {}
        for place, share in enumerate(shares):
            mine, theirs = (study.find(name, panel, it, **{KEY: share}) for it in (method, BASE))
            if level := layout.at(mine, measures.final):
                levels[place] = level
            if method != BASE and (more := gain(mine, theirs)):
                gains[place] = more
        lines.append(beside.Line(parse(method).title, method, look, levels, gains))
    return lines


FIGURE = StudyFigure(
    name="redundancy",
    title="Where devices share most of what they have",
    reading="Final accuracy over the share of common data, and what each method gains over uniform exchange. The "
    "oracle sees labels: what it gains is all that there is to gain. A point is equally tall at the left and at the "
    "right.",
    entries=entries,
    draw=draw,
    table=tables.compared,
    whiskers="Bars at the right",
    group="shares",
)
