"""From the names of figures to their runs, records, pictures, verdicts and page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cfcl.errors import CfclError
from cfcl.runs.jobs import Outcome
from cfcl.sim import engines
from cfcl.study import bundle, collect, gallery, plan, report, sweep
from cfcl.study.bundle import Cell, Study
from cfcl.study.plan import PROFILES, Profile
from cfcl.study.progress import SweepProgress


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    figures: Sequence[str]
    profile: str
    panels: Sequence[str] = ()
    """Empty: those that the profile shows."""
    seeds: Sequence[int] = ()
    """Empty: those of the profile."""


@dataclass(frozen=True)
class Ended:
    """What has come of it."""

    study: Study
    folder: Path
    failed: list[Outcome]


def reproduce(
    wish: Wish, out: Path, *, num_workers: int, device: str, overrides: Sequence[str], console: Console
) -> Ended:
    """Do the runs that are not done yet, then draw and judge what is finished of all figures asked for so far."""
    profile = PROFILES[wish.profile]
    plan.check(profile, wish.figures, wish.panels, wish.seeds)
    wanted = plan.plan(profile, wish.figures, wish.panels, wish.seeds, overrides)
    runs = list({run.digest: run for _, run in wanted}.values())
    for run in {(run.name, run.method): run for run in runs}.values():
        engines.check(run, device)  # refuses an impossible run before any has begun
    store, folder = out / "runs", out / wish.profile
    with sweep.opened(store):
        before = _before(folder)
        found = sweep.look(store, runs)
        failed = _sweep(found, store, num_workers=num_workers, device=device, console=console)
        cells = plan.merged(profile, [*before, *(cell for cell, _ in wanted)])
        study = gather(wish.profile, cells, sweep.finished(store), console)
        publish(study, folder)
    return Ended(study, folder, failed)


def named(words: Sequence[str]) -> list[str]:
    """The figures that `words` name, each once; `all` is those of the paper."""
    paper = [figure for figure in plan.FIGURES if figure != "regime"]
    return list(dict.fromkeys(figure for word in words for figure in (paper if word == "all" else [word])))


def publish(study: Study, folder: Path) -> None:
    """Write records, pictures, tables and page of `study`."""
    bundle.write(study, folder)
    draw(study, folder)


def draw(study: Study, folder: Path) -> None:
    """Write what is made from the records: the same bytes for the same records."""
    drawn = gallery.pictures(study)
    gallery.save(drawn, folder)
    report.write(study, drawn, folder)


def insert_verdicts(study: Study, document: Path) -> None:
    """Put the table of verdicts where `document` has a place for it."""
    try:
        text = document.read_text(encoding="utf-8")
        document.write_text(report.insert_verdicts(study, text, str(document)), encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise CfclError(f"cannot put verdicts into {str(document)!r}: {error}; name a Markdown file") from None


def gather(name: str, cells: Sequence[Cell], done: Mapping[str, Path], console: Console) -> Study:
    """What the finished runs in these places of a profile have measured."""
    profile = PROFILES[name]
    finished = [cell for cell in cells if cell.digest in done]
    mapped = {cell.digest for cell in finished if cell.figure == "fig4"}
    digests = dict.fromkeys(cell.digest for cell in finished)
    with console.status(f"reading {len(digests)} runs"):
        found = {digest: collect.record(done[digest]) for digest in digests}
    runs = {digest: run if digest in mapped else collect.without_distances(run) for digest, run in found.items()}
    chosen = []
    for cell in finished:
        if cell.figure == "fig7":
            with console.status(f"selecting under one model: {cell.panel}, seed {cell.seed}"):
                chosen += collect.select(done[cell.digest], cell.panel)
    about = {
        "profile": name,
        "pilot": profile.pilot,
        "milestones": collect.milestones(finished, runs, profile.pilot),
        "notes": notes(profile, cells),
    }
    return Study(about, tuple(cells), runs, tuple(chosen))


def notes(profile: Profile, cells: Sequence[Cell]) -> list[str]:
    """What a reader has to know about these runs."""
    found = []
    for name in dict.fromkeys(cell.panel for cell in cells if cell.figure != "regime"):
        panel = profile.panels[name]
        if panel.steps is not None:
            found.append(f"{name} is shortened to {panel.steps} steps in this profile.")
    return found


def _before(folder: Path) -> Sequence[Cell]:
    """The places of the study that is there."""
    try:
        return bundle.read(folder).cells if (folder / "study.json").exists() else ()
    except CfclError:
        raise CfclError(
            f"the study in {str(folder)!r} cannot be read: remove that folder, and name all figures again"
        ) from None


def _sweep(before: sweep.Sweep, store: Path, *, num_workers: int, device: str, console: Console) -> list[Outcome]:
    if not before.todo:
        return []
    with SweepProgress(console, before.todo, reused=len(before.done), num_workers=num_workers) as bars:
        outcomes = sweep.run(before.todo, store, num_workers=num_workers, device=device, watch=bars.watch)
    return [outcome for outcome in outcomes if outcome.folder is None]
