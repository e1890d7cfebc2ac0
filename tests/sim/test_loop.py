import pytest
import torch

import cfcl
from cfcl import config as configs
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.models import Encoder
from cfcl.sim.world import single_thread
from tests.conftest import small
from tests.played import play, played, reference

MODES = ["explicit", "implicit"]


@pytest.mark.equation("Alg. 1")
def test_the_order_of_events_in_a_short_run() -> None:
    run = played("evaluation.every=1", "evaluation.log_every=4")
    events = [(row["kind"], row["step"]) for row in run.rows[1:]]
    events = list(dict.fromkeys(events))
    # T = 12, T_a = 4, T_p = 3: at each t an aggregation, then an exchange, then an update; a last aggregation at T
    assert events == [
        ("eval", 0),
        ("upfront", 0),
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
    assert run.of("eval")[-1]["bytes_up"] == 3 * 4 * 17_648 * 4
    # ring of four: 8 directed links; explicit: 3 reserve points of 64 bytes once, 2 items at 3 exchanges
    assert run.of("eval")[-1]["bytes_push"] == 8 * 3 * 64
    assert run.of("eval")[-1]["bytes_pull"] == 8 * 2 * 64 * 3
    # three uplinks of 17,648 * 32 / 10^6 s; reserves: 2 * 3 * 512 bit; pulls: three times 2 * 2 * 512 bit
    assert run.of("eval")[-1]["seconds"] == pytest.approx(3 * 0.564736 + 0.003072 + 3 * 0.002048)
    assert [step for step, _ in run.timings["selection"] if step > 0] == [3, 6, 9]


def test_implicit_costs_by_hand() -> None:
    last = played("exchange.mode=implicit").of("eval")[-1]
    # 8 links, three exchanges: 3 reserve embeddings and 2 items of 16 entries of 4 bytes
    assert last["bytes_push"] == 3 * 8 * 3 * 64
    assert last["bytes_pull"] == 3 * 8 * 2 * 64


@pytest.mark.parametrize("mode", MODES)
def test_no_items_equals_fedavg_bit_for_bit(mode: str) -> None:
    silent, fedavg = played("exchange.num_pulled=0", f"exchange.mode={mode}"), played("exchange.method=fedavg")
    assert silent.files["metrics.jsonl"] == fedavg.files["metrics.jsonl"]
    assert torch.equal(silent.params, fedavg.params)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(mode: str) -> None:
    config = small(f"exchange.mode={mode}")
    first, again, other = reference(config), play(config), played(f"exchange.mode={mode}", "seed=1")
    assert first.files == again.files
    assert not torch.equal(first.params, other.params)
    assert first.rows[0] != other.rows[0]


def test_the_thread_count_of_the_caller_does_not_matter() -> None:
    params = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        params.append(play(small("train.steps=4")).params)
        assert torch.get_num_threads() == threads
    assert torch.equal(params[0], params[1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", sorted(policies.BUILT_IN - {"centralised"}))
def test_every_method_runs_in_both_modes_and_moves_the_model(method: str, mode: str) -> None:
    config = small(f"exchange.method={method}", f"exchange.mode={mode}")
    run, encoder = reference(config), Encoder(config.model, (1, 8, 8), seed=config.seed)
    assert not torch.equal(encoder.weights_from(run.encoder).params, encoder.initial.params)
    pulled = sum(row["items"] for row in run.of("pull"))
    # 8 links, 2 items, 3 exchanges; bulk moves as much at once
    assert pulled == (0 if method == "fedavg" else 48)


def test_the_oracle_pulls_only_labels_that_receivers_lack() -> None:
    pulls = played("exchange.method=oracle", "exchange.num_pulled=4").of("pull")
    assert {row["held_labels"] for row in pulls} == {0.0}
    with pytest.raises(CfclError, match=r"'oracle' looks at the labels of devices' own points: give labelled data"):
        cfcl.run(small("exchange.method=oracle", "exchange.candidates=relay"), engine="loop")


def test_centralised_is_one_device_with_all_the_data() -> None:
    config = configs.with_method(small("aggregation.num_devices=2"), "centralised")
    assert config.method == "centralised"
    run = reference(config)
    assert run.rows[0]["points"] == [1438]
    assert run.of("pull") == []
    with pytest.raises(CfclError, match=r"has one device, not partition.num_devices=4"):
        small("exchange.method=centralised")


def test_methods_of_one_seed_share_partition_graph_and_first_batches() -> None:
    runs = [played(f"exchange.method={method}", "exchange.mode=explicit") for method in ("fedavg", "uniform", "cfcl")]
    assert runs[0].rows[0] == runs[1].rows[0] == runs[2].rows[0]
    # no exchange before t = 3: the first logged loss is the same to the bit
    assert len({run.of("train")[0]["loss"] for run in runs}) == 1
    assert len({run.of("eval")[-1]["objective"] for run in runs}) == 3


IMPLICIT = "exchange.mode=implicit"
# those that golden runs do not have
READINGS = [
    ("exchange.candidates=per_aggregation",),
    ("exchange.num_clusters=5",),
    ("exchange.num_clusters=5", IMPLICIT),
    ("exchange.temperature_start=500", "exchange.temperature_end=500"),
    ("exchange.overlap_mean=-1", "exchange.overlap_std=0.05", IMPLICIT),
    ("exchange.buffer=limit", "exchange.buffer_size=5"),
    ("exchange.buffer=keep", IMPLICIT),
    ("exchange.start=6",),
    ("exchange.stop=6",),
    ("exchange.num_reserve=4",),
    ("train.remote_fraction=1.0",),
    ("train.negatives=batch", IMPLICIT),
    ("train.margin=1.0",),
    ("model.normalise=false",),
    ("model.embedding_dim=8",),
    ("regulariser.weight=0.1", IMPLICIT),
    ("regulariser.staleness_factor=3.0", IMPLICIT),
]


@pytest.mark.parametrize("overrides", READINGS, ids=" ".join)
def test_every_reading_acts(overrides: tuple[str, ...]) -> None:
    found, base = played(*overrides).params, played("exchange.mode=" + MODES[IMPLICIT in overrides]).params
    assert bool(found.isfinite().all())
    assert found.shape != base.shape or not torch.equal(found, base)


@pytest.mark.parametrize("mode", MODES)
def test_relaying_acts(mode: str) -> None:
    many = (f"exchange.mode={mode}", "exchange.num_candidates=100", "exchange.num_pulled=60")
    own, relayed = (played(*many, f"exchange.candidates={option}") for option in ("per_pull", "relay"))
    assert not torch.equal(own.params, relayed.params)


def test_pushing_at_aggregations_costs_otherwise_and_scores_the_same() -> None:
    # The global model only changes at aggregations, so a reserve pushed then is as fresh as one pushed at the pull.
    often = ("exchange.mode=implicit", "aggregation.period=2")
    one, two = (played(*often, f"exchange.push={option}") for option in ("exchange", "aggregation"))
    assert torch.equal(one.params, two.params)
    # 8 links, 3 embeddings of 64 bytes: at t = 3, 6, 9 against t = 0, 2, 4, 6, 8, 10
    assert [run.of("eval")[-1]["bytes_push"] for run in (one, two)] == [3 * 8 * 192, 6 * 8 * 192]


def test_the_relaxed_probe_runs() -> None:
    assert 0.3 < played("evaluation.probe=sgd", "train.steps=4").of("eval")[-1]["probe"] <= 1.0


def test_pull_rows_know_labels_that_devices_do_not() -> None:
    run = played("partition.labels_per_device=1", "exchange.buffer=keep", "exchange.candidates=relay")
    # One label a device, all different among four devices: at the first exchange nobody sends what the other holds;
    # later a relayed item may come home.
    pulls = run.of("pull")
    assert {row["held_labels"] for row in pulls if row["step"] == 3} == {0.0}
    assert all(0.0 <= row["held_labels"] <= 1.0 for row in pulls)
    assert all(0.0 < row["effective_candidates"] <= 8.0 + 1e-9 for row in pulls)
    assert all(row["centroid_distance"] > 0.0 for row in pulls)


def test_a_single_device_trains_alone() -> None:
    run = played("partition.num_devices=1", "partition.labels_per_device=10", "graph.kind=complete")
    assert run.of("pull") == []
    assert run.of("eval")[-1]["cka"] == pytest.approx(1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("mode", MODES)
def test_a_run_on_cuda_agrees_with_the_cpu(mode: str) -> None:
    config = small(f"exchange.mode={mode}", "train.steps=4")
    here, there = (cfcl.run(config, engine="loop", device=where).encoder.weights.params for where in ("cpu", "cuda"))
    torch.testing.assert_close(there.cpu(), here, atol=1e-3, rtol=1e-2)


def test_single_thread_is_undone_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="stop"), single_thread():
        raise RuntimeError("stop")
    assert torch.get_num_threads() == before
