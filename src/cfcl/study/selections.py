"""What policies select under the final model of a finished run: worked out once, and kept beside the runs."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from cfcl import config as configs
from cfcl import reading
from cfcl.files import write_atomically
from cfcl.methods import MODES
from cfcl.records import from_json
from cfcl.runs import folders
from cfcl.runs.folders import Run
from cfcl.sim import selections
from cfcl.study import bundle
from cfcl.study.bundle import BIN, Cell, Selection
from cfcl.study.figures.figure import COMPARED, OURS
from cfcl.use import load_encoder

MOMENTS = 5
"""Exchanges, spread over the run, at which policies select."""
SELECTING = tuple(f"{method}-{mode}" for mode in MODES for method in (*COMPARED, *OURS) if method != "bulk")


def select(folder: Path, cell: Cell, kept: Path) -> list[Selection]:
    """The selections under the model of the run in `folder`, which is that of `cell`; from `kept` if they are there."""
    file = kept / f"{cell.digest}.json"
    found = _known(file)
    if [item.method for item in found] != list(SELECTING):
        found = _select(folders.load(folder), cell)
        kept.mkdir(parents=True, exist_ok=True)
        write_atomically(file, (json.dumps([asdict(item) for item in found]) + "\n").encode())
    return [replace(item, panel=cell.panel) for item in found]


def _known(file: Path) -> list[Selection]:
    """What was selected before; nothing of a file that is missing or damaged, since it can be made again."""
    try:
        return bundle.selections(file.name, from_json(reading.text(file)))
    except (OSError, ValueError):
        return []


def _select(run: Run, cell: Cell) -> list[Selection]:
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
                digest=cell.digest,
                panel=cell.panel,
                seed=run.config.seed,
                method=method,
                items=len(picks.distances),
                distance=float(picks.distances.double().mean()),
                held=float(picks.held.double().mean()),
                histogram=tuple(bins.tolist()),
                mean_distance=float(picks.mean_distances.double().mean()),
            )
        )
    return found
