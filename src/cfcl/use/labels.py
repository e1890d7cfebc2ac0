"""The labels that people give: a table of names and labels, of a few images."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cfcl import reading
from cfcl.errors import CfclError

FEWEST = 2
"""Labels of a class: one to learn from while the other is guessed."""
MOST_CLASSES = 1000


@dataclass(frozen=True)
class Labels:
    """Some positions among images, and the class of each."""

    positions: tuple[int, ...]
    numbers: tuple[int, ...]
    """The class of each position."""
    classes: tuple[str, ...]

    def counts(self) -> list[int]:
        """Labels of each class."""
        found = Counter(self.numbers)
        return [found[number] for number in range(len(self.classes))]


def read(path: Path) -> dict[str, str]:
    """Label by name, from a CSV file with columns `name` and `label`; a row without a label is one to be filled in."""
    try:
        rows = list(csv.DictReader(io.StringIO(reading.text(path, limit=reading.LARGEST_BY_HAND)), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CfclError(f"labels {str(path)!r} cannot be read ({reason}): {_FORM}") from None
    found: dict[str, str] = {}
    for number, row in enumerate(rows, start=2):
        name, label = (str(row.get(key) or "").strip() for key in ("name", "label"))
        if row.get("name") is None or "label" not in row or None in row:
            raise CfclError(f"labels {str(path)!r}, line {number}: not a `name` and a `label` ({_FORM})")
        if label and found.get(name, label) != label:
            raise CfclError(
                f"labels {str(path)!r}, line {number}: {name!r} is {label!r} here and {found[name]!r} above: remove one"
            )
        if label:
            found[name] = label
    if not found:
        raise CfclError(f"labels {str(path)!r} hold no label: {_FORM}")
    return found


def match(given: Mapping[str, str], names: Sequence[str], unreadable: Iterable[str] = ()) -> Labels:
    """The labels of those images, which they must be of; those that could not be read are left out."""
    places = {name: place for place, name in enumerate(names)}
    lost = set(unreadable)
    for name in given:
        if name not in places and name not in lost:
            raise CfclError(
                f"{name!r} has a label, but is none of the {len(names):,} images, the first of which is "
                f"{next(iter(names), '')!r}: correct or remove it"
            )
    known = {name: label for name, label in given.items() if name in places}
    classes = tuple(sorted(set(known.values()), key=_in_order))
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise CfclError(
            f"the labels are of {len(classes)} class{'' if len(classes) == 1 else 'es'} "
            f"({', '.join(map(repr, classes[:3]))}), but it takes 2 to {MOST_CLASSES:,} to tell apart: label others"
        )
    numbers = {label: number for number, label in enumerate(classes)}
    ordered = sorted(known, key=places.__getitem__)
    found = Labels(tuple(places[name] for name in ordered), tuple(numbers[known[name]] for name in ordered), classes)
    for label, count in zip(classes, found.counts(), strict=True):
        if count < FEWEST:
            raise CfclError(
                f"class {label!r} has {count} label, but each needs {FEWEST}, one to learn from while the other is "
                "guessed: label another image of it, or remove this one"
            )
    return found


_FORM = "it is a CSV file in UTF-8 with a line `name,label` and one line for each labelled image"


def _in_order(label: str) -> tuple[int, str]:
    """Numbers by their size, then words."""
    return (int(label), "") if label.isascii() and label.isdigit() and len(label) < 10 else (10**10, label)
