"""From a pile of images and a few labels to a table of predictions."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cfcl.use import classifier, contact, labels, output
from cfcl.use.contact import Cell, Row
from cfcl.use.embedding import Vectors
from cfcl.use.sources import Source

COLUMNS = 10
"""Images of a row of the sheet."""


@dataclass(frozen=True)
class Prediction:
    """What an image without a label is taken for."""

    name: str
    label: str
    confidence: float


@dataclass(frozen=True)
class Classified:
    """What came of a few labels."""

    classes: tuple[str, ...]
    given: tuple[int, ...]
    """Labels of each class."""
    fitted: classifier.Fitted
    predictions: tuple[Prediction, ...]
    """One for each image without a label, in their order."""


def classify(vectors: Vectors, given: labels.Labels) -> Classified:
    """Predictions for all images that have no label."""
    fitted = classifier.fit(torch.from_numpy(vectors.values), given)
    best = fitted.probabilities.max(dim=1)
    known = set(given.positions)
    found = tuple(
        Prediction(name, given.classes[number], confidence)
        for place, (name, number, confidence) in enumerate(
            zip(vectors.names, best.indices.tolist(), best.values.tolist(), strict=True)
        )
        if place not in known
    )
    return Classified(given.classes, tuple(given.counts()), fitted, found)


def to_label(vectors: Vectors, given: labels.Labels | None, number: int) -> list[int]:
    """Which images to label next: their places among the vectors."""
    known = given.positions if given is not None else ()
    return classifier.next_to_label(torch.from_numpy(vectors.values), known, number)


def rows(source: Source, vectors: Vectors, places: Sequence[int]) -> list[Row]:
    """Those of the images, in their order, under their names."""
    cells = [Cell(source.picture(vectors.positions[place]), (vectors.names[place],)) for place in places]
    return [Row(str(start + 1), cells[start : start + COLUMNS]) for start in range(0, len(cells), COLUMNS)]


def write_sheet(path: Path, found: Sequence[Row]) -> None:
    """The contact sheet."""
    output.write(path, contact.png(contact.sheet(found)))


def write(path: Path, predictions: Sequence[Prediction]) -> None:
    """The predictions as a CSV file."""
    rows = [(item.name, item.label, f"{item.confidence:.4f}") for item in predictions]
    _write(path, ("name", "label", "confidence"), rows)


def write_blank(path: Path, names: Sequence[str]) -> None:
    """A table of labels for people to fill in."""
    _write(path, ("name", "label"), [(name, "") for name in names])


def _write(path: Path, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    output.write(path, text.getvalue().encode())
