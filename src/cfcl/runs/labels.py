"""Accuracies by the number of labels that a probe gets: of runs, and of what one would use instead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cfcl.records import Interval, Yardstick
from cfcl.runs.summary import Summary

INSTEAD = "What you would use instead"


@dataclass(frozen=True)
class Row:
    """One thing that a probe was put on."""

    name: str
    dim: str
    accuracies: Mapping[str, Interval]
    """By the number of labels per class, and `all`."""


def of_summaries(summaries: Iterable[Summary]) -> list[Row]:
    """Embedding and features of every method; nothing if only embeddings with all labels were measured."""
    found = list(summaries)
    if not any(space != "embedding" or len(by) > 1 for row in found for space, by in row.accuracies.items()):
        return []
    return [Row(f"{row.label}, {space}", "", by) for row in found for space, by in row.accuracies.items()]


def of_yardsticks(found: Iterable[Yardstick]) -> list[Row]:
    """What one would use instead."""
    return [Row(row.name + (f" ({row.note})" if row.note else ""), str(row.dim), row.accuracies) for row in found]


def columns(rows: Iterable[Iterable[str]]) -> list[str]:
    """All numbers of labels that occur in rows, smallest first, and `all`."""
    found = {labels for row in rows for labels in row}
    return sorted(found, key=lambda labels: (labels == "all", int(labels) if labels.isdecimal() else 0))


def title(labels: str) -> str:
    """The head of a column."""
    return "all labels" if labels == "all" else f"{labels}/class"


def cell(found: Interval | None) -> str:
    """An accuracy in percent with half of its interval."""
    return "–" if found is None else f"{100 * found.mean:.1f} ±{100 * found.reach:.1f}"
