"""Ways to spoil a file of safetensors: its header, the table of JSON that is in it, its tensors."""

import json
import math
import struct
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from spoiling import words
from torch import Tensor

ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3, 2**31, 2**63, 10**30, 10**400, -(10**400)),
    *(1.5, -0.5, 1e-320, 1e308, math.nan, math.inf, -math.inf, "", "0", "nan", "\n", "x" * 3000),
    *([], [[]], {}, {"map": []}, {"tensor": "0"}, {"tensor": "absent"}, {"map": [[[], 1]]}),
)
"""Values that JSON can have, and a table of ours should not have just there."""
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)


def header(rng: Random, data: bytes) -> bytes:
    """A word of the header is another one; its length is what it then has."""
    before, rest = _split(data)
    return _joined(words(rng, before), rest)


def table(rng: Random, data: bytes) -> bytes:
    """Something in the table of JSON that stands in the header is gone, something else, or twice."""
    before, rest = _split(data)
    try:
        found = json.loads(before)
        tree = [json.loads(found["__metadata__"]["cfcl"])]
    except (ValueError, LookupError, TypeError, RecursionError):
        return words(rng, data)
    for _ in range(rng.choice([1, 1, 1, 2])):
        _alter(rng, tree)
    found["__metadata__"]["cfcl"] = json.dumps(tree[0] if tree else None, separators=(",", ":"))
    return _joined(json.dumps(found).encode(), rest)


def tensors(rng: Random, data: bytes) -> bytes:
    """A tensor has another shape, type or value, the place of another, or is gone; or there is one more."""
    try:
        metadata = json.loads(_split(data)[0])["__metadata__"]
        found = load(data)
        name, other = rng.choice(sorted(found)), rng.choice(sorted(found))
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError):
        return words(rng, data)
    match rng.randrange(6):
        case 0:
            del found[name]
        case 1:
            found[rng.choice([f"{len(found)}", f"x{name}"])] = found[name].clone()
        case 2:
            found[name], found[other] = found[other].clone(), found[name].clone()
        case _:
            found[name] = rng.choice(_CHANGES)(rng, found[name]).contiguous().clone()
    return save(found, metadata=metadata)


def _split(data: bytes) -> tuple[bytes, bytes]:
    size = struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0] % 1_000_000
    return data[8 : 8 + size], data[8 + size :]


def _joined(text: bytes, rest: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text + rest


def _alter(rng: Random, tree: list[Any]) -> None:
    places = list(_places(tree))
    if not places:
        return
    inside, key = rng.choice(places)
    match rng.randrange(8):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, list):
            inside.insert(key, inside[key])
        case 1:
            names = [place for where, place in places if isinstance(where, dict)]
            inside[rng.choice([*names, "x"])] = inside.pop(key)
        case 2 | 3:
            where, place = rng.choice(places)
            inside[key] = deepcopy(where[place])
        case _:
            inside[key] = deepcopy(rng.choice(ODD))


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every value in a tree, as that which holds it and its place there."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        inside = waiting.pop()
        keys: Any = range(len(inside)) if isinstance(inside, list) else list(inside)
        found += [(inside, key) for key in keys]
        waiting += [inside[key] for key in keys if isinstance(inside[key], list | dict)]
    return found


def _value(rng: Random, tensor: Tensor) -> Tensor:
    """One entry, or all, of a value that was not there."""
    floats = (math.nan, math.inf, -math.inf, 1e30, -1.0, 0.0)
    value = rng.choice(floats if tensor.is_floating_point() else (0, 1, 99, 255))
    if not tensor.is_floating_point() and tensor.dtype == torch.int64:
        value = rng.choice((-1, 2**31, 2**63 - 1, -(2**63)))
    changed = tensor.flatten().clone()
    changed[rng.randrange(len(changed)) if len(changed) and rng.random() < 0.7 else slice(None)] = value
    return changed.view(tensor.shape)


_CHANGES: tuple[Callable[[Random, Tensor], Tensor], ...] = (
    _value,
    _value,
    lambda rng, tensor: tensor.to(rng.choice(DTYPES)),
    lambda rng, tensor: tensor.flatten(),
    lambda rng, tensor: tensor.unsqueeze(rng.randint(0, tensor.ndim)),
    lambda rng, tensor: tensor[: rng.randint(0, 2)] if tensor.ndim else tensor.view(1),
    lambda rng, tensor: torch.cat([tensor, tensor]) if tensor.ndim else tensor.view(1),
    lambda rng, tensor: tensor.transpose(0, -1) if tensor.ndim else tensor.view(1),
    lambda rng, tensor: tensor.flatten()[0] if tensor.numel() else tensor.flatten(),
)
