"""Numerics versions of a study: what was measured under one is shown by itself, and compared with nothing else."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cfcl.methods import parse
from cfcl.study import measures
from cfcl.study.bundle import Cell, Record, Study

SHARES = (0.5, 0.75, 0.9, 1.0)
"""Milestones: how far from the initial accuracy to that of uniform exchange at the end, both in the pilot."""


def split(study: Study) -> list[Study]:
    """The parts of `study` by version, the newest first; runs that are missing belong to the newest."""
    newest = study.about["numerics"]
    made = {digest: run.numerics for digest, run in study.runs.items()}
    found = sorted({newest, *made.values()}, reverse=True)
    return [study] if found == [newest] else [_part(study, made, version) for version in found]


def _part(study: Study, made: Mapping[str, int], version: int) -> Study:
    newest, pilot = study.about["numerics"], study.about["pilot"]
    cells = tuple(cell for cell in study.cells if made.get(cell.digest, newest) == version)
    runs = {digest: run for digest, run in study.runs.items() if run.numerics == version}
    return replace(
        study,
        about={**study.about, "numerics": version, "milestones": milestones(cells, runs, pilot)},
        cells=cells,
        runs=runs,
        selections=tuple(item for item in study.selections if made.get(item.digest, newest) == version),
    )


def milestones(cells: Iterable[Cell], runs: Mapping[str, Record], pilot: int) -> dict[str, list[float]]:
    """Accuracies to be reached, by panel and mode, from the pilot's uniform exchange."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        method = parse(cell.method)
        if cell.seed == pilot and method.policy == "uniform" and cell.digest in runs:
            run = runs[cell.digest]
            first, last = run.evaluations[0].probe, measures.final(run) / 100
            found[f"{cell.panel} {method.mode}"] = [round(first + share * (last - first), 4) for share in SHARES]
    return found
