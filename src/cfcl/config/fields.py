"""What the fields of settings are made of: bounds, kinds of numbers, and the section."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict


def _check_place(path: Path) -> Path:
    # A file of settings could not hold such a path, nor a line show it.
    if len(str(path)) > LONGEST_PATH or re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", str(path)):
        raise ValueError(
            f"{str(path)!r:.60} is not a path of up to {LONGEST_PATH} characters without control characters: rename it"
        )
    return path


def _check_tiny(number: float) -> float:
    if number < 1 / LARGEST:
        raise ValueError(f"{number:g} is so near to 0 that what is divided by it has no bounds: give 1e-12 or more")
    return number


LONGEST_PATH = 4096
MOST = 10**9
LARGEST = 1e12
"""Bounds without which a number that makes no sense would fill the memory, or end as infinity or NaN."""

Mode = Literal["explicit", "activations", "implicit"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=MOST)]
PositiveCount = Annotated[int, Field(ge=1, le=MOST)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST), AfterValidator(_check_tiny)]
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=10**4)], ...], Strict(False), Field(max_length=20)]
Place = Annotated[Path, Strict(False), AfterValidator(_check_place)]


class Section(BaseModel):
    """A frozen group of fields that refuses unknown keys, and takes no text or truth value for a number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
