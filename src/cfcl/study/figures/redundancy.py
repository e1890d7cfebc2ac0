"""Accuracy against the share of data that all devices have (ours)."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout, measures, tables
from cfcl.study.bundle import Study, Value
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.figures.gains import gain
from cfcl.study.measures import Interval
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
    shares, names = study.values(name, KEY), study.panels(name)
    looks = layout.looks(study.methods(name))
    figure, rows = layout.grid(len(names), 2)
    drawn = set()
    for (left, right), panel in zip(rows, names, strict=True):
        counts: list[int] = []
        found = {
            (method, share): study.find(name, panel, method, **{KEY: share}) for method in looks for share in shares
        }
        for method, look in looks.items():
            runs = [found[method, share] for share in shares]
            levels = [layout.at(some, measures.final) for some in runs]
            gains = [gain(found[method, share], found.get((BASE, share), {})) for share in shares]
            if any(levels):
                drawn.add(method)
                counts += [len(point.values) for point in levels if point]
                _line(left, shares, levels, method, look)
            if method != BASE and any(gains):
                _line(right, shares, gains, method, look)
        layout.frame(left, f"{panel}: accuracy", counts, "bars")
        layout.frame(right, f"{panel}: gain over uniform exchange", counts, "bars")
        if counts:
            right.axhline(0.0, color=style.GREY, linewidth=0.8)
            _axes(left, shares, "accuracy (%)")
            _axes(right, shares, "points over uniform exchange")
    layout.legend(figure, layout.keys(drawn, looks))
    return figure if drawn else None


def _line(
    axes: Axes, shares: Sequence[Value], points: Sequence[Interval | None], method: str, look: style.Look
) -> None:
    known = [(place, point) for place, point in enumerate(points) if point]
    places = [place for place, _ in known]
    axes.plot(places, [point.mean for _, point in known], **layout.curve(method, look))
    if not parse(method).yardstick:
        wide = [(place, point) for place, point in known if len(point.values) > 1]
        axes.vlines(
            [place for place, _ in wide],
            [point.low for _, point in wide],
            [point.high for _, point in wide],
            color=look.colour,
            linewidth=1.0,
            alpha=0.7,
        )


def _axes(axes: Axes, shares: Sequence[Value], what: str) -> None:
    axes.set_xticks(range(len(shares)), [f"{100 * float(share):g}" for share in shares])
    axes.set(xlabel="share of every device's data that is of one common label (%)", ylabel=what)


FIGURE = StudyFigure(
    name="redundancy",
    title="Where devices share most of what they have",
    reading="Final accuracy over the share of common data, and what each method gains over uniform exchange. The "
    "oracle sees labels: what it gains is all that there is to gain.",
    entries=entries,
    draw=draw,
    table=tables.compared,
    whiskers="Bars",
    group="shares",
)
