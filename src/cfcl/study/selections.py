"""What policies select under the final model of a finished run: worked out once, and kept beside the runs."""

import json
from dataclasses import asdict
from pathlib import Path

from cfcl import config as configs
from cfcl.files import write_atomically
from cfcl.methods import MODES
from cfcl.models import load_encoder
from cfcl.runs import folders
from cfcl.runs.folders import Run
from cfcl.sim import selections
from cfcl.study.bundle import BIN, Cell, Selection
from cfcl.study.figures.figure import COMPARED, OURS

MOMENTS = 5
"""Exchanges, spread over the run, at which policies select."""
SELECTING = tuple(f"{method}-{mode}" for mode in MODES for method in (*COMPARED, *OURS) if method != "bulk")


def select(folder: Path, cell: Cell, kept: Path) -> list[Selection]:
    """The selections under the model of the run in `folder`, which is that of `cell`; from `kept` if they are there."""
    file = kept / f"{cell.digest}.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    if [row["method"] for row in rows] != list(SELECTING):
        rows = [asdict(item) for item in _select(folders.load(folder), cell)]
        kept.mkdir(parents=True, exist_ok=True)
        write_atomically(file, (json.dumps(rows) + "\n").encode())
    return [Selection(**{**row, "panel": cell.panel, "histogram": tuple(row["histogram"])}) for row in rows]


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
