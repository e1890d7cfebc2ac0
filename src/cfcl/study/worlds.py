"""What is asked of a run's data and devices besides its records: worked out with the engine, once."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from cfcl.runs import folders
from cfcl.sim import overlap
from cfcl.study.bundle import Cell, Study
from cfcl.study.collect import Facts
from cfcl.study.figures import FIGURES
from cfcl.study.lines import ESTIMATED
from cfcl.use import load_encoder


def facts(cells: Sequence[Cell], kept: Study | None, done: Mapping[str, Path]) -> dict[str, Facts]:
    """By digest, of finished runs of which it is not kept; what is new to devices, where a figure shows it."""
    estimated = {cell.digest for cell in cells if FIGURES[cell.figure].needs == "overlap" and cell.method == ESTIMATED}
    found = {}
    for digest in dict.fromkeys(cell.digest for cell in cells if cell.digest in done):
        known = kept.runs.get(digest) if kept else None
        raw, new = (known.raw, known.new) if known else (None, None)
        if raw is None:
            raw = raw_bytes(done[digest])
        if new is None and digest in estimated:
            new = overlap.measure(folders.config_at(done[digest])).new
        found[digest] = Facts(raw, new)
    return found


def raw_bytes(folder: Path) -> int:
    """Of all training data of all devices of a run, one for each value of a pixel."""
    return prod(load_encoder(folder).image_shape) * sum(folders.load(folder).setup.points)
