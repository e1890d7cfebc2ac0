"""What policies select under one model (Fig. 7)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.methods import MODES, ordered, parse
from cfcl.study import layout
from cfcl.study.bundle import BIN, Selection, Study
from cfcl.study.figures.figure import StudyFigure, plain
from cfcl.study.measures import interval, paired
from cfcl.study.tables import Table, difference, level, without_empty


def draw(study: Study, name: str) -> Figure | None:
    """Histograms of the distance of selected items to the nearest centroid of their receiver, all under one model."""
    found = study.reported
    if not found:
        return None
    names = list(dict.fromkeys(item.panel for item in found))
    modes = [mode for mode in MODES if any(parse(item.method).mode == mode for item in found)]
    figure, rows = layout.grid(len(names), len(modes))
    for row, panel in zip(rows, names, strict=True):
        for axes, mode in zip(row, modes, strict=True):
            part = [item for item in found if item.panel == panel and parse(item.method).mode == mode]
            _histograms(axes, part)
            seeds = layout.seeds(len([item for item in part if item.method == method]) for method in _methods(part))
            layout.title(axes, f"{panel}, {mode}", seeds)
    return figure


def pooled(found: Sequence[Selection]) -> tuple[list[float], float, float]:
    """Items of several worlds together: shares of items by bin, mean distance, share of held labels."""
    total = sum(item.items for item in found)
    counts = [sum(column) for column in zip_longest(*(item.histogram for item in found), fillvalue=0)]
    distance = sum(item.items * item.distance for item in found) / total
    held = sum(item.items * item.held for item in found) / total
    return [count / total for count in counts], distance, held


def _methods(found: Iterable[Selection]) -> list[str]:
    return ordered(item.method for item in found)


def _histograms(axes: Axes, found: Sequence[Selection]) -> None:
    if not found:
        layout.blank(axes, "no selections")
        return
    methods = _methods(found)
    looks = layout.looks(methods)
    top, means = 0.0, {}
    for method in methods:
        shares, distance, held = pooled([item for item in found if item.method == method])
        edges = [BIN * place for place in range(len(shares) + 1)]
        look = looks[method]
        label = f"{parse(method).title}: mean {distance:.3f}, {100 * held:.0f} % held already"
        axes.stairs(shares, edges, color=look.colour, linestyle=look.line, linewidth=1.5, label=label)
        means[distance] = look.colour
        top = max(top, *shares)
    axes.vlines(list(means), 0, top, colors=list(means.values()), linestyle=":", linewidth=1.3)
    axes.set_ylim(0, top * (1.05 + 0.12 * len(methods)))
    axes.legend(loc="upper left", fontsize=8, handlelength=1.8, borderaxespad=0.2)
    axes.set(xlabel="distance to the receiver's nearest centroid", ylabel="share of items")


def table(study: Study, name: str) -> Table:
    """A row per dataset and method: distances and held labels, and their paired differences to uniform."""
    compared = [f"{name}{unit}" for name in ("Nearest", "Mean", "Held") for unit in ("", " − uniform")]
    head = ["Dataset", "Method", "Seeds", "Items", *compared]
    groups: dict[tuple[str, str], list[Selection]] = {}
    for item in study.reported:
        groups.setdefault((item.panel, item.method), []).append(item)
    names = list(dict.fromkeys(panel for panel, _ in groups))
    order = sorted(groups, key=lambda key: (names.index(key[0]), parse(key[1]).mode, parse(key[1]).rank))
    rows = []
    for panel, method in order:
        mine, other = groups[panel, method], f"uniform-{parse(method).mode}"
        theirs = [] if method == other else groups.get((panel, other), [])
        items = f"{sum(item.items for item in mine):,}"
        nearest = _pair(mine, theirs, lambda item: item.distance, 3)
        mean = _pair(mine, theirs, lambda item: item.mean_distance, 3)
        held = _pair(mine, theirs, lambda item: 100 * item.held, 1)
        rows.append([panel, method, str(len(mine)), items, *nearest, *mean, *held])
    return without_empty(Table(head, rows))


def _pair(
    mine: Sequence[Selection], theirs: Iterable[Selection], measure: Callable[[Selection], float | None], digits: int
) -> list[str]:
    """A measure of selections, and its paired difference to others, where it is known."""
    values = {item.seed: value for item in mine if (value := measure(item)) is not None}
    others = {item.seed: value for item in theirs if (value := measure(item)) is not None}
    return [level(interval(list(values.values())), digits), difference(paired(values, others), digits)]


FIGURE = StudyFigure(
    name="fig7",
    title="Fig. 7: what is selected",
    reading="Distance of the items that a policy selects to the nearest centroid of their receiver, all under one "
    "model; dotted lines are means. Held already is the share of items whose label the receiver has: lower brings more "
    "that is new. In the table, Nearest and Mean are mean distances to the nearest and to all of its centroids; "
    "Held is in percent. Labels are used for this figure only, never by a device.",
    entries=lambda profile, panel: plain("fedavg"),
    draw=draw,
    table=table,
    needs="selections",
)
