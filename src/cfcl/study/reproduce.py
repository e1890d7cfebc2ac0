"""From the names of figures to their runs, selections, records, pictures, verdicts and page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cfcl import reading
from cfcl.config import NUMERICS, Config
from cfcl.errors import CfclError
from cfcl.runs import shelf
from cfcl.runs.jobs import Outcome, run_many
from cfcl.sim import engines
from cfcl.study import bundle, collect, pages, plan, report, selections, worlds
from cfcl.study.bundle import Cell, Selection, Study
from cfcl.study.figures import FIGURES
from cfcl.study.profiles import PROFILES
from cfcl.study.progress import StudyProgress
from cfcl.study.report import Report


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    figures: Sequence[str]
    profile: str
    panels: Sequence[str] = ()
    """Empty: those that the profile shows."""
    seeds: Sequence[int] = ()
    """Empty: those of the profile."""
    registered: Mapping[str, str] | None = None
    """Checksum and commit of the file that settled it, if any did."""


@dataclass(frozen=True)
class Ended:
    """What has come of it."""

    report: Report
    folder: Path
    failed: list[Outcome]


def reproduce(
    wish: Wish, out: Path, *, num_workers: int, device: str, overrides: Sequence[str], console: Console
) -> Ended:
    """Do the runs that are not done yet, then draw and judge what is finished of all figures asked for so far.

    What is done is a run folder, or a record in a study that lies in `out` already.
    """
    profile, (wanted, folder, kept) = PROFILES[wish.profile], _looked_up(wish, out, overrides)
    runs = folder.parent / "runs"
    for run in {(run.name, run.method): run for run in _todo(wanted, kept, runs)}.values():
        engines.check(run, device)  # refuses an impossible run before any has begun
    with shelf.opened(runs):
        todo = _todo(wanted, kept, runs)
        reused = len({cell.digest for cell, _ in wanted}) - len(todo)
        failed = _run(todo, runs, reused=reused, num_workers=num_workers, device=device, console=console)
        cells, done = plan.merged(profile, kept, [cell for cell, _ in wanted]), shelf.finished(runs)
        if lost := len(set(kept.runs if kept else ()) - {cell.digest for cell in cells}):
            console.print(f"{lost} kept runs are left out: their presets have changed since, so they would be others")
        chosen = _select(cells, kept, done, folder.parent / "selections", console)
        with console.status(f"reading {len(done)} runs"):
            facts = worlds.facts(cells, kept, done)
            study = collect.gather(wish.profile, cells, kept, done, chosen, wish.registered, facts)
        bundle.write(study, folder)
        found = report.compose(study)
        pages.write(found, folder)
    return Ended(found, folder, failed)


def lacking(wish: Wish, out: Path, overrides: Sequence[str]) -> tuple[list[Config], int]:
    """The runs that `reproduce` would do, and the number of those that are there already."""
    wanted, folder, kept = _looked_up(wish, out, overrides)
    todo = _todo(wanted, kept, folder.parent / "runs")
    return todo, len({cell.digest for cell, _ in wanted}) - len(todo)


def _looked_up(wish: Wish, out: Path, overrides: Sequence[str]) -> tuple[list[tuple[Cell, Config]], Path, Study | None]:
    """The runs that are wanted, the folder of the study, and what is kept there."""
    profile = PROFILES[wish.profile]
    plan.check(profile, wish.figures, wish.panels, wish.seeds)
    wanted = plan.plan(profile, wish.figures, wish.panels, wish.seeds, overrides)
    folder = out if reading.exists(out / "study.json") else out / wish.profile
    return wanted, folder, _kept(folder, wish.profile)


def _kept(folder: Path, profile: str) -> Study | None:
    """The study that is there."""
    if not reading.exists(folder / "study.json"):
        return None
    found = bundle.read(folder)
    if found.about["profile"] != profile:
        raise CfclError(
            f"{str(folder)!r} holds a study of profile {found.about['profile']!r}, not {profile!r}: give that "
            "--profile, or another --out"
        )
    return found


def _todo(wanted: Sequence[tuple[Cell, Config]], kept: Study | None, runs: Path) -> list[Config]:
    """The runs that are neither in the study that is kept nor in a folder, each once."""
    done = shelf.finished(runs)
    lacking = {
        cell.digest: run
        for cell, run in wanted
        if cell.digest not in done and not (kept and FIGURES[cell.figure].known(kept, cell))
    }
    return list(lacking.values())


def _run(
    todo: Sequence[Config], runs: Path, *, reused: int, num_workers: int, device: str, console: Console
) -> list[Outcome]:
    """Do the runs, in order, several at once; a failed one does not stop the others."""
    if not todo:
        return []
    with StudyProgress(console, todo, reused=reused, num_workers=num_workers) as bars:
        outcomes = run_many(todo, out=runs, num_workers=num_workers, device=device, watch=bars.watch, plotted=False)
    return [outcome for outcome in outcomes if outcome.folder is None]


def _select(
    cells: Sequence[Cell], kept: Study | None, done: Mapping[str, Path], selected: Path, console: Console
) -> list[Selection]:
    """What policies select under the final models of some runs, where figures show it: the last thing to simulate."""
    found: list[Selection] = []
    for cell in cells:
        figure = FIGURES[cell.figure]
        if figure.needs != "selections":
            continue
        if kept and figure.known(kept, cell):
            found += [item for item in kept.selections if item.digest == cell.digest]
        elif cell.digest in done and shelf.numerics(done[cell.digest]) == NUMERICS:
            with console.status(f"selecting under one model: {cell.panel}, seed {cell.seed}"):
                found += selections.select(done[cell.digest], cell, selected)
    return found
