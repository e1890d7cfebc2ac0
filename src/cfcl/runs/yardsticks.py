"""What one would use instead of a trained encoder, as a file in the folder of a comparison."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from cfcl import records
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.records import Yardstick

FILE = "baselines.json"
COLUMNS = ("name", "dim", "labels_per_class", "accuracy", "low", "high", "note")


def find(folder: Path) -> tuple[str, tuple[Yardstick, ...]]:
    """The key and the yardsticks in a folder; both empty if it has none."""
    file = folder / FILE
    if not file.is_file():
        return "", ()
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return str(found["key"]), tuple(records.read(Yardstick, row) for row in found["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CfclError(f"{str(file)!r} cannot be read ({error}): remove it, and compare again") from None


def write(file: Path, rows: Sequence[Yardstick], *, key: str = "") -> None:
    """Write yardsticks as JSON, or as CSV if the name of the file ends so."""
    text = _as_csv(rows) if file.suffix == ".csv" else _as_json(rows, key)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode())
    except OSError as error:
        raise CfclError(f"cannot write {str(file)!r}: {error.strerror}; choose another --out") from None


def _as_json(rows: Sequence[Yardstick], key: str) -> str:
    content = {"key": key, "rows": rows}
    return json.dumps(content, indent=1, default=lambda row: row.to_dict()) + "\n"


def _as_csv(rows: Sequence[Yardstick]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        for labels, found in row.accuracies.items():
            writer.writerow([row.name, row.dim, labels, found.mean, found.low, found.high, row.note or ""])
    return text.getvalue()
