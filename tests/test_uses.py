"""Settings that a run ignores: the user hears of them, and they are indeed ignored."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cfcl import config as configs
from cfcl.config import Config, uses
from cfcl.exchange import policies
from cfcl.sim.simulation import Simulation
from tests.conftest import small

OTHER: dict[str, object] = {
    "exchange.mode": "implicit",
    "exchange.period": 2,
    "exchange.start": 5,
    "exchange.stop": 7,
    "exchange.num_pulled": 1,
    "exchange.budget": "adaptive",
    "exchange.num_reserve": 4,
    "exchange.num_candidates": 9,
    "exchange.num_clusters": 2,
    "exchange.reserve": "random",
    "exchange.candidates": "per_aggregation",
    "exchange.push": "aggregation",
    "exchange.against": "another",
    "exchange.layer": "embedding",
    "exchange.precision": "uint8",
    "exchange.importance_model": "local",
    "exchange.buffer": "keep",
    "exchange.buffer_size": 3,
    "exchange.softmax": "global",
    "exchange.temperature_start": 50.0,
    "exchange.temperature_end": 80.0,
    "exchange.temperature_scale": "spread",
    "exchange.score": "text",
    "exchange.overlap_mean": 0.2,
    "exchange.overlap_std": 0.1,
    "exchange.novelty": 1.0,
    "exchange.cover_edge": 3.0,
    "exchange.cover_sharpness": 1.0,
    "exchange.cover_neighbours": 1,
    "exchange.num_reserve_clusters": 2,
    "defence.range": 0.1,
    "defence.clip": 0.5,
    "defence.cap": 1,
    "defence.share": 0.3,
    "attack.devices": 1,
    "attack.kind": "items-negative",
    "attack.strength": 3.0,
    "regulariser.reduction": "sum",
    "regulariser.radius": "squared",
    "regulariser.radius_factor": 3.0,
    "regulariser.weight": 0.3,
    "regulariser.staleness": "age",
    "regulariser.staleness_factor": 2.0,
    "train.composition": "union",
    "train.remote_fraction": 0.2,
    "aggregation.trim": 0.3,
    "train.negatives": "batch",
    "train.temperature": 0.7,
    "train.invariance": 3.0,
    "train.variance": 4.0,
    "train.covariance": 5.0,
    "train.momentum": 0.5,
    "aggregation.target": "local",
    "aggregation.server_rate": 0.3,
    "aggregation.server_momentum": 0.4,
    "aggregation.autoscaler": 0.2,
    "aggregation.moments": "reset",
    "aggregation.buffers": "local",
    "model.norm": "group",
    "model.widths": [8, 8],
    "model.grid": 1,
    "model.head": [],
    "partition.alpha": 3.0,
    "partition.min_points": 5,
    "partition.labels_per_device": 2,
    "partition.max_points_per_label": 20,
    "partition.points_per_device": 30,
    "partition.main_share": 0.5,
    "partition.disjoint": "true",
    "graph.degree": 2.0,
    "graph.connected": "false",
    "faults.offline_steps": 2,
    "faults.offline_trains": "false",
    "faults.damaged": "values",
    "data.dir": "elsewhere",
    "privacy.never_devices": [0],
    "privacy.clip": 0.5,
    "privacy.noise": 0.1,
    "privacy.delta": 0.01,
    "cost.d2d_mbps": 3.0,
    "cost.downlink_mbps": 3.0,
    "evaluation.num_traced": 1,
    "evaluation.ridge": 0.1,
    "evaluation.worst": "true",
}
"""Another value than that of a small run for every setting that some run ignores; files are left out."""

WORDS = [
    "fedavg",
    *(
        f"{method}-{mode}"
        for method in ("cfcl", "uniform", "kmeans", "bulk", "novel", "cover", "oracle")
        for mode in ("explicit", "implicit")
    ),
    *(f"{method}-activations" for method in ("cfcl", "novel", "cover")),
]


SHAPES = (
    ("partition.kind=dirichlet", "graph.kind=erdos_renyi", "graph.degree=2", "cost.charge_broadcast=true"),
    ("model.encoder=slim-resnet18", "exchange.buffer=limit", "aggregation.rule=trimmed"),
    ("model.encoder=conv", "privacy.clip=1.0", "privacy.noise=1.0", "evaluation.labels_per_class=[2]"),
    ("data.dataset=usps", "faults.offline=0.3", "faults.damage=0.1"),
    ("train.objective=dcl", "aggregation.server=adam"),
    ("train.objective=vicreg", "aggregation.adopt=fedema"),
    ("train.objective=byol", "partition.kind=common"),
    ("attack.devices=1", "attack.kind=model-flipped"),
)
"""Runs in which the remaining settings act."""


def idle(run: Config) -> list[str]:
    return [name for name in OTHER if configs.notes([name], [run])]


@pytest.mark.parametrize("word", WORDS)
def test_what_is_called_idle_changes_no_record(word: str) -> None:
    layer = "exchange.layer=features"
    run = configs.with_method(small("train.steps=7", "evaluation.every=9", "exchange.buffer=lasting", layer), word)
    ignored = idle(run)
    assert "partition.alpha" in ignored
    changed = configs.override(run, [f"{name}={OTHER[name]}" for name in ignored])
    assert changed != run
    assert list(Simulation(changed, reference=True).rows()) == list(Simulation(run, reference=True).rows())


@pytest.mark.parametrize("objective", ["infonce", "byol"])
def test_what_is_called_idle_changes_no_record_of_another_objective(objective: str) -> None:
    run = small("train.steps=7", "evaluation.every=9", f"train.objective={objective}", "exchange.mode=implicit")
    ignored = idle(run)
    assert {"train.negatives", "train.variance"} <= set(ignored)
    assert ("train.momentum" in ignored, "regulariser.reduction" in ignored) == (objective == "infonce",) * 2
    changed = configs.override(run, [f"{name}={OTHER[name]}" for name in ignored if name != "train.composition"])
    assert list(Simulation(changed, reference=True).rows()) == list(Simulation(run, reference=True).rows())


def test_every_setting_of_the_table_exists_and_acts_somewhere() -> None:
    names = {f"{section}.{key}" for section, key, _, _ in configs.fields(Config())}
    assert set(OTHER) <= names
    covered = {name for use in uses.USES for pattern in use.settings.split() for name in _matching(names, pattern)}
    files = {name for name in names if name.endswith("_file")}
    assert covered - files - {"exchange.method"} == set(OTHER)
    runs = [configs.with_method(small(*other), word) for word in WORDS for other in SHAPES]
    assert [name for name in OTHER if configs.notes([name], runs)] == []


def _matching(names: set[str], pattern: str) -> Iterator[str]:
    found = [name for name in names if name == pattern or (pattern[-1] == "*" and name.startswith(pattern[:-1]))]
    assert found, pattern
    yield from found


def test_the_table_knows_every_method_that_is_built_in() -> None:
    assert uses.METHODS == policies.BUILT_IN


def test_a_note_says_what_and_when() -> None:
    run = small("exchange.score=text", "exchange.overlap_std=1", "graph.degree=3")
    assert configs.notes(["exchange.score", "exchange.overlap_std", "graph.degree", "seed", "train.steps"], [run]) == [
        "exchange.score, exchange.overlap_std have no effect here, only with methods cfcl and bulk, in mode implicit",
        "graph.degree has no effect here, only with graph.kind='geometric' or 'erdos_renyi'",
    ]


def test_conv_has_group_norm_or_none() -> None:
    assert configs.notes(["model.norm"], [small("model.encoder=conv", "model.norm=batch")]) == [
        "model.norm has no effect here, only with model.encoder='slim-resnet18', and as 'group' with 'conv'"
    ]
    assert configs.notes(["model.norm"], [small("model.encoder=conv", "model.norm=group")]) == []


def test_a_setting_that_one_of_several_runs_uses_gets_no_note() -> None:
    explicit, implicit = (configs.with_method(small(), word) for word in ("cfcl-explicit", "cfcl-implicit"))
    assert configs.notes(["exchange.score"], [explicit]) != []
    assert configs.notes(["exchange.score"], [explicit, implicit]) == []


def test_of_a_registered_policy_nothing_is_known() -> None:
    run = small("exchange.method=theirs")
    assert configs.notes(["exchange.score", "exchange.novelty", "exchange.buffer_size"], [run]) == []


def test_a_preset_is_not_the_users_choice() -> None:
    for name in configs.presets():
        assert configs.given(name, configs.load(name)) == []
    changed = ["seed=3", "exchange.score=literal_radius", "name=mine"]
    assert configs.given("usps-paper", configs.load("usps-paper", changed), changed) == [
        "seed", "exchange.score", "name"
    ]  # fmt: skip


def test_a_printed_config_is_not_the_users_choice_but_what_was_edited_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = configs.to_toml(configs.load("fashion-mnist-paper"), explain=True)
    file.write_text(text)
    assert configs.given(str(file), configs.load(file)) == []
    file.write_text(text.replace("novelty = 8.0", "novelty = 2.0"))
    assert configs.given(str(file), configs.load(file)) == ["exchange.novelty"]
    file.write_text('name = "other"\n[exchange]\nscore = "text"\n')
    assert configs.given(str(file), configs.load(file)) == ["name", "exchange.score"]
