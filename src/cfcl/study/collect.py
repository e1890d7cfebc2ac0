"""From run folders, and the study that is kept, to the records of a study."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cfcl.config import NUMERICS
from cfcl.errors import CfclError
from cfcl.records import Evaluation, Pull
from cfcl.runs import folders, shelf
from cfcl.runs.folders import Run
from cfcl.runs.series import selection_seconds
from cfcl.study import measures
from cfcl.study.bundle import Cell, Evaluated, Measured, Selection, Study
from cfcl.study.figures import FIGURES
from cfcl.study.profiles import PROFILES, Profile

FEW = "10"
"""Labels per class, as evaluations name it."""


class Facts(NamedTuple):
    """What is known of a run besides its records, as in `Measured`."""

    raw: int
    new: float | None


def gather(
    name: str,
    cells: Sequence[Cell],
    kept: Study | None,
    done: Mapping[str, Path],
    selections: Sequence[Selection],
    registered: Mapping[str, str] | None = None,
    facts: Mapping[str, Facts] | None = None,
) -> Study:
    """What is known of the runs in these places of a profile, from the study that is kept and from run folders."""
    profile = PROFILES[name]
    runs = _records(cells, kept, done, facts or {})
    today = [cell for cell in cells if cell.digest in runs and runs[cell.digest].numerics == NUMERICS]
    about = {
        "profile": name,
        "pilot": profile.pilot,
        "numerics": NUMERICS,
        "milestones": measures.milestones(today, runs, profile.pilot),
        "notes": _notes(profile, cells),
        **(_settings(profile, cells) if profile.placed else {}),
        **({"registered": dict(registered)} if registered else {}),
    }
    return Study(about, tuple(cells), runs, tuple(selections))


def _settings(profile: Profile, cells: Sequence[Cell]) -> dict[str, dict[str, str]]:
    """The preset of each panel, and in words all that it is."""
    shown = [name for name in dict.fromkeys(cell.panel for cell in cells) if name in profile.panels]
    return {
        "panels": {name: profile.panels[name].preset for name in shown},
        "settings": {name: profile.panels[name].words for name in shown},
    }


def _notes(profile: Profile, cells: Sequence[Cell]) -> list[str]:
    """What a reader has to know about these runs."""
    shown = dict.fromkeys(cell.panel for cell in cells if not FIGURES[cell.figure].apart)
    steps = {name: profile.panels[name].steps for name in shown if name in profile.panels}
    return [f"{name} is shortened to {length} steps in this profile." for name, length in steps.items() if length]


def _records(
    cells: Sequence[Cell], kept: Study | None, done: Mapping[str, Path], facts: Mapping[str, Facts]
) -> dict[str, Measured]:
    """By digest: as kept, or as the run's folder has it where more is shown than was kept."""
    found: dict[str, Measured] = {}
    mapped = {cell.digest for cell in cells if FIGURES[cell.figure].needs == "distances"}
    for digest in dict.fromkeys(cell.digest for cell in cells):
        known = kept.runs.get(digest) if kept else None
        if digest in done and (known is None or (digest in mapped and not known.distances)):
            known = record(done[digest])
        if known is not None and digest in facts:
            known = replace(known, raw=facts[digest].raw, new=facts[digest].new)
        if known is not None:
            found[digest] = known if digest in mapped else _without_distances(known)
    return found


def record(folder: Path) -> Measured:
    """What the run in `folder` measured."""
    run, numerics = folders.load(folder), shelf.numerics(folder)
    _check(run)
    pulls, train, last = run.pulls, run.updates, run.final
    assert last.labels is not None
    assert last.label_distances is not None
    made_with = run.environment.to_dict()
    versions = [f"{name} {made_with.get(name, 'unknown')}" for name in ("cfcl", "torch", "python")]
    return Measured(
        digest=run.config.digest_under(numerics),
        preset=run.config.name,
        method=run.config.method,
        seed=run.config.seed,
        steps=run.config.train.steps,
        separation=last.separation,
        effective_candidates=_mean(pulls, "effective_candidates"),
        num_candidates=run.config.exchange.num_candidates,
        held_labels=_mean(pulls, "held_labels"),
        false_negatives=_false_negatives(pulls, run.setup.labels),
        centroid_distance=_mean(pulls, "centroid_distance"),
        active=statistics.fmean(row.active for row in train),
        pulled_share=statistics.fmean(row.pulled_share for row in train),
        versions=", ".join(versions),
        numerics=numerics,
        evaluations=tuple(_evaluation(run, row) for row in run.evaluations),
        labels=last.labels,
        distances=last.label_distances,
    )


def _check(run: Run) -> None:
    """Refuse a run without what figures show: the sets of a study have labels, and every run has updates."""
    judged = all(row.probe is not None and row.knn is not None for row in run.evaluations)
    held = run.setup.labels is not None and all(run.setup.labels)
    if not (judged and held and run.updates and run.final.labels and run.final.label_distances):
        raise CfclError(
            f"run folder {str(run.folder)!r} is not of a study: it lacks labels, accuracies or updates; remove it, and "
            "run `cfcl reproduce` again"
        )


def _without_distances(run: Measured) -> Measured:
    """The record of a run whose labels no figure shows."""
    return replace(run, labels=(), distances=())


def _evaluation(run: Run, row: Evaluation) -> Evaluated:
    assert row.probe is not None
    assert row.knn is not None
    # What is paid at t = 0 is paid in full by whoever goes on from there, however soon a milestone comes.
    upfront = run.upfront if row.step == 0 else None
    spent = upfront or row
    return Evaluated(
        step=row.step,
        probe=row.probe,
        knn=row.knn,
        cka=row.cka,
        bytes_push=spent.bytes_push,
        bytes_pull=spent.bytes_pull,
        bytes_up=spent.bytes_up,
        seconds=spent.seconds,
        selection=selection_seconds(run, row.step + (upfront is not None)),
        few=(row.few or {}).get(FEW),
        worst_label=row.worst_label,
        worst_device=row.worst_device,
    )


def _false_negatives(pulls: Sequence[Pull], labels: Sequence[Sequence[int]] | None) -> float | None:
    """The mean chance that a pulled item has the label of a point of its receiver, were those evenly spread."""
    known = [(pull.held_labels, pull.receiver) for pull in pulls if pull.held_labels is not None]
    if not known or labels is None:
        return None
    return statistics.fmean(held / len(labels[receiver]) for held, receiver in known)


def _mean(pulls: Sequence[Pull], key: str) -> float | None:
    values = [getattr(pull, key) for pull in pulls if getattr(pull, key) is not None]
    return statistics.fmean(values) if values else None
