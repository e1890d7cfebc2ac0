"""Messages as bytes: one safetensors file, whose header holds who, to whom, when, and how many rows. Never pickle."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cfcl.exchange import messages
from cfcl.exchange.messages import Message

KEY = "cfcl"
VERSION = 1
KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        messages.PullRequest,
        messages.DataReserve,
        messages.EmbeddingReserve,
        messages.DataItems,
        messages.EmbeddingItems,
        messages.LocalModel,
        messages.GlobalModel,
        messages.ModelSum,
        messages.ModelBlock,
    )
}
Kinds = Mapping[str, type[Message]]
_PLAIN: dict[str, tuple[type, ...]] = {
    "num_items": (int,),
    "weight": (int, float),
    "effective_candidates": (int, float),
    "reasons": (str,),
}
_WRONG = (ValueError, TypeError, AttributeError, RuntimeError, AssertionError)


class Malformed(ValueError):  # noqa: N818
    """Bytes that are no messages."""


def encode(batch: Sequence[Message]) -> bytes:
    """Messages of one kind as one file: their tensors end to end, everything else as a table of JSON."""
    names = {type(message).__name__ for message in batch}
    assert len(names) <= 1, names
    rows, columns = [], dict[str, list[Tensor]]()
    for message in batch:
        plain, tensors = _taken_apart(message)
        rows.append([plain, {name: len(tensor) for name, tensor in tensors.items()}])
        for name, tensor in tensors.items():
            columns.setdefault(name, []).append(tensor)
    table = {"version": VERSION, "kind": next(iter(names), None), "rows": rows}
    joined = {name: torch.cat(parts).cpu().contiguous() for name, parts in columns.items()}
    # One key only: safetensors writes several in random order.
    return save(joined, metadata={KEY: json.dumps(table, separators=(",", ":"))})


def decode(data: bytes, kinds: Kinds = KINDS) -> list[Message]:
    """The messages in `data`; anything that is not in order is Malformed."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        table = json.loads(header["__metadata__"][KEY])
        if table["version"] != VERSION:
            raise Malformed(f"its version is {table['version']!r}, and ours {VERSION}: use the same release of cfcl")
        if table["kind"] is None:
            return []
        if not isinstance(table["rows"], list):
            raise Malformed("its rows are no list")
        return _put_together(kinds[table["kind"]], table["rows"], load(data))
    except Malformed:
        raise
    except (SafetensorError, ArithmeticError, LookupError, *_WRONG) as error:
        reason = (str(error).splitlines() or ["nothing more is known"])[0]
        raise Malformed(f"{type(error).__name__}: {reason}") from None


def _taken_apart(message: Message) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Plain fields and tensors; those of a mapping by `field.name`."""
    plain: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, Tensor):
            tensors[field.name] = value
        elif isinstance(value, Mapping):
            tensors |= {f"{field.name}.{name}": tensor for name, tensor in value.items()}
        else:
            plain[field.name] = value
    return plain, tensors


def _put_together(kind: type[Message], rows: list[Any], columns: dict[str, Tensor]) -> list[Message]:
    places = dict.fromkeys(columns, 0)
    found: list[Message] = []
    for plain, lengths in rows:
        given = dict(plain)
        if not all(type(given[name]) is int for name in ("source", "target", "step")):
            raise Malformed("source, target and step are not whole numbers")
        for name, length in lengths.items():
            if type(length) is not int or not 0 <= length <= len(columns[name]) - places[name]:
                raise Malformed(f"{name} has {length!r} rows of {len(columns[name])}")
            part = columns[name][places[name] : places[name] + length]
            places[name] += length
            field, dot, inner = name.partition(".")
            if dot:
                given.setdefault(field, {})[inner] = part
            else:
                given[field] = part
        found.append(_checked(kind(**given)))
    if any(places[name] != len(column) for name, column in columns.items()):
        raise Malformed("there are rows that belong to no message")
    return found


def _checked(message: Message) -> Message:
    """A message whose plain fields are numbers and whose others are tensors, as its type says."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        wanted: tuple[type, ...] = _PLAIN.get(field.name, (Tensor,))
        if field.name == "extras":
            fits = isinstance(value, dict) and all(isinstance(tensor, Tensor) for tensor in value.values())
        elif field.name in ("source", "target", "step"):
            fits = True
        else:
            optional = value is None and field.default is None
            fits = optional or (isinstance(value, wanted) and not isinstance(value, bool))
        if not fits:
            raise Malformed(f"{field.name} of {type(message).__name__} is of type {type(value).__name__}")
    return message
