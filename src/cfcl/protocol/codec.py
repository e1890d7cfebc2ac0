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
        messages.ActivationReserve,
        messages.ActivationItems,
        messages.LocalModel,
        messages.GlobalModel,
        messages.ModelSum,
        messages.ModelBlock,
    )
}
Kinds = Mapping[str, type[Message]]
_DTYPES = (torch.uint8, torch.int64, torch.float32, torch.float64)
_PLACES = {"source", "target", "step", "num_items", "first"}
_PLAIN: dict[str, tuple[type, ...]] = {
    "weight": (int, float),
    "new": (int,),
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
        header = _from_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        table = _from_json(header["__metadata__"][KEY])
        version, kind, rows = table["version"], table["kind"], table["rows"]
        if type(version) is not int or version != VERSION:
            raise Malformed(f"its version is {version!r:.60}, and ours {VERSION}: use the same release of cfcl")
        if not isinstance(rows, list):
            raise Malformed("its rows are no list")
        columns = load(data)
        if kind is None and (rows or columns):
            raise Malformed("there is no kind of message, but there are rows")
        return [] if kind is None else _put_together(kinds[kind], rows, columns)
    except Malformed:
        raise
    except (SafetensorError, ArithmeticError, LookupError, *_WRONG) as error:
        reason = (str(error).splitlines() or ["nothing more is known"])[0]
        raise Malformed(f"{type(error).__name__}: {reason[:200]}") from None


def _from_json(text: bytes | str) -> Any:
    return json.loads(text, object_pairs_hook=_unambiguous)


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("a key occurs twice")
    return found


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
    odd = sorted(name for name, column in columns.items() if column.dtype not in _DTYPES or column.ndim == 0)
    if odd:
        raise Malformed(f"{odd[0]:.60} is a tensor of {columns[odd[0]].dtype} that no message has")
    places = dict.fromkeys(columns, 0)
    found: list[Message] = []
    for row in rows:
        if not isinstance(row, list) or [type(part) for part in row] != [dict, dict]:
            raise Malformed("a row is no pair of objects")
        plain, lengths = row
        given = dict(plain)
        for name in _PLACES & plain.keys():
            if type(plain[name]) is not int or abs(plain[name]) >= 2**63:
                raise Malformed(f"{name} is no whole number of 64 bits")
        for name, length in lengths.items():
            if type(length) is not int or not 0 <= length <= len(columns[name]) - places[name]:
                raise Malformed(f"{name:.60} has {length!r:.60} rows of {len(columns[name])}")
            part = columns[name][places[name] : places[name] + length]
            places[name] += length
            field, dot, inner = name.partition(".")
            if field in plain:
                raise Malformed(f"{field:.60} occurs twice")
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
        if field.name == "extras":
            fits = isinstance(value, dict) and all(isinstance(tensor, Tensor) for tensor in value.values())
        elif field.name in _PLACES:
            fits = type(value) is int
        else:
            optional = value is None and field.default is None
            fits = optional or type(value) in _PLAIN.get(field.name, (Tensor,))
        if not fits:
            raise Malformed(f"{field.name} of {type(message).__name__} is of type {type(value).__name__}")
    return message
