"""What a snapshot must hold for a run to go on from it."""

from typing import Any

import pytest
import torch

from cfcl.core.optimisers import Moments
from cfcl.models import Weights
from cfcl.protocol import snapshot
from cfcl.protocol.codec import Malformed
from cfcl.sim.simulation import Simulation
from tests.conftest import small


def taken(*overrides: str) -> tuple[Simulation, dict[str, Any]]:
    """A run that has just begun, and the snapshot of it after a step."""
    run = Simulation(small(*overrides))
    return run, {**snapshot.decode(snapshot.encode(snapshot.of(run.run))), "step": 1}


def check(run: Simulation, tree: dict[str, Any]) -> None:
    snapshot.check(run.world.setting, [len(part) for part in run.world.parts], tree)


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
        ({"scaler": float("nan")}, "device 2: its margin, share or scaler is not finite"),
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
