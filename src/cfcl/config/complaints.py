"""What is wrong with a config, in one line."""

import difflib
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first complaint about a `model`, and how many more there are."""
    errors = error.errors(include_url=False)
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    kind, given, context = first["type"], shown(first["input"]), first.get("ctx", {})
    if kind == "extra_forbidden":
        names = dict(_names(model))
        bare = where.rpartition(".")[2]
        near = [bare] if bare in names else difflib.get_close_matches(where[:80], names, n=1, cutoff=0.5)
        hint = f"did you mean {names[near[0]]!r}? " if near else ""
        return f"{where:.80} is not a known key: {hint}`cfcl config` lists every key{more}"
    if kind == "literal_error":
        return f"{where}={given} is not an option: choose one of {context['expected']}{more}"
    if kind == "value_error":
        return f"{where + ': ' if where else ''}{context['error']}{more}"
    rule = first["msg"].removeprefix("Input should be ").removeprefix("String should ")
    rule = rule.replace("a valid tuple", "a list in brackets, such as [1, 10]")
    return f"{where:.80}={given} is not allowed: it should be {rule}; change {where:.80}{more}"


def shown(value: object) -> str:
    """A value for people, however large it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__}, too large to show,"
    return text if len(text) <= 80 else f"{text[:60]}..."


def _names(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """What somebody may have meant, and how it is written: a key, with or without its section, or a section."""
    for name, info in model.model_fields.items():
        yield name, name
        section: Any = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            for key in section.model_fields:
                yield key, f"{name}.{key}"
                yield f"{name}.{key}", f"{name}.{key}"
