"""A run between two steps as one safetensors file, and back: tensors, and a table of JSON that says what they are.

Only the types listed here can come out of such a file. Never pickle.
"""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cfcl.core.optimisers import Moments
from cfcl.device import DeviceState
from cfcl.exchange.messages import RESERVES, SERVER
from cfcl.models import Weights
from cfcl.protocol.codec import Malformed
from cfcl.protocol.parties import Run

Tree = dict[str, Any]
"""Plain values, tensors and the types below, nested."""

KEY = "cfcl"
WRONG = (ValueError, TypeError, AttributeError, RuntimeError, AssertionError, LookupError, ArithmeticError)
"""What a file that is not in order can raise wherever it is looked at."""
TYPES: dict[str, type] = {kind.__name__: kind for kind in (Weights, Moments, *RESERVES.values())}
# The others are fixed before the first step, or alive within one exchange only.
KEPT = tuple(
    field.name
    for field in dataclasses.fields(DeviceState)
    if field.name not in ("id", "points", "candidates", "requests", "asked")
)
"""What of a device is part of a snapshot."""


def of(run: Run) -> Tree:
    """All that the process of `run` knows of its own devices, and what all processes know."""
    return {
        "step": run.step,
        "devices": {i: {name: getattr(state, name) for name in KEPT} for i, state in run.devices.items()},
        "labels": dict(run.pulled_labels),
        "costs": torch.tensor(run.ledger.numbers(), dtype=torch.int64).view(-1, 5),
        "seconds": run.ledger.seconds,
        "refused": run.refused,
        "faults": dict(run.faults),
        "model": run.server.model,
        "extras": dict(run.server.extras),
        "moments": run.server.moments,
        "smooth": run.server.smooth,
    }


def join(trees: list[Tree]) -> Tree:
    """One tree of all devices, from those of several processes."""
    return {
        **trees[0],
        "devices": {i: state for tree in trees for i, state in tree["devices"].items()},
        "labels": {i: labels for tree in trees for i, labels in tree["labels"].items()},
        "costs": torch.cat([tree["costs"] for tree in trees]),
        "refused": sum(tree["refused"] for tree in trees),
        "faults": dict(sum((Counter(tree["faults"]) for tree in trees), Counter())),
    }


def share(tree: Tree, devices: range) -> Tree:
    """What a process that has these devices needs of a whole tree."""
    costs = tree["costs"]
    # A transfer is on the account of the device that receives it, an upload on its sender's.
    holders = torch.where(costs[:, 1] == SERVER, costs[:, 0], costs[:, 1])
    return {
        **tree,
        "devices": {i: tree["devices"][i] for i in devices},
        "labels": {i: labels for i, labels in tree["labels"].items() if i in devices},
        "costs": costs[(holders >= devices.start) & (holders < devices.stop)],
        "refused": tree["refused"] if 0 in devices else 0,
        "faults": tree["faults"] if 0 in devices else {},
    }


def restore(run: Run, tree: Tree) -> None:
    """Make `run`, which has just begun, what it was when `tree` was taken."""
    run.step, run.refused, run.faults = tree["step"], tree["refused"], Counter(tree["faults"])
    run.pulled_labels = {i: labels.cpu() for i, labels in tree["labels"].items()}
    run.ledger.bytes.update(run.ledger.with_numbers(tree["costs"].tolist()).bytes)
    run.ledger.seconds = tree["seconds"]
    for host in run.hosts:
        for i, state in host.devices.items():
            host.devices[i] = dataclasses.replace(state, **tree["devices"][i])
        if host.server is not None:
            known = {name: tree[name] for name in ("model", "extras", "moments", "smooth")}
            host.server = dataclasses.replace(host.server, **known)


def encode(tree: Tree) -> bytes:
    """`tree` as bytes; a tensor that is in it at several places is there once."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    table = json.dumps(_packed(tree, tensors), separators=(",", ":"), allow_nan=False)
    # Copies: what shares memory with another tensor cannot be saved. One key: several are written in random order.
    return save({name: tensor.detach().cpu().clone() for name, tensor in tensors.values()}, metadata={KEY: table})


def decode(data: bytes, device: str | torch.device = "cpu") -> Tree:
    """The tree in `data`, its tensors on `device`; anything that is not in order is Malformed."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        table = json.loads(header["__metadata__"][KEY])
        # Clones: tensors of our own making are aligned in memory, which may decide the last bits of a sum.
        tensors = {name: tensor.clone().to(device) for name, tensor in load(data).items()}
        found = _unpacked(table, tensors)
    except (SafetensorError, RecursionError, *WRONG) as error:
        raise Malformed(reason(error)) from None
    if not isinstance(found, dict):
        raise Malformed("it holds no table")
    return found


def _packed(value: Any, tensors: dict[int, tuple[str, Tensor]]) -> Any:
    """`value` as JSON; tensors are set aside and named."""
    if isinstance(value, Tensor):
        return {"tensor": tensors.setdefault(id(value), (str(len(tensors)), value))[0]}
    if isinstance(value, Mapping):
        return {"map": [[key, _packed(item, tensors)] for key, item in value.items()]}
    if type(value).__name__ in TYPES:
        parts = value if isinstance(value, tuple) else [getattr(value, f.name) for f in dataclasses.fields(value)]
        return {type(value).__name__: [_packed(part, tensors) for part in parts]}
    if isinstance(value, list | tuple):
        return [_packed(item, tensors) for item in value]
    assert value is None or isinstance(value, bool | int | float | str), type(value)
    return value


def _unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, tensors) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "tensor":
        return tensors[content]
    if name == "map":
        if not all(isinstance(key, str | int) for key, _ in content):
            raise ValueError("a key is neither text nor a whole number")
        return {key: _unpacked(item, tensors) for key, item in content}
    return TYPES[name](*(_unpacked(part, tensors) for part in content))


def reason(error: Exception) -> str:
    """What was wrong, in one line."""
    first = (str(error).splitlines() or ["nothing more is known"])[0]
    return f"{type(error).__name__}: {first:.200}"
