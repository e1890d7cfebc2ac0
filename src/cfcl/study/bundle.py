"""A study's records as a handful of CSV files: all that figures, tables and verdicts are made from.

`cells.csv` says which run stands where in which figure, `runs.csv` and `evaluations.csv` what the runs measured,
`distances.csv` how far labels lie apart, `selections.csv` what policies select under one model, and `study.json` where
it all comes from, with the checksum of each file.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from cfcl import reading
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.records import from_json
from cfcl.study import cells
from cfcl.study.values import BIN as BIN
from cfcl.study.values import Cell as Cell
from cfcl.study.values import Evaluated as Evaluated
from cfcl.study.values import Measured as Measured
from cfcl.study.values import Selection as Selection
from cfcl.study.values import Study as Study
from cfcl.study.values import Value as Value

T = TypeVar("T")

SUMS = "sha256"
"""Where `study.json` has the checksums of the others and of the rest of itself."""


def write(study: Study, folder: Path) -> None:
    """The files of `study`; the same study gives the same bytes, and an interruption loses nothing that was there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = _write(study, folder)
        sums = {part.stem: _sum(reading.text(part)) for part in parts}
        _announce(folder, sums)
        for part in parts:
            part.replace(part.with_suffix(""))
        _write_about(folder, study.about, {**sums, "study.json": _sum(_dumped(study.about))})
    except OSError as error:
        raise CfclError(f"cannot write records to {str(folder)!r}: {error.strerror}; choose another folder") from None


def _announce(folder: Path, sums: Mapping[str, str]) -> None:
    """Let the study that is there accept files of either checksum, for as long as they are replaced one by one."""
    with suppress(FileNotFoundError, ValueError):  # no study, or none that could be read, loses nothing
        about = from_json(reading.text(folder / "study.json"))
        if isinstance(about, dict) and isinstance(known := about.pop(SUMS, None), dict):
            either = {name: f"{known[name]} {sums[name]}" for name in sums.keys() & known.keys()}
            _write_about(folder, about, {**known, **either})


def _write_about(folder: Path, about: Mapping[str, Any], sums: Mapping[str, str]) -> None:
    text = _dumped({**about, SUMS: dict(sorted(sums.items()))}) + "\n"
    write_atomically(folder / "study.json", text.encode())


def _write(study: Study, folder: Path) -> list[Path]:
    """The tables beside those they replace, in an order in which each may refer to the earlier ones only."""
    runs = sorted(study.runs.values(), key=lambda run: (run.preset, run.method, run.seed, run.digest))
    known = [item for run in runs for item in run.evaluations]
    measured, scalars = _written(_names(Evaluated), known), _written(_SCALARS, runs)
    evaluations = (
        [run.digest, *(_word(getattr(item, name)) for name in measured)] for run in runs for item in run.evaluations
    )
    distances = (
        [run.digest, label, other, value]
        for run in runs
        for label, row in zip(run.labels, run.distances, strict=True)
        for other, value in zip(run.labels, row, strict=True)
    )
    return [
        _table(folder / "evaluations.csv.part", ["digest", *measured], evaluations),
        _table(folder / "distances.csv.part", ["digest", "label", "other", "distance"], distances),
        _table(folder / "runs.csv.part", scalars, ([_word(getattr(run, name)) for name in scalars] for run in runs)),
        _table(folder / "selections.csv.part", _names(Selection), map(_words, study.selections)),
        _table(folder / "cells.csv.part", _names(Cell), map(_words, study.cells)),
    ]


def _written(names: Iterable[str], items: Iterable[Any]) -> list[str]:
    """The columns without those that files did not have earlier, and that nothing is known of."""
    found = list(items)
    return [name for name in names if name not in _LATER or any(getattr(item, name) is not None for item in found)]


def read(folder: Path) -> Study:
    """The study whose files are in `folder`, as they were written; those without checksums were written earlier."""
    try:
        about = from_json(reading.text(folder / "study.json"))
        sums = about.pop(SUMS, {}) if isinstance(about, dict) else {}
        if sums and (not isinstance(sums, dict) or _sum(_dumped(about)) != sums.get("study.json")):
            raise _altered(folder / "study.json")
        tables = {name: _checked(folder / name, sums) for name in _TABLES}
        return _study(cells.about(about), {name: _rows(name, text) for name, text in tables.items()})
    except FileNotFoundError as error:
        raise CfclError(
            f"{str(folder)!r} holds no study: {Path(str(error.filename)).name} is missing; give a folder that "
            "`cfcl reproduce` wrote"
        ) from None
    except (OSError, ValueError) as error:
        raise CfclError(
            f"the study in {str(folder)!r} cannot be read ({error}): restore the file, or remove that folder and run "
            "`cfcl reproduce` again for all figures"
        ) from None


def selections(name: str, rows: object) -> list[Selection]:
    """Selections from a file of JSON called `name`; what is none is a ValueError."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{name} is not a list of selections")
    texts = [
        {key: " ".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in row.items()}
        for row in rows
    ]
    return [_parsed(Selection, (name, row)) for row in texts]


def _checked(file: Path, sums: Any) -> str:
    """The text of a file that is as it was written."""
    text = reading.text(file)
    if sums and _sum(text) not in str(sums.get(file.name, "")).split():
        raise _altered(file)
    return text


def _altered(file: Path) -> ValueError:
    return ValueError(f"{file.name} is not as it was written: its checksum differs from the one in study.json")


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _dumped(about: Mapping[str, Any]) -> str:
    return json.dumps(about, indent=1)


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


_SCALARS = _names(Measured)[:-3]
"""Without evaluations, labels and distances, which have files of their own."""
_TABLES = ("evaluations.csv", "distances.csv", "runs.csv", "selections.csv", "cells.csv")
_READERS: Mapping[Any, Any] = {
    str: cells.word,
    int: cells.whole,
    float: cells.number,
    int | None: lambda text: cells.whole(text) if text else None,
    float | None: lambda text: cells.number(text) if text else None,
    tuple[int, ...]: lambda text: tuple(cells.whole(word) for word in text.split(" ")),
    Mapping[str, Value]: cells.settings,
}
"""From the text in a file to a field's type."""
Row = tuple[str, Mapping[str, str]]
"""Where it stands, and its cells by column."""


def _words(item: Any) -> list[Any]:
    """A value as a row."""
    return [_word(getattr(item, name)) for name in _names(type(item))]


def _word(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True)
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


_LATER = {"mean_distance", "few", "worst_label", "worst_device", "raw", "new"}
"""Columns that files written earlier do not have."""


def _parsed(kind: type[T], row: Row, **others: Any) -> T:
    """A row as a value; `others` are the fields that have files of their own."""
    where, found = row
    types: Any = {field.name: field.type for field in fields(kind) if field.name not in others}  # type: ignore[arg-type]
    known = {name: wanted for name, wanted in types.items() if name in found or name not in _LATER}
    values = {name: _cell(where, found, name, _READERS[wanted]) for name, wanted in known.items()}
    return kind(**values, **others)


def _cell(where: str, row: Mapping[str, str], name: str, reader: Any) -> Any:
    try:
        return cells.in_range(name, reader(row[name]))
    except KeyError:
        raise ValueError(f"{where}: the column {name} is missing") from None
    except ValueError as error:
        raise ValueError(f"{where}: {name}={row[name]!r:.40} is not {error}") from None


def _table(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    write_atomically(path, text.getvalue().encode())
    return path


def _rows(name: str, text: str) -> list[Row]:
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = next(lines, [])
        found = [(f"{name} line {lines.line_num}", row) for row in lines]
    except csv.Error as error:
        raise ValueError(f"{name} line {lines.line_num}: {error}") from None
    for where, row in found:
        if len(row) != len(head) or len(set(head)) != len(head):
            raise ValueError(f"{where}: it has {len(row)} cells, and the header {len(set(head))} columns")
    return [(where, dict(zip(head, row, strict=True))) for where, row in found]


def _study(about: Mapping[str, Any], tables: Mapping[str, list[Row]]) -> Study:
    evaluations, distances = (_by_digest(tables[name]) for name in ("evaluations.csv", "distances.csv"))
    runs = [_run(row, evaluations, distances) for row in tables["runs.csv"]]
    places = [_parsed(Cell, row) for row in tables["cells.csv"]]
    for name, found in (("runs.csv", [run.digest for run in runs]), ("cells.csv", [_words(cell) for cell in places])):
        if len({str(item) for item in found}) != len(found):
            raise ValueError(f"{name} has a row twice")
    return Study(
        about=about,
        cells=tuple(places),
        runs={run.digest: run for run in runs},
        selections=tuple(_parsed(Selection, row) for row in tables["selections.csv"]),
    )


def _by_digest(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for where, row in rows:
        found.setdefault(_cell(where, row, "digest", cells.word), []).append((where, row))
    return found


def _run(row: Row, evaluations: Mapping[str, list[Row]], distances: Mapping[str, list[Row]]) -> Measured:
    digest = _cell(*row, "digest", cells.word)
    pairs = distances.get(digest, [])
    values = [_cell(*pair, "distance", cells.number) for pair in pairs]
    size = math.isqrt(len(values))
    labels = tuple(_cell(*pair, "other", cells.whole) for pair in pairs[:size])
    curve = tuple(_parsed(Evaluated, item) for item in evaluations.get(digest, []))
    if size * size != len(values) or len(set(labels)) != size:
        raise ValueError(f"distances.csv has no square of the labels of {digest!r:.20}")
    if not curve or any(one.step >= other.step for one, other in pairwise(curve)):
        raise ValueError(f"evaluations.csv has no steps of {digest!r:.20} in order")
    return _parsed(
        Measured,
        row,
        evaluations=curve,
        labels=labels,
        distances=tuple(tuple(values[start : start + size]) for start in range(0, len(values), size or 1)),
    )
