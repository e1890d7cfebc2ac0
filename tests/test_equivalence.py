"""Both engines, in any number of processes, leave the same bytes."""

from pathlib import Path

import pytest
import torch

from cfcl.config import Config
from cfcl.exchange import policies
from tests.conftest import small
from tests.played import Played, play, reference
from tests.protocol.isolated import play_isolated

METHODS = [
    f"{method}-{mode}" if method != "fedavg" else method
    for method in sorted(policies.BUILT_IN - {"centralised"})
    for mode in ("explicit", "implicit")
]
CONV = ("exchange.mode=activations", "model.encoder=conv", "model.widths=[4, 6, 8]")
ADAPTIVE = ("exchange.method=cover", "exchange.budget=adaptive")
FAULTS = ("faults.offline=0.3", "faults.offline_steps=3", "faults.loss=0.2", "faults.straggling=0.2")
RESTING = (*FAULTS, "faults.offline_trains=false", "faults.gone=0.3", "faults.damage=0.1", "faults.damaged=values")
READINGS = [
    ("exchange.importance_model=local",),
    ("exchange.importance_model=local", "exchange.mode=implicit"),
    ("exchange.candidates=relay", "exchange.buffer=keep"),
    ("exchange.candidates=relay", "exchange.mode=implicit"),
    ("exchange.candidates=per_aggregation", "exchange.push=aggregation", "exchange.mode=implicit"),
    ("aggregation.num_devices=2", "cost.charge_broadcast=true", "cost.transmit_watts=0.7", "cost.step_seconds=0.1"),
    ("aggregation.rule=median", "train.steps=8"),
    ("aggregation.rule=trimmed", "aggregation.trim=0.3", "aggregation.num_devices=3", "train.steps=8"),
    ("aggregation.moments=reset", "train.optimiser=sgd", "train.fedprox=0.1"),
    ("exchange.num_pulled=0",),
    ("exchange.method=novel", "exchange.buffer=keep"),
    ("exchange.method=novel", "exchange.buffer=limit", "exchange.candidates=relay"),
    ("exchange.method=cover", "exchange.buffer=keep", "exchange.against=another"),
    ("exchange.method=cover", "exchange.mode=implicit", "exchange.push=aggregation"),
    (*ADAPTIVE, "exchange.buffer=keep", "evaluation.num_traced=2"),
    (*ADAPTIVE, "exchange.mode=implicit"),
    (*ADAPTIVE, *CONV, "exchange.layer=block1", "exchange.method=novel"),
    ("attack.devices=[2]", "attack.kind=items-negative", "exchange.mode=implicit", "defence.share=0.4"),
    ("attack.devices=1", "attack.kind=reserve-noise", "exchange.buffer=keep", "defence.cap=3", "defence.range=0.25"),
    ("attack.devices=1", "attack.kind=request-all"),
    ("train.negatives=batch",),
    ("evaluation.log_every=1", "evaluation.every=1", "evaluation.num_traced=2", "evaluation.num_health_devices=2"),
    ("partition.num_devices=1", "partition.labels_per_device=10", "graph.kind=complete"),
    ("partition.kind=dirichlet", "partition.alpha=0.5", "partition.min_points=10"),
    ("model.encoder=slim-resnet18", "model.embedding_dim=8", "train.steps=5"),
    ("model.encoder=slim-resnet18", "aggregation.buffers=local", "train.steps=5"),
    ("train.objective=infonce", "train.schedule=cosine", "train.warmup=2", "train.weight_decay=0.1"),
    ("train.objective=vicreg", "exchange.mode=implicit", "aggregation.server=momentum"),
    ("train.objective=byol", "aggregation.adopt=fedema", "aggregation.target=local"),
    ("exchange.mode=activations", "exchange.layer=features", "evaluation.features=true"),
    (*CONV, "train.objective=infonce", "exchange.layer=block1", "exchange.precision=uint8"),
    (*CONV, "train.objective=byol", "exchange.method=cover", "exchange.layer=block3"),
    FAULTS,
    (*RESTING, "exchange.candidates=relay", "exchange.buffer=keep", "evaluation.log_every=1"),
    (*FAULTS, *CONV, "exchange.layer=block1", "exchange.push=aggregation", "faults.damage=0.2"),
    (*CONV, "exchange.layer=block2", "exchange.precision=uint8", "privacy.clip=2.0", "privacy.noise=0.3"),
    ("exchange.mode=implicit", "exchange.candidates=relay", "privacy.clip=1.0", "privacy.noise=0.2"),
    ("privacy.never_devices=[1]", "exchange.method=cover"),
]


def of_method(method: str) -> tuple[str, ...]:
    word, _, mode = method.partition("-")
    return (f"exchange.method={word}", f"exchange.mode={mode or 'explicit'}")


def check_same(config: Config, workers: int = 1) -> Played:
    one, two = reference(config), play(config, workers)
    assert one.files == two.files
    assert [step for step, _ in one.timings["selection"]] == [step for step, _ in two.timings["selection"]]
    return two


@pytest.mark.parametrize("method", dict.fromkeys(METHODS))
def test_the_sharded_engine_equals_the_loop_for_every_method(method: str) -> None:
    check_same(small(*of_method(method)))


@pytest.mark.parametrize("overrides", READINGS, ids=" ".join)
def test_the_sharded_engine_equals_the_loop_for_readings_that_touch_it(overrides: tuple[str, ...]) -> None:
    check_same(small(*overrides))


def test_budgets_that_differ_by_link_are_no_obstacle(tmp_path: Path) -> None:
    table = tmp_path / "links.csv"
    table.write_text("transmitter,receiver,num_pulled,num_reserve\n0,1,5,2\n1,0,0,3\n2,3,3,4\n")
    check_same(small(f"exchange.budgets_file={table}"))
    check_same(small(f"exchange.budgets_file={table}", "exchange.method=kmeans"))
    check_same(small(f"exchange.budgets_file={table}", "exchange.mode=implicit"))


CROWDS: list[tuple[int, tuple[str, ...]]] = [
    (2, ("exchange.candidates=relay", "exchange.buffer=keep", "evaluation.log_every=1")),
    (2, ("aggregation.rule=trimmed", "aggregation.trim=0.3", "aggregation.num_devices=3", "train.steps=8")),
    (2, (*RESTING, "exchange.method=cover", "exchange.buffer=keep", "evaluation.log_every=1")),
    (2, ("exchange.mode=implicit", "privacy.clip=0.8", "privacy.noise=0.3")),
]
"""More of them, which take a minute, are in `integration/test_workers.py`."""


@pytest.mark.parametrize(("workers", "overrides"), CROWDS)
def test_the_number_of_workers_changes_no_byte(workers: int, overrides: tuple[str, ...]) -> None:
    assert check_same(small(*overrides), workers).environment["workers"] == workers


ISOLATED: list[tuple[str, ...]] = [
    (),
    ("exchange.mode=implicit",),
    ("exchange.method=novel", "exchange.buffer=keep"),
    ("exchange.candidates=relay", "exchange.mode=implicit", "exchange.push=aggregation"),
    ("exchange.importance_model=both_local", "exchange.mode=implicit"),
    (*ADAPTIVE, "exchange.buffer=keep"),
    ("model.encoder=slim-resnet18", "train.steps=6", "aggregation.num_devices=3", "cost.charge_broadcast=true"),
    ("aggregation.rule=median", "train.steps=8"),
    ("aggregation.rule=trimmed", "aggregation.trim=0.3", "aggregation.num_devices=3", "train.steps=8"),
    ("aggregation.clip=0.9", "attack.devices=[2]", "attack.kind=model-flipped", "train.steps=8"),
    (*CONV, "attack.devices=[2]", "attack.kind=items-far", "exchange.precision=uint8", "defence.clip=1.5"),
    ("attack.devices=1", "attack.kind=reserve-noise", "exchange.buffer=keep", "defence.cap=3", "defence.range=0.25"),
    ("train.objective=byol", "exchange.mode=implicit", "aggregation.server=momentum", "aggregation.adopt=fedema"),
    (*RESTING, "exchange.buffer=keep"),
    (*FAULTS, "exchange.mode=implicit", "faults.damage=0.2"),
    ("exchange.mode=implicit", "privacy.clip=0.8", "privacy.noise=0.3"),
    ("privacy.never_devices=[1]",),
]


@pytest.mark.parametrize("overrides", ISOLATED, ids=" ".join)
def test_parties_that_share_nothing_but_bytes_leave_the_same_model_and_costs(overrides: tuple[str, ...]) -> None:
    config = small(*overrides)
    run, expected = play_isolated(config), reference(config)
    encoder = run.hosts[0].rules.setting.encoder
    assert encoder.state_dict(run.server.model).keys() == expected.encoder.keys()
    for name, tensor in encoder.state_dict(run.server.model).items():
        assert torch.equal(tensor, expected.encoder[name]), name
    assert run.ledger.table() == expected.costs
    last = expected.of("eval")[-1]
    assert dict(run.ledger.totals()) == {key: last[key] for key in run.ledger.totals()}
