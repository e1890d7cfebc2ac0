"""A run between two steps as one safetensors file, and back: tensors, and a table of JSON that says what they are.

Only the types listed here can come out of such a file. Never pickle.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cfcl.core.optimisers import Moments
from cfcl.device import DeviceState, Setting, no_items
from cfcl.exchange.messages import RESERVES, SERVER
from cfcl.exchange.policies import Offering
from cfcl.models import Weights
from cfcl.protocol.codec import Malformed
from cfcl.protocol.parties import Run
from cfcl.protocol.refusals import unlike

Tree = dict[str, Any]
"""Plain values, tensors and the types below, nested."""

KEY = "cfcl"
TYPES: dict[str, type] = {kind.__name__: kind for kind in (Weights, Moments, Offering, *RESERVES.values())}
# The others are fixed before the first step, or alive within one exchange only.
KEPT = tuple(
    field.name
    for field in dataclasses.fields(DeviceState)
    if field.name not in ("id", "points", "candidates", "requests")
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
    }


def restore(run: Run, tree: Tree) -> None:
    """Make `run`, which has just begun, what it was when `tree` was taken."""
    run.step, run.refused = tree["step"], tree["refused"]
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
    except (SafetensorError, RecursionError, ArithmeticError, *_WRONG) as error:
        reason = (str(error).splitlines() or ["nothing more is known"])[0]
        raise Malformed(f"{type(error).__name__}: {reason:.200}") from None
    if not isinstance(found, dict):
        raise Malformed("it holds no table")
    return found


_WRONG = (ValueError, TypeError, AttributeError, RuntimeError, AssertionError, LookupError)


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
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "tensor":
        return tensors[content]
    if name == "map":
        return {key: _unpacked(item, tensors) for key, item in content}
    return TYPES[name](*(_unpacked(part, tensors) for part in content))


def check(setting: Setting, num_points: Sequence[int], tree: Tree) -> None:
    """Malformed if `tree` is no snapshot of a whole run, whose devices have so many points each."""
    try:
        wrong = next(_faults(setting, num_points, tree), None)
    except _WRONG as error:
        wrong = f"it is not of this form ({type(error).__name__}: {error!s:.100})"
    if wrong is not None:
        raise Malformed(wrong)


def _faults(setting: Setting, num_points: Sequence[int], tree: Tree) -> Iterator[str]:
    num_steps = setting.config.train.steps
    if type(tree["step"]) is not int or not 0 < tree["step"] <= num_steps:
        yield f"its step is {tree['step']!r:.40}, not one of 1 to {num_steps}"
    if type(tree["refused"]) is not int or not math.isfinite(tree["seconds"]):
        yield "its counters are no numbers"
    if list(tree["devices"]) != list(range(len(num_points))):
        yield "it is not of this run's devices"
    if not all(some.dtype == torch.int64 for some in (tree["costs"], *tree["labels"].values())):
        yield "its costs or labels are not whole numbers"
    yield from _weight_faults(tree["model"], setting.encoder.initial)
    yield from _extra_faults(tree["extras"], setting.averaged)
    yield from _server_faults(setting, tree)
    for i, state in tree["devices"].items():
        yield from (f"device {i}: {wrong}" for wrong in _device_faults(setting, num_points[i], state))


def _server_faults(setting: Setting, tree: Tree) -> Iterator[str]:
    aggregation, like = setting.config.aggregation, setting.encoder.initial
    moments, smooth = tree["moments"], tree["smooth"]
    if (moments is None) != (aggregation.server == "average") or (smooth is None) != (aggregation.ema == 0):
        yield "it is not of this run's server"
    if moments is not None:
        yield from _moment_faults(moments, like)
    if smooth is not None:
        yield from _weight_faults(smooth, like)


def _device_faults(setting: Setting, num_points: int, state: Tree) -> Iterator[str]:
    if set(state) != set(KEPT):
        yield f"its fields are {sorted(state)}"
    like = setting.encoder.initial
    for weights in (state["weights"], state["anchor"]):
        yield from _weight_faults(weights, like)
    yield from _moment_faults(state["moments"], like)
    yield from _extra_faults(state["extras"], setting.extras)
    for items in (state["pulled"], *(reserve.content for reserve in state["reserves"].values())):
        if (wrong := unlike("what came from others", items, no_items(setting), rows=len(items))) is not None:
            yield wrong
    for places in (*(chosen.positions for chosen in state["own_reserve"].values()), *state["sent"].values()):
        if places.dtype != torch.int64 or bool(((places < 0) | (places >= num_points)).any()):
            yield "places of its points are not among them"
    if not all(type(state[name]) is int and state[name] >= 0 for name in ("pulled_at", "points_seen", "updates")):
        yield "its counters are not whole numbers"
    if not all(math.isfinite(state[name]) for name in ("margin", "active", "scaler")):
        yield "its margin, share or scaler is not finite"


def _moment_faults(moments: Moments, like: Weights) -> Iterator[str]:
    for part in (moments.first, moments.second):
        yield from _weight_faults(Weights(part, like.buffers), like)
    if type(moments.updates) is not int or moments.updates < 0:
        yield "its counters are not whole numbers"


def _weight_faults(weights: Weights, like: Weights) -> Iterator[str]:
    for name, part, wanted in zip(("params", "buffers"), weights, like, strict=True):
        if (wrong := unlike(name, part, wanted)) is not None:
            yield wrong


def _extra_faults(extras: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Iterator[str]:
    if extras.keys() != like.keys():
        yield f"its extra state is {sorted(extras)}, not {sorted(like)}"
    for name in like:
        if (wrong := unlike(name, extras[name], like[name])) is not None:
            yield wrong
