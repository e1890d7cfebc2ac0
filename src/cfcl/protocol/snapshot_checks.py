"""Whether what comes out of a checkpoint can be a run: looked at before any of it is used.

A checkpoint may be damaged, of another run, or made by somebody else.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cfcl.core.optimisers import Moments
from cfcl.device import Setting, no_items
from cfcl.exchange.checks import offering_fault
from cfcl.exchange.cost import DIRECTIONS, KINDS
from cfcl.exchange.messages import SERVER, Direction
from cfcl.models import Weights
from cfcl.protocol.codec import Malformed
from cfcl.protocol.faults import COUNTED
from cfcl.protocol.parties import Parties, Rules
from cfcl.protocol.phases import Push
from cfcl.protocol.refusals import unlike
from cfcl.protocol.snapshot import KEPT, WRONG, Tree, reason
from cfcl.records import LARGEST

MOST = 2**53
"""Of whatever a device counts: a float holds it exactly."""
_PUSH = Push()


def check(rules: Rules, num_points: Sequence[int], tree: Tree) -> None:
    """Malformed if `tree` is no snapshot of a whole run, whose devices have so many points each."""
    try:
        wrong = next(_faults(rules, num_points, tree), None)
    except WRONG as error:
        wrong = f"it is not of this form ({reason(error)})"
    if wrong is not None:
        raise Malformed(wrong)


def _faults(rules: Rules, num_points: Sequence[int], tree: Tree) -> Iterator[str]:
    setting, step = rules.setting, tree["step"]
    if type(step) is not int or not 0 < step <= setting.config.train.steps:
        yield f"its step is {step!r:.40}, not one of 1 to {setting.config.train.steps}"
    numbers = (tree["refused"], *tree["faults"].values())
    if not all(map(_counts, numbers)) or not _amounts(tree["seconds"]) or not tree["faults"].keys() <= set(COUNTED):
        yield "its counters are no numbers"
    if list(tree["devices"]) != list(range(len(num_points))):
        yield "it is not of this run's devices"
    if not all(i in tree["devices"] and _is_row(labels) for i, labels in tree["labels"].items()):
        yield "its labels are not whole numbers in rows"
    yield from _cost_faults(rules, tree["costs"])
    yield from _weight_faults(tree["model"], setting.encoder.initial)
    yield from _extra_faults(tree["extras"], setting.averaged)
    yield from _server_faults(setting, step, tree)
    for i, state in tree["devices"].items():
        if set(state) != set(KEPT):
            yield f"device {i}: its fields are {sorted(map(str, state))}"
        for found in (
            _model_faults(setting, step, state),
            _counter_faults(num_points[i], step, state),
            _item_faults(rules, i, num_points[i], state),
        ):
            yield from (f"device {i}: {wrong}" for wrong in found)


def _server_faults(setting: Setting, step: int, tree: Tree) -> Iterator[str]:
    aggregation, like = setting.config.aggregation, setting.encoder.initial
    moments, smooth = tree["moments"], tree["smooth"]
    if (moments is None) != (aggregation.server == "average") or (smooth is None) != (aggregation.ema == 0):
        yield "it is not of this run's server"
    if moments is not None:
        yield from _moment_faults(moments, step, like)
    if smooth is not None:
        yield from _weight_faults(smooth, like)


def _cost_faults(rules: Rules, costs: Any) -> Iterator[str]:
    if not isinstance(costs, Tensor) or costs.dtype != torch.int64 or costs.ndim != 2 or costs.shape[1] != 5:
        yield "its costs are not rows of five whole numbers"
    rows, devices = costs.tolist(), range(rules.graph.num_devices)
    ways: dict[tuple[int, int], Sequence[Direction]] = dict.fromkeys(rules.graph.links, ("push", "pull"))
    ways |= dict.fromkeys(((i, SERVER) for i in devices), ("up",)) | dict.fromkeys(
        ((SERVER, i) for i in devices), ("down",)
    )
    for source, target, kind, way, size in rows:
        known = [DIRECTIONS.index(direction) for direction in ways.get((source, target), ())]
        if way not in known or not 0 <= kind < len(KINDS):
            yield f"its costs are of a link from {source} to {target} that is none, or of no kind"
        if size < 0:
            yield f"its costs are {size} bytes"
    if len({tuple(row[:4]) for row in rows}) < len(rows):
        yield "its costs have something twice"


def _model_faults(setting: Setting, step: int, state: Tree) -> Iterator[str]:
    like = setting.encoder.initial
    for weights in (state["weights"], state["anchor"]):
        yield from _weight_faults(weights, like)
    yield from _moment_faults(state["moments"], step, like)
    yield from _extra_faults(state["extras"], setting.extras)


def _moment_faults(moments: Any, step: int, like: Weights) -> Iterator[str]:
    if type(moments) is not Moments:
        yield "its moments are none"
    for part in moments[:2]:
        yield from _weight_faults(Weights(part, like.buffers), like)
    if not _counts(moments.updates, step):
        yield "its counters are not whole numbers up to its step"


def _counter_faults(num_points: int, step: int, state: Tree) -> Iterator[str]:
    seen, updates = state["points_seen"], state["updates"]
    if not all(_counts(number, step) for number in (state["pulled_at"], updates)):
        yield "its counters are not whole numbers up to its step"
    if not _counts(seen) or seen < updates * num_points or (updates == 0 and seen > 0):
        yield "it has not seen as many points as it has made updates"
    if not all(type(state[name]) is float and _amounts(state[name]) for name in ("margin", "active", "scaler")):
        yield "its margin, share or scaler is not a finite number"


def _item_faults(rules: Rules, device: int, num_points: int, state: Tree) -> Iterator[str]:
    setting, parties = rules.setting, Parties(rules, {})
    if (wrong := unlike("what it pulled", state["pulled"], no_items(setting), rows=MOST)) is not None:
        yield wrong
    sources = state["sources"]
    if not _is_row(sources) or len(sources) != len(state["pulled"]):
        yield "it does not say who sent what it pulled"
    if not set(sources.tolist()) <= set(rules.graph.neighbours(device)):
        yield "what it pulled is not from its neighbours"
    for source, reserve in state["reserves"].items():
        head = type(reserve), reserve.source, reserve.target
        if head != (_PUSH.kind(parties), source, device) or source not in rules.graph.neighbours(device):
            yield f"a reserve is not one that device {source!r:.40} pushes to it"
        if not _counts(reserve.step):
            yield f"the reserve from device {source} is of no step"
        if (wrong := _PUSH.fault(parties, reserve)) is not None:
            yield f"of the reserve from device {source}, {wrong}"
    if not set(state["heard"]) <= set(rules.graph.neighbours(device)) or not all(map(_counts, state["heard"].values())):
        yield "it has heard from devices that are no neighbours, or at no step"
    for size, chosen in state["own_reserve"].items():
        if (wrong := offering_fault(chosen, num_points, size)) is not None:
            yield f"of its own reserve, {wrong}"
    for source, number in state["news"].items():
        known = source in rules.graph.neighbours(device)
        if not known or not _counts(number, setting.budgets.candidates(source)):
            yield "what was new at its neighbours is not so many of their candidates"
    for places in state["sent"].values():
        if not _is_row(places) or bool(((places < 0) | (places >= num_points)).any()):
            yield "places of its points are not among them"


def _counts(number: object, most: int = MOST) -> bool:
    return type(number) is int and 0 <= number <= most


def _amounts(number: Any) -> bool:
    return type(number) in (int, float) and 0 <= number <= LARGEST


def _is_row(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.dtype == torch.int64 and tensor.ndim == 1


def _weight_faults(weights: Any, like: Weights) -> Iterator[str]:
    if type(weights) is not Weights:
        yield "its weights are none"
    for name, part, wanted in zip(("params", "buffers"), weights, like, strict=True):
        if (wrong := unlike(name, part, wanted)) is not None:
            yield wrong


def _extra_faults(extras: Any, like: Mapping[str, Tensor]) -> Iterator[str]:
    if extras.keys() != like.keys():
        yield f"its extra state is {sorted(map(str, extras))}, not {sorted(like)}"
    for name in like:
        if (wrong := unlike(name, extras[name], like[name])) is not None:
            yield wrong
