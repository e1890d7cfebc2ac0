import json
from typing import Any

import pytest
import torch
from cfcl.sim.loop import Simulation

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.runs import folders
from cfcl.sim.world import single_thread
from tests.conftest import small

Row = dict[str, Any]
MODES = ["explicit", "implicit"]


def play(config: Config) -> tuple[list[Row], Simulation]:
    simulation = Simulation(config)
    return [json.loads(folders.dump(row)) for row in simulation.rows()], simulation


def of(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.equation("Alg. 1")
def test_the_order_of_events_in_a_short_run() -> None:
    rows, simulation = play(small("evaluation.every=1", "evaluation.log_every=4"))
    events = [(row["kind"], row["step"]) for row in rows[1:]]
    events = list(dict.fromkeys(events))
    # T = 12, T_a = 4, T_p = 3: at each t an aggregation, then an exchange, then an update; a last aggregation at T
    assert events == [
        ("eval", 0),
        ("train", 0),
        ("pull", 3),
        ("eval", 4),
        ("train", 4),
        ("pull", 6),
        ("eval", 8),
        ("train", 8),
        ("pull", 9),
        ("train", 11),
        ("eval", 12),
        ("final", 12),
    ]
    # three aggregations of four devices, 17,648 parameters of four bytes
    assert of(rows, "eval")[-1]["bytes_up"] == 3 * 4 * 17_648 * 4
    # ring of four: 8 directed links; explicit: 3 reserve points of 64 bytes once, 2 items at 3 exchanges
    assert of(rows, "eval")[-1]["bytes_push"] == 8 * 3 * 64
    assert of(rows, "eval")[-1]["bytes_pull"] == 8 * 2 * 64 * 3
    # three uplinks of 17,648 * 32 / 10^6 s; reserves: 2 * 3 * 512 bit; pulls: three times 2 * 2 * 512 bit
    assert of(rows, "eval")[-1]["seconds"] == pytest.approx(3 * 0.564736 + 0.003072 + 3 * 0.002048)
    assert len(simulation.timings.selection) == 3


def test_implicit_costs_by_hand() -> None:
    rows, _ = play(small("exchange.mode=implicit"))
    # 8 links, three exchanges: 3 reserve embeddings and 2 items of 16 entries of 4 bytes
    assert of(rows, "eval")[-1]["bytes_push"] == 3 * 8 * 3 * 64
    assert of(rows, "eval")[-1]["bytes_pull"] == 3 * 8 * 2 * 64


@pytest.mark.parametrize("mode", MODES)
def test_no_items_equals_fedavg_bit_for_bit(mode: str) -> None:
    silent, one = play(small("exchange.num_pulled=0", f"exchange.mode={mode}"))
    fedavg, two = play(small("exchange.method=fedavg"))
    assert [folders.dump(row) for row in silent] == [folders.dump(row) for row in fedavg]
    assert torch.equal(one.model.params, two.model.params)


@pytest.mark.parametrize("method", ["cfcl-explicit", "cfcl-implicit"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(method: str) -> None:
    word, mode = method.split("-")
    overrides = (f"exchange.method={word}", f"exchange.mode={mode}")
    first, one = play(small(*overrides))
    again, two = play(small(*overrides))
    other, three = play(small(*overrides, "seed=1"))
    assert [folders.dump(row) for row in first] == [folders.dump(row) for row in again]
    assert torch.equal(one.model.params, two.model.params)
    assert not torch.equal(one.model.params, three.model.params)
    assert first[0] != other[0]


def test_the_thread_count_of_the_caller_does_not_matter() -> None:
    params = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        params.append(play(small("train.steps=4"))[1].model.params)
        assert torch.get_num_threads() == threads
    assert torch.equal(params[0], params[1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", sorted(policies.BUILT_IN - {"centralised"}))
def test_every_method_runs_in_both_modes_and_moves_the_model(method: str, mode: str) -> None:
    rows, simulation = play(small(f"exchange.method={method}", f"exchange.mode={mode}"))
    assert not torch.equal(simulation.model.params, simulation.world.setting.encoder.initial.params)
    pulled = sum(row["items"] for row in of(rows, "pull"))
    # 8 links, 2 items, 3 exchanges; bulk moves as much at once
    assert pulled == (0 if method == "fedavg" else 48)


def test_the_oracle_pulls_only_labels_that_receivers_lack() -> None:
    rows, _ = play(small("exchange.method=oracle", "exchange.num_pulled=4"))
    assert {row["held_labels"] for row in of(rows, "pull")} == {0.0}
    with pytest.raises(CfclError, match=r"'oracle' looks at the labels of devices' own points: give labelled data"):
        Simulation(small("exchange.method=oracle", "exchange.candidates=relay"))


def test_centralised_is_one_device_with_all_the_data() -> None:
    config = configs.with_method(small("aggregation.num_devices=2"), "centralised")
    assert config.method == "centralised"
    rows, _ = play(config)
    assert rows[0]["points"] == [1438]
    assert of(rows, "pull") == []
    with pytest.raises(CfclError, match=r"has one device, not partition.num_devices=4"):
        small("exchange.method=centralised")


def test_methods_of_one_seed_share_partition_graph_and_first_batches() -> None:
    runs = [play(small(f"exchange.method={method}"))[0] for method in ("fedavg", "uniform", "cfcl")]
    assert runs[0][0] == runs[1][0] == runs[2][0]
    # no exchange before t = 3: the first logged loss is the same to the bit
    assert len({of(rows, "train")[0]["loss"] for rows in runs}) == 1
    assert len({of(rows, "eval")[-1]["objective"] for rows in runs}) == 3


IMPLICIT = "exchange.mode=implicit"
READINGS = [
    ("exchange.reserve=random",),
    ("exchange.reserve=random", IMPLICIT),
    ("exchange.candidates=per_aggregation",),
    ("exchange.num_clusters=5",),
    ("exchange.num_clusters=5", IMPLICIT),
    ("exchange.softmax=global", "exchange.temperature_start=50"),
    ("exchange.temperature_start=500", "exchange.temperature_end=500"),
    ("exchange.temperature_scale=spread", "exchange.temperature_start=20"),
    ("exchange.score=literal_point", IMPLICIT),
    ("exchange.score=text", IMPLICIT),
    ("exchange.score=draft", IMPLICIT),
    ("exchange.overlap_mean=-1", "exchange.overlap_std=0.05", IMPLICIT),
    ("exchange.num_reserve_clusters=1", "exchange.overlap_std=0.05", IMPLICIT),
    ("exchange.importance_model=local",),
    ("exchange.importance_model=local", IMPLICIT),
    ("exchange.buffer=keep",),
    ("exchange.buffer=limit", "exchange.buffer_size=5"),
    ("exchange.buffer=keep", IMPLICIT),
    ("exchange.start=6",),
    ("exchange.stop=6",),
    ("exchange.num_reserve=4",),
    ("train.composition=union",),
    ("train.composition=negatives_only",),
    ("train.remote_fraction=1.0",),
    ("train.negatives=batch",),
    ("train.negatives=batch", IMPLICIT),
    ("train.fedprox=1.0",),
    ("train.optimiser=sgd",),
    ("train.margin=1.0",),
    ("model.normalise=false",),
    ("model.embedding_dim=8",),
    ("regulariser.reduction=sum", IMPLICIT),
    ("regulariser.radius=squared", IMPLICIT),
    ("regulariser.radius_factor=2.0", IMPLICIT),
    ("regulariser.weight=0.1", IMPLICIT),
    ("regulariser.staleness=age", IMPLICIT),
    ("regulariser.staleness_factor=3.0", IMPLICIT),
    ("aggregation.moments=reset",),
    ("aggregation.num_devices=2",),
]


@pytest.fixture(scope="module")
def base_models() -> dict[str, torch.Tensor]:
    return {mode: play(small(f"exchange.mode={mode}"))[1].model.params for mode in MODES}


@pytest.mark.parametrize("overrides", READINGS, ids=" ".join)
def test_every_reading_acts(overrides: tuple[str, ...], base_models: dict[str, torch.Tensor]) -> None:
    params = play(small(*overrides))[1].model.params
    base = base_models["implicit" if IMPLICIT in overrides else "explicit"]
    assert bool(params.isfinite().all())
    assert params.shape != base.shape or not torch.equal(params, base)


@pytest.mark.parametrize("mode", MODES)
def test_relaying_acts(mode: str) -> None:
    many = (f"exchange.mode={mode}", "exchange.num_candidates=100", "exchange.num_pulled=60")
    own, relayed = (play(small(*many, f"exchange.candidates={option}"))[1] for option in ("per_pull", "relay"))
    assert not torch.equal(own.model.params, relayed.model.params)


def test_pushing_at_aggregations_costs_otherwise_and_scores_the_same() -> None:
    # The global model only changes at aggregations, so a reserve pushed then is as fresh as one pushed at the pull.
    often = ("exchange.mode=implicit", "aggregation.period=2")
    (one, at_pull), (two, at_aggregation) = (
        play(small(*often, f"exchange.push={option}")) for option in ("exchange", "aggregation")
    )
    assert torch.equal(at_pull.model.params, at_aggregation.model.params)
    # 8 links, 3 embeddings of 64 bytes: at t = 3, 6, 9 against t = 0, 2, 4, 6, 8, 10
    assert (of(one, "eval")[-1]["bytes_push"], of(two, "eval")[-1]["bytes_push"]) == (3 * 8 * 192, 6 * 8 * 192)


def test_the_relaxed_probe_runs() -> None:
    rows, _ = play(small("evaluation.probe=sgd", "train.steps=4"))
    assert 0.3 < of(rows, "eval")[-1]["probe"] <= 1.0


def test_pull_rows_know_labels_that_devices_do_not() -> None:
    rows, simulation = play(small("partition.labels_per_device=1", "exchange.buffer=keep", "exchange.candidates=relay"))
    # One label a device, all different among four devices: at the first exchange nobody sends what the other holds;
    # later a relayed item may come home.
    pulls = of(rows, "pull")
    assert {row["held_labels"] for row in pulls if row["step"] == 3} == {0.0}
    assert all(0.0 <= row["held_labels"] <= 1.0 for row in pulls)
    assert all(0.0 < row["effective_candidates"] <= 8.0 + 1e-9 for row in pulls)
    assert all(row["centroid_distance"] > 0.0 for row in pulls)
    assert simulation.devices[0].pulled.shape[0] == 2 * 2 * 3


def test_a_single_device_trains_alone() -> None:
    rows, _ = play(small("partition.num_devices=1", "partition.labels_per_device=10", "graph.kind=complete"))
    assert of(rows, "pull") == []
    assert of(rows, "eval")[-1]["cka"] == pytest.approx(1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("mode", MODES)
def test_a_run_on_cuda_agrees_with_the_cpu(mode: str) -> None:
    config = small(f"exchange.mode={mode}", "train.steps=4")
    here, there = Simulation(config), Simulation(config, torch_device="cuda")
    for simulation in (here, there):
        list(simulation.rows())
    torch.testing.assert_close(there.model.params.cpu(), here.model.params, atol=1e-3, rtol=1e-2)


def test_single_thread_is_undone_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="stop"), single_thread():
        raise RuntimeError("stop")
    assert torch.get_num_threads() == before
