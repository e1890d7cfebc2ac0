import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cfcl import config as configs
from cfcl.records import Environment, Evaluation, Final, LinkCost, Pull, Record, Setup, Timings, Update
from cfcl.runs import folders, suites
from cfcl.runs.folders import Run
from cfcl.runs.suites import Result
from tests.conftest import small

MakeRun = Callable[..., Run]
Places = tuple[tuple[float, float], ...]

STEPS = (0, 10, 20)
ENVIRONMENT = Environment("3.11.0", "x86_64", "cpu", "sharded", 2, 1, {"cfcl": "0.1.0", "torch": "2.6.0"})


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of a second, with its folder; for reading only."""
    return suites.simulate(small(), out=tmp_path_factory.mktemp("played"), workers=1, plotted=False)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run folder by hand and reads it back: three devices in a line, two labels, exchanges at 10 and 15."""

    def make(
        method: str = "cfcl-explicit",
        *overrides: str,
        seed: int = 0,
        probe: Sequence[float] = (0.5, 0.625, 0.75),
        labelled: bool = True,
        positions: Places | None = None,
        folder: str = "",
        environment: Environment = ENVIRONMENT,
        few: bool = False,
    ) -> Run:
        config = configs.override(
            configs.Config(name="tiny"), ["partition.num_devices=3", "train.steps=20", f"seed={seed}", *overrides]
        )
        config = configs.with_method(config, method)
        path = tmp_path / "runs" / (folder or f"{config.name}-{config.method}-s{config.seed}-{config.digest}")
        path.mkdir(parents=True)
        exchanges = config.method != "fedavg"
        split = "validation" if config.data.validation > 0 else None
        judged = [
            _evaluation(step, value if labelled else None, exchanges) for step, value in zip(STEPS, probe, strict=True)
        ]
        rows = [
            replace(_setup(labelled, positions), num_judged=400 if few else None, split=split),
            *(_with_few(at) if few else at for at in judged),
            *(_training(step, config.exchange.mode if exchanges else "") for step in (0, 10, 19)),
            *(_pulls(labelled) if exchanges else []),
            Final(20, None, ((0.5, 1.25), (1.25, 0.25)), 3.5) if labelled else Final(20),
        ]
        timings = Timings(((10, 0.25), (15, 0.5)) if exchanges else (), 0.0, 1.0, 2.0)
        (path / "config.toml").write_text(configs.to_toml(config))
        (path / "metrics.jsonl").write_text("".join(row.to_line() + "\n" for row in rows))
        (path / "costs.json").write_text(json.dumps([cost.to_dict() for cost in _costs(exchanges)]))
        (path / "timings.json").write_text(json.dumps(timings.to_dict()))
        (path / "environment.json").write_text(json.dumps(environment.to_dict()))
        return folders.load(path)

    return make


def altered(run: Run, kind: type[Record], **values: Any) -> Run:
    """`run` with other values in its last record of `kind`."""
    last = run.of(kind)[-1]
    return replace(run, records=tuple(replace(row, **values) if row is last else row for row in run.records))


def _setup(labelled: bool, positions: Places | None) -> Setup:
    return Setup(
        dataset="made",
        encoder="small-cnn",
        num_parameters=1000,
        points=(40, 50, 1234),
        labels=((0,), (1,), (0, 1)) if labelled else None,
        edges=((0, 1), (1, 2)),
        positions=positions,
    )


def _evaluation(step: int, probe: float | None, exchanges: bool) -> Evaluation:
    """The local models are compared from the first aggregation on; a tenth of a second passes per step."""
    traffic = step if exchanges else 0
    return Evaluation(
        step=step,
        probe=probe,
        knn=None if probe is None else probe - 0.25,
        alignment=0.25,
        uniformity=-1.5,
        effective_rank=7.5,
        objective=0.125,
        cka=0.75 if step else None,
        bytes_push=50 * traffic,
        bytes_pull=150 * traffic,
        bytes_up=40_000 * step,
        bytes_down=0,
        seconds=step / 10,
        joules=0.0,
    )


def _with_few(at: Evaluation) -> Evaluation:
    """With three labels of each class the probe is a quarter lower; features are an eighth better."""
    assert at.probe is not None
    return replace(
        at,
        few={"3": at.probe - 0.25},
        features_probe=at.probe + 0.125,
        features_few={"3": at.probe - 0.125},
        features_effective_rank=9.5,
    )


def _training(step: int, mode: str) -> Update:
    implicit, pulled = mode == "implicit" and step >= 10, mode == "explicit" and step >= 10
    return Update(
        step=step,
        loss=0.5,
        triplet=0.375,
        regulariser=0.125 * implicit,
        weight=1.5 * implicit,
        active=0.625,
        pulled_share=0.25 * pulled,
        margin=0.75 * implicit,
    )


def _pulls(labelled: bool) -> list[Pull]:
    """Four links at each of two exchanges; their effective numbers are 10, 20, 30, 40 and then 12, 22, 32, 42."""
    return [
        Pull(
            step=step,
            transmitter=source,
            receiver=target,
            items=5,
            effective_candidates=10.0 * (number + 1) + extra,
            held_labels=0.25 * number if labelled else None,
            centroid_distance=0.5,
        )
        for step, extra in ((10, 0.0), (15, 2.0))
        for number, (source, target) in enumerate([(0, 1), (1, 0), (1, 2), (2, 1)])
    ]


def _costs(exchanges: bool) -> list[LinkCost]:
    up = [LinkCost(device, -1, "model", "up", 800) for device in range(3)]
    links = [(0, 1, "push", 100), (0, 1, "pull", 200), (1, 0, "pull", 300), (2, 1, "pull", 50)]
    d2d = [LinkCost(source, target, "datapoint", direction, size) for source, target, direction, size in links]
    return up + (d2d if exchanges else [])
