"""Small CSV files of numbers, written by hand: read with care, and every complaint names the line."""

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

from cfcl import reading
from cfcl.config.fields import LARGEST
from cfcl.errors import CfclError


def read(path: Path, columns: Iterable[str]) -> list[tuple[int, list[str]]]:
    """Rows that are not empty, with the lines they end on; the first is the header."""
    try:
        lines = csv.reader(StringIO(reading.text(path, limit=reading.LARGEST_BY_HAND), newline=""))
        rows = [(lines.line_num, row) for row in lines if row]
    except (OSError, ValueError, csv.Error) as error:
        raise CfclError(
            f"cannot read {str(path)!r}: {error}; give a CSV file with the columns {','.join(columns)}"
        ) from None
    return rows or [(1, [])]


def check_header(path: Path, rows: Sequence[tuple[int, list[str]]], columns: tuple[str, ...]) -> None:
    """Refuse a file whose first row is not `columns`."""
    if tuple(cell.strip() for cell in rows[0][1]) != columns:
        given = ",".join(rows[0][1])
        raise CfclError(f"{path}, line 1: header {given!r:.80} is not {','.join(columns)!r}: make it the first line")


_NUMBER = re.compile(r" *[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]{1,3})? *", re.IGNORECASE)
"""What float() takes, without '1_0', 'nan' and digits of other scripts."""


def numbers(row: list[str], width: int, where: str) -> tuple[float, ...]:
    """The `width` numbers of a row."""
    found = tuple(float(cell) for cell in row if len(cell) <= 40 and _NUMBER.fullmatch(cell))
    if len(row) != width or len(found) != width or max(map(abs, found)) > LARGEST:
        raise CfclError(f"{where}: {','.join(row)!r:.60} is not {width} numbers up to {LARGEST:g}: fix the line")
    return found
