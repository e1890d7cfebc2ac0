"""A run between two steps: as bytes, in parts, and refused where it cannot be one."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from cfcl.core.optimisers import Moments
from cfcl.exchange.messages import EmbeddingReserve
from cfcl.models import Weights
from cfcl.protocol import snapshot, snapshot_checks
from cfcl.protocol.codec import Malformed
from cfcl.sim.simulation import Simulation, Snapshot
from tests.conftest import small


def _played(*overrides: str) -> tuple[Simulation, dict[str, Any]]:
    """A run after its fifth step, and a snapshot of it."""
    config = small("checkpoint.every=5", "train.steps=6", "exchange.method=novel", "exchange.buffer=keep", *overrides)
    simulation = Simulation(config, saved=True)
    found = next(item for item in simulation.play() if isinstance(item, Snapshot))
    return simulation, found.tree


SIMULATION, TREE = _played()
DATA = snapshot.encode(TREE)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and same(vars(one), vars(other))
    return bool(one == other)


def test_a_snapshot_comes_back_as_it_was() -> None:
    found = snapshot.decode(DATA)
    lists = {**TREE, "clocks": found["clocks"]}  # tuples of plain values come back as lists, as JSON has them
    assert same(found, lists)
    assert TREE["step"] == 5
    state = TREE["devices"][2]
    assert len(state["pulled"]) == 4
    assert set(state["reserves"]) == {1, 3}
    assert list(state["sent"]) == [1, 3]
    assert snapshot.encode(found) == DATA


def test_a_tensor_at_several_places_is_written_once_and_comes_back_as_one() -> None:
    big = torch.zeros(1000)
    data = snapshot.encode({"a": big, "b": [big, Weights(big, big)]})
    assert len(data) < 4500
    found = snapshot.decode(data)
    assert found["a"] is found["b"][0] is found["b"][1].buffers


def test_parts_and_the_whole() -> None:
    parts = [snapshot.share(TREE, devices) for devices in (range(3), range(3, 4))]
    assert [list(part["devices"]) for part in parts] == [[0, 1, 2], [3]]
    # uploads stand on the account of their sender, all else on its receiver's
    for part, devices in zip(parts, ({0, 1, 2}, {3}), strict=True):
        for source, target, *_ in part["costs"].tolist():
            assert (source if target == -1 else target) in devices
    whole = snapshot.join(parts)
    assert list(whole["devices"]) == [0, 1, 2, 3]
    assert sorted(whole["costs"].tolist()) == sorted(TREE["costs"].tolist())
    refused = [snapshot.share({**TREE, "refused": 7}, devices)["refused"] for devices in (range(3), range(3, 4))]
    assert refused == [7, 0]
    lost = [{**TREE, "faults": counts} for counts in ({"lost": 2, "late": 1}, {"lost": 3})]
    assert snapshot.join(lost)["faults"] == {"lost": 5, "late": 1}
    assert [snapshot.share(lost[0], devices)["faults"] for devices in (range(3), range(3, 4))] == [
        {"lost": 2, "late": 1},
        {},
    ]


def _with(path: str, value: Any) -> dict[str, Any]:
    """The tree with one thing replaced."""
    tree = snapshot.decode(DATA)
    *outer, last = path.split(".")
    place: Any = tree
    for name in outer:
        place = place[int(name) if name.isdigit() else name]
    place[last if not last.isdigit() else int(last)] = value
    return tree


def _state(name: str) -> Any:
    return TREE["devices"][1][name]


WRONG = [
    ("step", 0, "its step is 0, not one of 1 to 6"),
    ("step", 7, "its step is 7"),
    ("step", True, "its step is True"),
    ("seconds", float("nan"), "its counters are no numbers"),
    ("refused", 1.5, "its counters are no numbers"),
    ("devices", {}, "it is not of this run's devices"),
    ("seconds", -1.0, "its counters are no numbers"),
    ("seconds", True, "its counters are no numbers"),
    ("refused", -1, "its counters are no numbers"),
    ("costs", torch.zeros(0, 5), "its costs are not rows of five whole numbers"),
    ("costs", torch.zeros(5, dtype=torch.int64), "its costs are not rows of five whole numbers"),
    ("costs", torch.zeros(2, 4, dtype=torch.int64), "its costs are not rows of five whole numbers"),
    ("costs", torch.tensor([[0, 2, 0, 0, 9]]), "its costs are of a link from 0 to 2 that is none"),  # 0 is beside 1, 3
    ("costs", torch.tensor([[0, 1, 4, 0, 9]]), "that is none, or of no kind"),
    ("costs", torch.tensor([[0, 1, 0, -1, 9]]), "that is none, or of no kind"),
    ("costs", torch.tensor([[0, 1, 0, 2, 9]]), "that is none, or of no kind"),  # 2 is up, to the server
    ("costs", torch.tensor([[0, -1, 2, 0, 9]]), "that is none, or of no kind"),  # 0 is push, between devices
    ("costs", torch.tensor([[0, 1, 0, 0, -9]]), "its costs are -9 bytes"),
    ("costs", torch.tensor([[0, 1, 0, 0, 9], [0, 1, 0, 0, 8]]), "its costs have something twice"),
    ("labels", {0: torch.zeros(1)}, "its labels are not whole numbers in rows"),
    ("labels", {0: torch.zeros(1, 1, dtype=torch.int64)}, "its labels are not whole numbers in rows"),
    ("labels", {4: torch.zeros(1, dtype=torch.int64)}, "its labels are not whole numbers in rows"),
    ("model", Weights(torch.zeros(3), torch.zeros(0)), r"params has the shape \(3,\)"),
    ("model", None, "its weights are none"),
    ("model", [TREE["model"].params, TREE["model"].buffers], "its weights are none"),
    ("model", Weights(3, 4), "it is not of this form"),  # type: ignore[arg-type]
    ("extras", {"more": torch.zeros(1)}, r"its extra state is \['more'\], not \[\]"),
    ("devices.1.weights", Weights(_state("weights").params * torch.nan, torch.zeros(0)), "device 1: params is not fin"),
    ("devices.1.anchor", Weights(_state("anchor").params.double(), torch.zeros(0)), "device 1: params is of type"),
    ("devices.1.moments", Moments(torch.zeros(2), _state("moments").second, 5), r"device 1: params has the shape \(2"),
    ("devices.1.moments", Moments(_state("moments").first, torch.zeros(2), 5), r"device 1: params has the shape \(2"),
    ("devices.1.moments", _state("moments")._replace(updates=-1), "device 1: its counters are not whole numbers"),
    ("devices.1.moments", _state("moments")._replace(updates=10**400), "device 1: its counters are not whole numbers"),
    ("devices.1.moments", list(_state("moments")), "device 1: its moments are none"),
    ("devices.1.pulled", torch.zeros(2, 1, 8, 8), "device 1: what it pulled is of type torch.float32"),
    ("devices.1.pulled", torch.zeros(2, 1, 9, 8, dtype=torch.uint8), "device 1: what it pulled has the shape"),
    ("devices.1.sources", torch.tensor([0, 2, 2]), "device 1: it does not say who sent what it pulled"),
    ("devices.1.sources", torch.tensor([0.0, 0.0, 2.0, 2.0]), "device 1: it does not say who sent what it pulled"),
    ("devices.1.sources", torch.tensor([0, 0, 2, 3]), "device 1: what it pulled is not from its neighbours"),
    (
        "devices.1.reserves",
        {0: replace(_state("reserves")[0], points=torch.zeros(2, 1, 4, 4, dtype=torch.uint8))},
        "device 1: of the reserve from device 0, the reserve has the shape",
    ),
    (
        "devices.1.reserves",
        {0: replace(_state("reserves")[0], points=torch.zeros(0, 1, 8, 8, dtype=torch.uint8))},
        "device 1: of the reserve from device 0, the reserve is empty",
    ),
    (
        "devices.1.reserves",
        {0: replace(_state("reserves")[0], numbers=torch.zeros(7))},
        r"device 1: of the reserve from device 0, numbers has the shape \(7,\)",
    ),
    (
        "devices.1.reserves",
        {0: replace(_state("reserves")[0], step=-1)},
        "device 1: the reserve from device 0 is of no step",
    ),
    ("devices.1.reserves", {2: _state("reserves")[0]}, "device 1: a reserve is not one that device 2 pushes to it"),
    (
        "devices.1.reserves",
        {0: EmbeddingReserve(0, 1, 3, torch.zeros(3, 16))},
        "device 1: a reserve is not one that device 0 pushes to it",
    ),
    (
        "devices.1.own_reserve",
        {3: torch.tensor([[0, 1, 2]])},
        "device 1: of its own reserve, positions are not in 1-D tensors",
    ),
    ("devices.1.own_reserve", {3: [0, 1, 2]}, "device 1: of its own reserve, it offers list"),
    ("devices.1.news", {0: 9}, "device 1: what was new at its neighbours is not so many of their candidates"),
    ("devices.1.news", {0: 1.0}, "device 1: what was new at its neighbours is not so many of their candidates"),
    ("devices.1.news", {3: 1}, "device 1: what was new at its neighbours is not so many of their candidates"),
    ("devices.1.sent", {0: torch.tensor(0)}, "device 1: places of its points are not among them"),
    ("devices.1.sent", {0: torch.tensor([100_000])}, "device 1: places of its points are not among them"),
    ("devices.1.sent", {0: torch.tensor([-1])}, "device 1: places of its points are not among them"),
    ("devices.1.sent", {0: torch.tensor([1.0])}, "device 1: places of its points are not among them"),
    ("devices.1.updates", 1.0, "device 1: its counters are not whole numbers"),
    ("devices.1.updates", 6, "device 1: its counters are not whole numbers up to its step"),
    ("devices.1.pulled_at", 6, "device 1: its counters are not whole numbers up to its step"),
    ("devices.1.points_seen", 1, "device 1: it has not seen as many points as it has made updates"),
    ("devices.1.points_seen", 10**400, "device 1: it has not seen as many points as it has made updates"),
    ("devices.1.margin", float("inf"), "device 1: its margin, share or scaler is not a finite number"),
    ("devices.1.margin", 10**30, "device 1: its margin, share or scaler is not a finite number"),
    ("devices.1.active", -0.5, "device 1: its margin, share or scaler is not a finite number"),
    ("devices.1.more", 1, r"device 1: its fields are"),
    ("devices.1.heard", {3: 3}, "device 1: it has heard from devices that are no neighbours"),
    ("devices.1.heard", {0: -3}, "device 1: it has heard from devices that are no neighbours, or at no step"),
    ("faults", {"lost": -1}, "its counters are no numbers"),
    ("faults", {"found": 1}, "its counters are no numbers"),
    ("clocks", {"total": "long"}, "lacks the fields"),
    ("clocks", {1: 2, "a": 3}, "has unknown fields"),
]


@pytest.mark.parametrize(
    ("path", "value", "reason"), WRONG, ids=[f"{path} {number}" for number, (path, *_) in enumerate(WRONG)]
)
def test_what_cannot_be_a_snapshot_of_this_run_is_refused(path: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SIMULATION.check(_with(path, value))


def test_a_snapshot_of_this_run_is_not() -> None:
    SIMULATION.check(snapshot.decode(DATA))


def test_labels_of_what_may_be_passed_on_are_needed() -> None:
    simulation, played = _played("exchange.candidates=relay")
    tree = snapshot.decode(snapshot.encode(played))
    simulation.check(tree)
    assert [len(tree["labels"][i]) == len(tree["devices"][i]["pulled"]) > 0 for i in range(4)] == [True] * 4
    for labels in ({}, {**tree["labels"], 2: tree["labels"][2][1:]}):
        with pytest.raises(ValueError, match="labels of what devices may pass on are missing"):
            simulation.check({**tree, "labels": labels})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_bytes_there_are_they_are_a_snapshot_or_malformed(data: st.DataObject) -> None:
    bytes_ = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(bytes_) - 1, 6000)))
        bytes_[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(bytes_))))
    with suppress(ValueError):
        SIMULATION.check(snapshot.decode(bytes(bytes_[:cut])))


def test_no_type_comes_out_that_is_not_listed() -> None:
    for table in ('{"map":[["a",NaN]]}', '{"map":[["a",[1e400]]]}', '{"map":[[NaN,1]]}', '{"map":[[null,1]]}'):
        with pytest.raises(Malformed, match=r"a number is not finite|a key is neither text nor a whole number"):
            snapshot.decode(save({}, metadata={snapshot.KEY: table}))
    for table in ('{"Path":["x"]}', '{"map":[["a",{"tensor":"9"}]]}', "[1]", "[[[", '{"a":1,"b":2}', '{"Weights":[1]}'):
        with pytest.raises(Malformed):
            snapshot.decode(save({}, metadata={snapshot.KEY: table}))
    with pytest.raises(Malformed):
        snapshot.decode(b"")


def taken(*overrides: str) -> tuple[Simulation, dict[str, Any]]:
    """A run that has just begun, and the snapshot of it after a step."""
    run = Simulation(small(*overrides))
    return run, {**snapshot.decode(snapshot.encode(snapshot.of(run.run))), "step": 1}


def check(run: Simulation, tree: dict[str, Any]) -> None:
    snapshot_checks.check(run.world.rules, [len(part) for part in run.world.parts], tree)


SHORT = torch.zeros(3)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"moments": None}, "it is not of this run's server"),
        ({"smooth": None}, "it is not of this run's server"),
        ({"moments": Moments(SHORT, SHORT, 0)}, "params"),
        ({"smooth": Weights(SHORT, torch.zeros(0))}, "params"),
        ({"extras": {}}, r"its extra state is \[\], not \['target'\]"),
    ],
)
def test_the_state_of_the_server_is_that_of_the_run(changes: dict[str, Any], complaint: str) -> None:
    run, tree = taken("aggregation.server=adam", "aggregation.ema=0.5", "train.objective=byol")
    check(run, tree)
    with pytest.raises(Malformed, match=complaint):
        check(run, {**tree, **changes})


def test_a_server_that_only_averages_has_no_state_of_its_own() -> None:
    run, tree = taken("train.objective=byol", "aggregation.target=local")
    check(run, tree)
    assert (tree["moments"], tree["smooth"], tree["extras"]) == (None, None, {})
    other, _ = taken("train.objective=byol", "aggregation.server=momentum", "aggregation.target=local")
    with pytest.raises(Malformed, match="it is not of this run's server"):
        check(other, tree)


def test_counters_and_scalers_of_devices_are_numbers() -> None:
    run, tree = taken("aggregation.adopt=fedema")
    state = tree["devices"][2]
    for changes, complaint in (
        ({"scaler": float("nan")}, "device 2: its margin, share or scaler is not a finite number"),
        ({"moments": state["moments"]._replace(updates=-1)}, "device 2: its counters are not whole numbers"),
    ):
        with pytest.raises(Malformed, match=complaint):
            check(run, {**tree, "devices": {**tree["devices"], 2: {**state, **changes}}})


def test_restoring_gives_the_server_its_state_back() -> None:
    run, tree = taken("aggregation.server=momentum", "aggregation.ema=0.5")
    zeros = run.model.params * 0
    tree = {**tree, "moments": Moments(zeros + 2, zeros, 5), "smooth": Weights(zeros + 3, run.model.buffers)}
    snapshot.restore(run.run, tree)
    assert run.run.server.moments is tree["moments"]
    assert set(run.model.params.tolist()) == {3.0}
