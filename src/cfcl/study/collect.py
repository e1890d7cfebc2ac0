"""From run folders to the records of a study."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from cfcl import config as configs
from cfcl.models import load_encoder
from cfcl.records import Evaluation as Measured
from cfcl.records import Pull
from cfcl.runs import folders
from cfcl.runs.folders import Run
from cfcl.runs.series import selection_seconds
from cfcl.sim import selections
from cfcl.study import measures
from cfcl.study.bundle import BIN, Cell, Evaluation, Record, Selection
from cfcl.study.plan import COMPARED, MODES, OURS

SHARES = (0.5, 0.75, 0.9, 1.0)
"""Milestones: how far from the initial accuracy to that of uniform exchange at the end, both in the pilot."""
MOMENTS = 5
"""Exchanges, spread over the run, at which policies select under one model."""
SELECTING = tuple(f"{method}-{mode}" for mode in MODES for method in (*COMPARED, *OURS) if method != "bulk")


def record(folder: Path) -> Record:
    """What the run in `folder` measured."""
    run = folders.load(folder)
    pulls, train, last = run.pulls, run.updates, run.final
    assert last.labels is not None  # the sets of a study have labels
    assert last.label_distances is not None
    made_with = run.environment.to_dict()
    versions = [f"{name} {made_with[name]}" for name in ("cfcl", "torch", "python")]
    return Record(
        digest=run.config.digest,
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
        evaluations=tuple(_evaluation(run, row) for row in run.evaluations),
        labels=last.labels,
        distances=last.label_distances,
    )


def without_distances(run: Record) -> Record:
    """The record of a run whose labels no figure shows."""
    return replace(run, labels=(), distances=())


def milestones(cells: Iterable[Cell], runs: Mapping[str, Record], pilot: int) -> dict[str, list[float]]:
    """Accuracies to be reached, by panel and mode, from the pilot's uniform exchange."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        method, _, mode = cell.method.partition("-")
        if cell.figure == "fig6" and cell.seed == pilot and method == "uniform" and cell.digest in runs:
            run = runs[cell.digest]
            first, last = run.evaluations[0].probe, measures.final(run)
            found[f"{cell.panel} {mode}"] = [round(first + share * (last - first), 4) for share in SHARES]
    return found


def select(folder: Path, panel: str) -> list[Selection]:
    """What policies select under the final model of the run in `folder`, which is kept beside its records."""
    kept = folder / "selections.json"
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else []
    if [row["method"] for row in rows] != list(SELECTING):
        rows = [asdict(item) for item in _select(folders.load(folder), panel)]
        part = kept.with_suffix(".part")
        part.write_text(json.dumps(rows) + "\n", encoding="utf-8")
        part.replace(kept)
    return [Selection(**{**row, "panel": panel, "histogram": tuple(row["histogram"])}) for row in rows]


def _select(run: Run, panel: str) -> list[Selection]:
    model = load_encoder(run.folder).weights
    exchange, steps = run.config.exchange, run.config.train.steps
    times = max(1, (steps - 1) // exchange.period)
    moments = sorted({exchange.period * -(-times * part // MOMENTS) for part in range(1, MOMENTS + 1)})
    found = []
    for method in SELECTING:
        picks = selections.select(configs.with_method(run.config, method), model, moments)
        bins = (picks.distances / BIN).long().bincount()
        found.append(
            Selection(
                panel=panel,
                seed=run.config.seed,
                method=method,
                items=len(picks.distances),
                distance=float(picks.distances.double().mean()),
                held=float(picks.held.double().mean()),
                histogram=tuple(bins.tolist()),
            )
        )
    return found


def _evaluation(run: Run, row: Measured) -> Evaluation:
    assert row.probe is not None
    assert row.knn is not None
    return Evaluation(
        step=row.step,
        probe=row.probe,
        knn=row.knn,
        cka=row.cka,
        bytes_push=row.bytes_push,
        bytes_pull=row.bytes_pull,
        bytes_up=row.bytes_up,
        seconds=row.seconds,
        selection=selection_seconds(run, row.step),
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
