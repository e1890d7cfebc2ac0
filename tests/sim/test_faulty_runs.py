"""Whole runs in which things go wrong: they end, with finite models, and what was lost is made up for."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfcl import config as configs
from cfcl import device
from cfcl.config import Config
from cfcl.protocol import faults
from cfcl.protocol.link import Counted, Direct
from cfcl.protocol.parties import Run, together
from cfcl.protocol.steps import play, rounds
from cfcl.records import Evaluation, Faults, Pull, Record, Update
from cfcl.sim import world
from cfcl.sim.simulation import Simulation
from tests.conftest import small

HEAVY = ("faults.offline=0.3", "faults.loss=0.2")
SHORT = ("train.steps=7", "evaluation.every=9")
METHODS = [
    "fedavg",
    *(f"{method}-explicit" for method in ("cfcl", "uniform", "kmeans", "bulk", "novel", "cover", "oracle")),
    "cfcl-implicit",
    "cover-implicit",
    "uniform-implicit",
    "cfcl-activations",
    "uniform-activations",
]


def table(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def rows(config: Config) -> tuple[list[Record], Simulation]:
    simulation = Simulation(config)
    return list(simulation.rows()), simulation


def pulls(found: list[Record]) -> set[tuple[int, int, int]]:
    return {(record.step, record.transmitter, record.receiver) for record in found if isinstance(record, Pull)}


def final(found: list[Record]) -> Evaluation:
    return [record for record in found if isinstance(record, Evaluation)][-1]


def finish(config: Config) -> Run:
    """A run without evaluations."""
    scene = world.build(config)
    points = scene.dataset.train_images
    states = [device.start(scene.setting, i, points, part) for i, part in enumerate(scene.parts)]
    run = Run(0, together(scene.rules, states), scene.ledger())
    link = faults.around(Counted(Direct(), run.ledger), scene.rules, run.faults)
    while run.step <= config.train.steps:
        for item in rounds(scene.rules, run.step):
            for phase in item.phases:
                play(phase, run.hosts, link, run.step)
        run.step += 1
    return run


def check_finite(run: Run) -> None:
    assert bool(run.server.model.params.isfinite().all())
    for state in run.devices.values():
        assert bool(state.weights.params.isfinite().all())
        assert bool(state.pulled.isfinite().all())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_with_a_third_of_devices_offline_and_a_fifth_of_messages_lost(method: str) -> None:
    run = finish(configs.with_method(small(*HEAVY, "exchange.layer=features", "exchange.buffer=lasting"), method))
    check_finite(run)
    assert run.faults["unsent"] > 0
    assert run.faults["lost"] > 0
    assert run.faults["messages"] > run.faults["unsent"] + run.faults["lost"]


GRAPHS = st.sampled_from(["ring", "line", "star", "complete", "erdos_renyi", "geometric"])
RATES = st.sampled_from([0.0, 0.3, 0.8, 1.0])
WORDS = st.sampled_from(["fedavg", "cfcl-explicit", "cover-explicit", "cfcl-implicit", "uniform-activations"])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=GRAPHS, method=WORDS, rates=st.tuples(*[RATES] * 5), trains=st.booleans(), spoilt=st.booleans())
def test_whatever_goes_wrong_on_whatever_graph_models_stay_finite(
    graph: str, method: str, rates: tuple[float, ...], trains: bool, spoilt: bool
) -> None:
    names = ("offline", "gone", "straggling", "loss", "damage")
    changes = [f"faults.{name}={rate}" for name, rate in zip(names, rates, strict=True)]
    changes += [f"faults.offline_trains={str(trains).lower()}", "faults.offline_steps=2"]
    changes += ["faults.damaged=values"] if spoilt else []
    fixed = ("graph.degree=1", "graph.connected=false", "train.steps=4", "exchange.period=2", "aggregation.period=2")
    config = small(f"graph.kind={graph}", *fixed, "exchange.layer=features", "exchange.start=0", *changes)
    check_finite(finish(configs.with_method(config, method)))


def test_a_reserve_that_did_not_arrive_is_pushed_again_when_nothing_comes(tmp_path: Path) -> None:
    # Device 0 cannot push its reserve to device 1 at t = 0, so device 1 cannot answer it at 3; at 6 it pushes again.
    down = table(tmp_path, "down.csv", "source,target,from,to\n0,1,0,1\n")
    whole, plain = rows(small())
    found, faulty = rows(small(f"faults.links_file={down}"))
    assert pulls(whole) - pulls(found) == {(3, 1, 0)}
    assert pulls(found) < pulls(whole)
    # What did not leave costs nothing, and what was pushed again is charged: eight reserves of 3 points in both runs.
    assert final(found).bytes_push == final(whole).bytes_push == 8 * 3 * 64
    assert faulty.run.devices[0].heard == {1: 9, 3: 9}
    assert plain.run.devices[0].heard == {1: 9, 3: 9}


def test_a_reserve_that_is_lost_is_charged_each_time(tmp_path: Path) -> None:
    config = small("faults.loss=1.0", "exchange.method=cfcl")
    found, simulation = rows(config)
    # Eight reserves of 3 points of 64 bytes at t = 0, and again at 6 and 9, as nothing came at 3: items never do.
    assert final(found).bytes_push == 3 * 8 * 3 * 64
    assert final(found).bytes_pull == 0
    # Four devices send a model at 4, 8 and 12, and all are charged.
    assert final(found).bytes_up == 3 * 4 * 4 * simulation.world.setting.encoder.num_parameters
    assert torch.equal(simulation.model.params, simulation.world.setting.encoder.initial.params)


def test_implicit_reserves_are_pushed_at_every_exchange_anyway() -> None:
    found, _ = rows(small("faults.straggling=0.5", "exchange.mode=implicit"))
    whole, _ = rows(small("exchange.mode=implicit"))
    assert final(found).bytes_push == final(whole).bytes_push


def test_rounds_without_any_device_leave_the_model_as_it_was() -> None:
    found, simulation = rows(small("faults.offline=1.0", *SHORT))
    assert torch.equal(simulation.model.params, simulation.world.setting.encoder.initial.params)
    assert final(found).bytes == 0
    assert final(found).seconds == 0.0
    assert [record.step for record in found if isinstance(record, Update)] == [0, 2, 4, 6]
    (last,) = (record for record in found if isinstance(record, Faults))
    # 8 reserves at 0 and 6, 8 requests at 3 and 6, 4 models up and 4 down at 4 and 7: 48, of which none leaves; the
    # answers to requests that did not arrive are not even made
    assert (last.messages, last.unsent, last.used, last.online) == (48, 48, 0.0, 0.0)


def test_who_is_offline_goes_on_training_unless_it_is_told_to_rest(tmp_path: Path) -> None:
    away = table(tmp_path, "away.csv", "device,from,to\n1,2,6\n")
    _, trains = rows(small(f"faults.offline_file={away}", *SHORT))
    found, rests = rows(small(f"faults.offline_file={away}", "faults.offline_trains=false", *SHORT))
    # Seven updates; the one that rests misses four of them.
    assert [trains.run.devices[i].moments.updates for i in range(3)] == [7, 7, 7]
    assert [rests.run.devices[i].moments.updates for i in range(3)] == [7, 3, 7]
    assert [record.step for record in found if isinstance(record, Update)] == [0, 2, 4, 6]


def test_with_nobody_training_there_are_no_losses_to_record() -> None:
    found, simulation = rows(small("faults.offline=1.0", "faults.offline_trains=false", *SHORT))
    assert not any(isinstance(record, Update) for record in found)
    assert {state.moments.updates for state in simulation.run.devices.values()} == {0}


def test_a_late_model_is_charged_but_not_averaged() -> None:
    whole, _ = rows(small(*SHORT))
    late, simulation = rows(small("faults.straggling=1.0", *SHORT))
    assert final(late).bytes_up == final(whole).bytes_up
    assert torch.equal(simulation.model.params, simulation.world.setting.encoder.initial.params)
    (last,) = (record for record in late if isinstance(record, Faults))
    assert (last.late, last.lost, last.unsent) == (8, 0, 0)  # four models at 4 and at 7


def test_a_graph_of_islands_is_run_if_it_is_asked_for(tmp_path: Path) -> None:
    edges = table(tmp_path, "edges.txt", "0 1\n")
    run = finish(small("graph.kind=edges", f"graph.edges_file={edges}", "graph.connected=false"))
    check_finite(run)
    assert [len(state.pulled) for state in run.devices.values()] == [2, 2, 0, 0]


def test_a_graph_that_changes_moves_items_where_it_is(tmp_path: Path) -> None:
    table(tmp_path, "later.txt", "0 2\n")
    graphs = table(tmp_path, "graphs.csv", "from,edges_file\n5,later.txt\n")
    found, _ = rows(small("graph.kind=line", f"faults.graphs_file={graphs}"))
    line = {(3, 0, 1), (3, 1, 0), (3, 1, 2), (3, 2, 1), (3, 2, 3), (3, 3, 2)}
    # The reserves for the new link are pushed with the first exchange at which it is there.
    assert pulls(found) == {*line, (6, 0, 2), (6, 2, 0), (9, 0, 2), (9, 2, 0)}


def test_counts_are_recorded_with_every_evaluation_and_only_where_things_go_wrong() -> None:
    found, _ = rows(small(*HEAVY))
    counts = [record for record in found if isinstance(record, Faults)]
    assert [record.step for record in counts] == [8, 12]
    assert counts[0].messages < counts[1].messages
    assert 0.0 < counts[1].used < 1.0
    assert not any(isinstance(record, Faults) for record in rows(small())[0])
