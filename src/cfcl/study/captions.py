"""What a report says of each figure: its title, how to read it, and where it comes from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cfcl.shown import command
from cfcl.study import layout, tables
from cfcl.study.bundle import Study
from cfcl.study.figures import FIGURES
from cfcl.study.figures.figure import Picture, StudyFigure
from cfcl.study.profiles import PROFILES
from cfcl.study.tables import Table

HOW = (
    "Accuracies are those of a linear probe on the global encoder, in percent; the final one is the mean over the last "
    "fifth of the run, the mean one is that on the way: the area under the curve over steps, divided by their number.",
    "Seeds may differ more than methods do. Within a seed all methods share data, network, initial model and order of "
    "batches, so the paired differences in the tables decide, not whether intervals in a figure overlap.",
    "What is grey is a yardstick, no competitor: the oracle sees labels, the centralised model has all data.",
)
"""How to read figures and tables."""


@dataclass(frozen=True)
class Chapter:
    """One figure in a report."""

    name: str
    """Of its files and its place in a page."""
    title: str
    caption: str
    table: Table
    commands: list[str]
    versions: list[str]
    missing: list[str]
    """Runs that are not there, in words."""
    picture: Picture | None
    nothing: str
    """Why there is no picture, in a sentence."""


def chapters(study: Study, drawn: Mapping[str, Picture], older: str = "") -> list[Chapter]:
    """A chapter per figure, in their order; `older` is the name of what is shown apart from the newest numerics."""
    there = study.figures
    return [_chapter(study, figure, drawn.get(name), older) for name, figure in FIGURES.items() if name in there]


def _chapter(study: Study, figure: StudyFigure, picture: Picture | None, older: str) -> Chapter:
    table = figure.table(study, figure.name)
    unset = figure.piloted and not table.rows
    why = (
        "the pilot has not run, so there are no accuracies to reach"
        if unset
        else "it needs runs that have not finished"
    )
    return Chapter(
        name=f"{figure.name}{suffix(older)}",
        title=f"{figure.title}{f', {older}' if older else ''}",
        caption=f"{figure.reading} {_seeds(study, figure)}",
        table=table,
        commands=[] if older else commands(study, figure.name),
        versions=_versions(study, figure.name),
        missing=missing(study, figure.name),
        picture=picture,
        nothing=f"Nothing is drawn: {why}.",
    )


def suffix(older: str) -> str:
    """What sets names of files apart from those of the newest numerics."""
    return f"-{older.replace(' ', '-')}" if older else ""


def commands(study: Study, figure: str, panels: Collection[str] | None = None) -> list[str]:
    """What asks for the runs behind a figure, or some panels of it: a line for all that have the same seeds.

    Seeds that are the profile's own need not be named, nor those of a panel that has not run.
    """
    profile = PROFILES.get(study.about["profile"])
    groups: dict[tuple[int, ...], list[str]] = {}
    there = study.panels(figure)
    chosen = there if panels is None else sorted(panels, key=[*there, *panels].index)
    for panel in chosen:
        mine = {cell.seed for cell in study.cells if (cell.figure, cell.panel) == (figure, panel)}
        seeds = tuple(sorted(mine - {study.about["pilot"]}))
        own = profile is not None and seeds == FIGURES[figure].seeds_of(profile, panel)
        groups.setdefault(() if own else seeds, []).append(panel)
    words = ["cfcl", "reproduce", figure, "--profile", str(study.about["profile"])]
    return [
        command(*words, "--panels", ",".join(names), *(["--seeds", _ranges(seeds)] if seeds else []))
        for seeds, names in groups.items()
    ]


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds from low to high as a command takes them, such as `1-3,5`."""
    found: list[list[int]] = []
    for seed in seeds:
        if found and seed == found[-1][-1] + 1:
            found[-1].append(seed)
        else:
            found.append([seed])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def missing(study: Study, figure: str) -> list[str]:
    """A line per place where runs are missing, with their seeds."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in study.cells:
        if cell.figure == figure and cell.digest not in study.runs:
            pilot = " (the pilot)" if cell.seed == study.about["pilot"] else ""
            settings = ", ".join(f"{name} {value}" for name, value in sorted(cell.settings.items()))
            key = (cell.panel, cell.method, settings)
            found.setdefault(key, []).append(f"{cell.seed}{pilot}")
    return [
        f"{', '.join(filter(None, key))}: seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        for key, seeds in found.items()
    ]


def _seeds(study: Study, figure: StudyFigure) -> str:
    """Which seeds are behind a figure, and what its intervals are."""
    if figure.needs == "selections":
        by_place: dict[tuple[str, str], list[int]] = {}
        for item in study.reported:
            by_place.setdefault((item.panel, item.method), []).append(item.seed)
        groups = list(by_place.values())
    else:
        groups = [sorted(place.runs) for place in tables.places(study, figure.name).values()]
    counts = sorted({len(seeds) for seeds in groups} - {0})
    if not counts:
        return "No run of it has finished."
    known = ", ".join(map(str, sorted({seed for seeds in groups for seed in seeds})))
    if counts == [1]:
        return f"One seed ({known}): any difference may be chance."
    common = len(counts) > 1 and figure.needs != "selections" and not figure.apart
    alike = " A panel shows the seeds that all its methods have." if common else ""
    return f"Means over {layout.seeds(counts)} ({known}).{_intervals(figure, counts)}{alike}"


def _intervals(figure: StudyFigure, counts: Sequence[int]) -> str:
    noun = figure.whiskers
    if not noun:
        return "" if figure.piloted else " The table gives Student's 95 % intervals."
    if counts[-1] < layout.FEW:
        return f" {noun} span the seeds, as two are too few for an interval; the table has Student's, of 95 %."
    few = f", the range where fewer than {layout.FEW} seeds have finished" if counts[0] < layout.FEW else ""
    return f" {noun} and the table give Student's 95 % interval of the mean{few}."


def _versions(study: Study, figure: str) -> list[str]:
    """Of the programs behind a figure's runs; of all runs where it has none of its own."""
    found = {
        study.runs[cell.digest].versions for cell in study.cells if cell.figure == figure and cell.digest in study.runs
    }
    return sorted(found or {run.versions for run in study.runs.values()})
