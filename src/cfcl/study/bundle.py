"""A study's records as a handful of CSV files: all that figures, tables and verdicts are made from.

`cells.csv` says which run stands where in which figure, `runs.csv` and `evaluations.csv` what the runs measured,
`distances.csv` how far labels lie apart, `selections.csv` what policies select under one model, and `study.json` where
it all comes from.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.methods import MODES, ordered, parse
from cfcl.shown import visible

T = TypeVar("T")

Value = str | int | float
"""A swept setting."""

BIN = 0.05
"""Width of a bin in histograms of distances."""


@dataclass(frozen=True)
class Cell:
    """The place of one run in one figure."""

    figure: str
    """Its name."""
    panel: str
    """Its dataset, such as `usps`, or `usps-short` where runs are shorter than the preset's."""
    method: str
    """Such as `cfcl-explicit`."""
    settings: Mapping[str, Value]
    """What the figure sweeps, by its own name for it, such as `{"devices": 2}`; empty if nothing."""
    seed: int
    digest: str
    """Of the run's config."""


@dataclass(frozen=True)
class Evaluated:
    """The global encoder at one step, and what it had cost by then."""

    step: int
    probe: float
    knn: float
    cka: float | None
    bytes_push: int
    bytes_pull: int
    bytes_up: int
    seconds: float
    """Of the delay model, without selection."""
    selection: float
    """Seconds measured for selection."""

    @property
    def delay(self) -> float:
        """Seconds of the delay model and of selection."""
        return self.seconds + self.selection


@dataclass(frozen=True)
class Measured:
    """What one run measured."""

    digest: str
    preset: str
    method: str
    seed: int
    steps: int
    separation: float | None
    """Mean distance between labels over that within labels, of the final encoder."""
    effective_candidates: float | None
    """Mean over pulls, as the four below."""
    num_candidates: int
    held_labels: float | None
    false_negatives: float | None
    """The chance that a pulled item has the label of a point of its receiver, were those evenly spread over labels."""
    centroid_distance: float | None
    active: float
    """Mean share of triplets with a loss."""
    pulled_share: float
    versions: str
    numerics: int
    """The version of numerics it was made under."""
    evaluations: tuple[Evaluated, ...] = ()
    labels: tuple[int, ...] = ()
    distances: tuple[tuple[float, ...], ...] = ()
    """Mean embedding distance between pairs of `labels`; empty where no figure shows it."""


@dataclass(frozen=True)
class Selection:
    """What one policy selects under one model, in one world."""

    digest: str
    """Of the run whose final model it is."""
    panel: str
    seed: int
    method: str
    """Such as `uniform-implicit`."""
    items: int
    distance: float
    """Mean distance of an item to the nearest centroid of its receiver."""
    held: float
    """Share of items whose label the receiver has already."""
    histogram: tuple[int, ...]
    """Items by distance, in bins of width BIN from 0."""
    mean_distance: float | None = None
    """Mean distance of an item to all centroids of its receiver; records of numerics 1 do not have it."""


@dataclass(frozen=True)
class Study:
    """All of it."""

    about: Mapping[str, Any]
    """`profile`, `pilot` (a seed), `notes`, `milestones` (accuracies by panel and mode), and `numerics`: the version
    of runs that are not there yet."""
    cells: tuple[Cell, ...]
    runs: Mapping[str, Measured]
    """By digest."""
    selections: tuple[Selection, ...] = ()

    @property
    def figures(self) -> list[str]:
        """Those that have cells, in order."""
        return sorted({cell.figure for cell in self.cells}, key=lambda name: (len(name), name))

    def panels(self, figure: str) -> list[str]:
        """The panels of a figure, in order of appearance."""
        return list(dict.fromkeys(cell.panel for cell in self.cells if cell.figure == figure))

    def methods(self, figure: str, mode: str | None = None) -> list[str]:
        """The methods of a figure in the order of legends, baselines of no mode included."""
        found = (cell.method for cell in self.cells if cell.figure == figure)
        return ordered(item for item in found if mode is None or parse(item).mode in ("", mode))

    def modes(self, figure: str) -> list[str]:
        """The modes that a figure shows; both if it has methods without exchange only."""
        found = {parse(item).mode for item in self.methods(figure)}
        return [item for item in MODES if item in found] or list(MODES)

    def values(self, figure: str, key: str, panel: str | None = None) -> list[Value]:
        """What a figure sweeps under `key`: numbers from low to high, words in order of appearance."""
        cells = [cell for cell in self.cells if cell.figure == figure and panel in (None, cell.panel)]
        found = dict.fromkeys(cell.settings[key] for cell in cells if key in cell.settings)
        numbers = all(isinstance(value, int | float) for value in found)
        return sorted(found, key=float) if numbers else list(found)

    @property
    def reported(self) -> list[Selection]:
        """Selections of items, without the pilot's."""
        return [item for item in self.selections if item.seed != self.about["pilot"] and item.items]

    def find(self, figure: str, panel: str, method: str, **settings: Value) -> dict[int, Measured]:
        """The finished runs at one place of a figure, by seed; the pilot is none of them."""
        return {
            cell.seed: self.runs[cell.digest]
            for cell in self.cells
            if (cell.figure, cell.panel, cell.method) == (figure, panel, method)
            and all(cell.settings.get(key) == value for key, value in settings.items())
            and cell.seed != self.about["pilot"]
            and cell.digest in self.runs
        }

    def milestones(self, panel: str, mode: str) -> list[float]:
        """Accuracies to be reached, from low to high, set by the pilot; empty without one."""
        return list(self.about["milestones"].get(f"{panel} {mode}", []))


def write(study: Study, folder: Path) -> None:
    """The files of `study`; the same study gives the same bytes, and an interruption loses nothing that was there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in _write(study, folder):
            part.replace(part.with_suffix(""))
    except OSError as error:
        raise CfclError(f"cannot write records to {str(folder)!r}: {error.strerror}; choose another folder") from None


def _write(study: Study, folder: Path) -> list[Path]:
    """All files beside those they replace, in an order in which each may refer to the earlier ones only."""
    runs = sorted(study.runs.values(), key=lambda run: (run.preset, run.method, run.seed, run.digest))
    evaluations = ([run.digest, *_words(item)] for run in runs for item in run.evaluations)
    distances = (
        [run.digest, label, other, value]
        for run in runs
        for label, row in zip(run.labels, run.distances, strict=True)
        for other, value in zip(run.labels, row, strict=True)
    )
    about = folder / "study.json.part"
    write_atomically(about, (json.dumps(study.about, indent=1) + "\n").encode())
    return [
        _table(folder / "evaluations.csv.part", ["digest", *_names(Evaluated)], evaluations),
        _table(folder / "distances.csv.part", ["digest", "label", "other", "distance"], distances),
        _table(folder / "runs.csv.part", _SCALARS, (_words(run)[: len(_SCALARS)] for run in runs)),
        _table(folder / "selections.csv.part", _names(Selection), map(_words, study.selections)),
        _table(folder / "cells.csv.part", _names(Cell), map(_words, study.cells)),
        about,
    ]


def read(folder: Path) -> Study:
    """The study whose files are in `folder`."""
    try:
        about = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        evaluations = _by_digest(_rows(folder / "evaluations.csv"))
        distances = _by_digest(_rows(folder / "distances.csv"))
        runs = [_run(row, evaluations, distances) for row in _rows(folder / "runs.csv")]
        return Study(
            about=about,
            cells=tuple(_parsed(Cell, row) for row in _rows(folder / "cells.csv")),
            runs={run.digest: run for run in runs},
            selections=tuple(_parsed(Selection, row) for row in _rows(folder / "selections.csv")),
        )
    except FileNotFoundError as error:
        raise CfclError(
            f"{str(folder)!r} holds no study: {Path(str(error.filename)).name} is missing; give a folder that "
            "`cfcl reproduce` wrote"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CfclError(
            f"the study in {str(folder)!r} cannot be read ({type(error).__name__}: {error}); run `cfcl reproduce` again"
        ) from None


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


_SCALARS = _names(Measured)[:-3]
"""Without evaluations, labels and distances, which have files of their own."""
_READERS: Mapping[Any, Any] = {
    str: visible,
    int: int,
    float: float,
    float | None: lambda text: float(text) if text else None,
    tuple[int, ...]: lambda text: tuple(int(word) for word in text.split()),
    Mapping[str, Value]: lambda text: json.loads(text, object_hook=_shown),
}
"""From the text in a file to a field's type."""


def _shown(settings: dict[str, Any]) -> dict[str, Any]:
    """Names and words may come from anywhere, and are drawn and printed."""
    return {visible(key): visible(value) if isinstance(value, str) else value for key, value in settings.items()}


def _words(item: Any) -> list[Any]:
    """A value as a row."""
    return [_word(getattr(item, name)) for name in _names(type(item))]


def _word(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True)
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


_LATER = {"mean_distance"}
"""Columns that files written earlier do not have."""


def _parsed(kind: type[T], row: Mapping[str, str], **others: Any) -> T:
    """A row as a value; `others` are the fields that have files of their own."""
    types: Any = {field.name: field.type for field in fields(kind) if field.name not in others}  # type: ignore[arg-type]
    known = {name: wanted for name, wanted in types.items() if name in row or name not in _LATER}
    return kind(**{name: _READERS[wanted](row[name]) for name, wanted in known.items()}, **others)


def _table(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    write_atomically(path, text.getvalue().encode())
    return path


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _by_digest(rows: Iterable[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row["digest"], []).append(row)
    return found


def _run(
    row: dict[str, str], evaluations: dict[str, list[dict[str, str]]], distances: dict[str, list[dict[str, str]]]
) -> Measured:
    pairs = distances.get(row["digest"], [])
    values = [float(pair["distance"]) for pair in pairs]
    size = math.isqrt(len(values))
    return _parsed(
        Measured,
        row,
        evaluations=tuple(_parsed(Evaluated, item) for item in evaluations.get(row["digest"], [])),
        labels=tuple(int(pair["other"]) for pair in pairs[:size]),
        distances=tuple(tuple(values[start : start + size]) for start in range(0, len(values), size or 1)),
    )
