"""The cells of a study's tables, and the head of it: from text to values, and nothing that would break a figure."""

import re
from collections.abc import Mapping
from typing import Any

from cfcl.records import LARGEST, from_json

_LOWEST = {"cka", "effective_candidates", "mean_distance", "centroid_distance"}
"""Measures that rounding may put below 0."""
_SHARES = {
    *("probe", "few", "worst_label", "worst_device", "knn"),
    *("held", "held_labels", "false_negatives", "active", "pulled_share", "new"),
}


def word(text: str) -> str:
    """Text that a line can show."""
    if not text or not text.isprintable() or len(text) > 200:
        raise ValueError("a word of up to 200 characters")
    return text


def whole(text: str) -> int:
    """A whole number, as Python writes it."""
    if not re.fullmatch(r"-?[0-9]{1,30}", text):
        raise ValueError("a whole number")
    return int(text)


def number(text: str) -> float:
    """A finite number, as Python writes it."""
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", text) or abs(found := float(text)) > LARGEST:
        raise ValueError("a finite number")
    return found


def settings(text: str) -> dict[str, str | int | float]:
    """What a figure sweeps, by name."""
    found = from_json(text)
    if not isinstance(found, dict) or not all(type(value) in (str, int, float) for value in found.values()):
        raise ValueError("an object of words and numbers")
    return {word(name): word(value) if isinstance(value, str) else _finite(value) for name, value in found.items()}


def in_range(name: str, value: Any) -> Any:
    """`value` of the column `name`: shares are up to 1, and hardly a number is negative."""
    lowest = -LARGEST if name in _LOWEST else 0
    highest = 1 if name in _SHARES else LARGEST
    for item in value if isinstance(value, tuple) else [value]:
        if isinstance(item, int | float) and not lowest <= item <= highest:
            raise ValueError(f"from {lowest:g} to {highest:g}")
    return value


def about(found: Any) -> Mapping[str, Any]:
    """The head of a study, with what figures and verdicts ask it."""
    kinds = {"profile": str, "pilot": int, "numerics": int, "notes": list, "milestones": dict}
    for name, kind in kinds.items():
        if not isinstance(found, dict) or type(found.get(name)) is not kind:
            raise ValueError(f"study.json has no {name}, or not one of type {kind.__name__}")
    marks = [mark for some in found["milestones"].values() for mark in (some if isinstance(some, list) else [some])]
    if not all(type(mark) in (int, float) and 0 <= mark <= 1 for mark in marks):
        raise ValueError("study.json has milestones that are no accuracies")
    if not all(isinstance(some, list) for some in found["milestones"].values()):
        raise ValueError("study.json has milestones that are no lists")
    if not all(isinstance(note, str) for note in found["notes"]):
        raise ValueError("study.json has notes that are no text")
    for name in ("panels", "settings", "registered"):
        texts = found.get(name, {})
        if not isinstance(texts, dict) or not all(
            isinstance(text, str) and text.isprintable() for text in texts.values()
        ):
            raise ValueError(f"study.json has {name} that are no texts by name")
    if "registered" in found and "commit" not in found["registered"]:
        raise ValueError("study.json has a registration without its commit")
    return dict(found)


def _finite(value: float) -> float:
    if not abs(value) <= LARGEST:
        raise ValueError("an object of words and finite numbers")
    return value
