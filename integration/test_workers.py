"""The number of processes changes no byte, whatever the settings; `tests/test_equivalence.py` has the first of them."""

from pathlib import Path

import pytest
from tests.conftest import small
from tests.played import reference
from tests.runs.test_resume import CONFIGS, EVERY, files, go_on, interrupted, stop_at
from tests.test_equivalence import ADAPTIVE, CONV, FAULTS, check_same

from cfcl.errors import Interrupted
from cfcl.sim import simulation

CROWDS: list[tuple[int, tuple[str, ...]]] = [
    (4, ("model.encoder=slim-resnet18", "train.steps=6", "aggregation.num_devices=3")),
    (3, ("aggregation.rule=median", "train.steps=8")),
    (3, ("aggregation.clip=0.9", "aggregation.num_devices=3", "attack.devices=1", "attack.kind=model-noise")),
    (2, (*CONV, "attack.devices=[2]", "attack.kind=items-noise", "defence.range=0.25", "defence.clip=1.2")),
    (2, ("train.objective=infonce", "exchange.mode=implicit", "aggregation.server=adam", "aggregation.ema=0.5")),
    (2, ("train.objective=byol", "aggregation.adopt=fedema", "train.schedule=cosine")),
    (3, (*ADAPTIVE, "exchange.buffer=keep")),
    (3, (*FAULTS, "exchange.mode=implicit", "aggregation.rule=median")),
    (2, ("privacy.never_devices=[1]",)),
    (
        3,
        (
            "exchange.mode=implicit",
            "evaluation.num_health_devices=2",
            "evaluation.num_traced=1",
            "evaluation.features=true",
            "evaluation.labels_per_class=[3]",
        ),
    ),
]


@pytest.mark.parametrize(("workers", "overrides"), CROWDS)
def test_the_number_of_workers_changes_no_byte(workers: int, overrides: tuple[str, ...]) -> None:
    assert check_same(small(*overrides), workers).environment["workers"] == workers


def test_a_run_may_stop_often_and_change_its_engine_and_workers_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "REPORT_EVERY", 0.0)  # processes ask each other after every step
    config = small(EVERY)
    partial = interrupted(config, tmp_path, 0, workers=2)
    for step, how in ((3, {"engine": "loop", "workers": None}), (8, {"workers": 3})):
        with pytest.raises(Interrupted):
            go_on(partial, watch=stop_at(step), **how)
    assert files(go_on(partial, workers=2)) == reference(config).files


def test_with_faults_it_may_change_its_engine_and_workers_too(tmp_path: Path) -> None:
    config = small(EVERY, *CONFIGS["faults"])
    partial = interrupted(config, tmp_path, 4, engine="loop", workers=None)
    assert files(go_on(partial, workers=2)) == reference(config).files
