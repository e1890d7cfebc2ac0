"""How well `cfcl overlap`, before training, foretells what exchange and selection gain (ours)."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.runs import style
from cfcl.study import layout, lines
from cfcl.study.bundle import Study
from cfcl.study.figures import redundancy
from cfcl.study.figures.figure import Entry, StudyFigure
from cfcl.study.lines import World
from cfcl.study.measures import interval
from cfcl.study.profiles import Panel, Profile
from cfcl.study.tables import Table, level

PAIRS = {
    "uniform over FedAvg": ("uniform-explicit", "fedavg"),
    "cover over uniform": ("cover-explicit", "uniform-explicit"),
}
"""Gains that might be foretold: of exchange, and of selection."""


def entries(profile: Profile, panel: Panel) -> list[Entry]:
    """Runs of redundant data: those behind the gains."""
    wanted = {method for pair in PAIRS.values() for method in pair}
    return [entry for entry in redundancy.entries(profile, panel) if entry.method in wanted]


def draw(study: Study, name: str) -> Figure | None:
    """A row per panel, a column per gain: a dot per world, the estimate across."""
    names = study.panels(name)
    figure, rows = layout.grid(len(names), len(PAIRS))
    drawn = False
    for row, panel in zip(rows, names, strict=True):
        for axes, (title, pair) in zip(row, PAIRS.items(), strict=True):
            found = lines.worlds(study, name, panel, *pair)
            drawn |= bool(found)
            _dots(axes, f"{panel}, {title}", [world for some in found.values() for world in some])
    return figure if drawn else None


def _dots(axes: Axes, title: str, found: list[World]) -> None:
    if not found:
        layout.frame(axes, title, [], "")
        return
    known = lines.correlation(found)
    told = "" if known is None else f", correlation {known:+.2f}"
    layout.title(axes, title, f"{len(found)} worlds{told}")
    axes.axhline(0.0, color=style.GREY, linewidth=0.8)
    axes.plot([100 * world.new for world in found], [world.gain for world in found], linestyle="", marker="o",
              color=style.BLUE, markersize=4.0, alpha=0.7)  # fmt: skip
    axes.set(xlabel="new to a device of what a neighbour has, by estimate (%)", ylabel="points gained")


def table(study: Study, name: str) -> Table:
    """A row per panel and gain: the correlation over all worlds, and its mean over seeds."""
    rows = []
    for panel in study.panels(name):
        for title, pair in PAIRS.items():
            found = lines.worlds(study, name, panel, *pair)
            worlds = [world for some in found.values() for world in some]
            whole = lines.correlation(worlds)
            apart = [value for some in found.values() if (value := lines.correlation(some)) is not None]
            seeds = str(len(found))
            over_all = "–" if whole is None else f"{whole:+.2f}"
            rows.append([panel, title, seeds, str(len(worlds)), over_all, level(interval(apart), 2)])
    return Table(["Dataset", "Gain", "Seeds", "Worlds", "Correlation", "Within a seed"], rows)


FIGURE = StudyFigure(
    name="foretold",
    title="What the overlap foretells",
    reading="Each dot is a world: a seed, and a share of data that all devices have. Across is the share of a "
    "neighbour's data that is new to a device, as `cfcl overlap` estimates it before any training; up is what was "
    "gained at the end.",
    entries=entries,
    draw=draw,
    table=table,
    needs="overlap",
    group="shares",
)
