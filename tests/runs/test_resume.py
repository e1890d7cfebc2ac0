"""A run that was interrupted goes on, and ends with the same bytes as one that was not."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cfcl.config import Config
from cfcl.errors import Interrupted
from cfcl.records import Record, Update
from cfcl.runs import checkpoints, suites
from tests.conftest import small
from tests.played import FILES, reference

Watch = Callable[[Record], None]

CONFIGS = {
    "explicit": (),
    "implicit": ("exchange.mode=implicit", "cost.charge_broadcast=true"),
    "relay": ("exchange.candidates=relay", "exchange.buffer=keep", "aggregation.num_devices=2"),
    "novel": ("exchange.method=novel", "exchange.buffer=limit", "exchange.buffer_size=9"),
    "bulk": ("exchange.method=bulk", "train.optimiser=sgd"),
    "push": ("exchange.mode=implicit", "exchange.push=aggregation", "exchange.importance_model=both_local"),
    "batchnorm": ("model.encoder=slim-resnet18", "aggregation.buffers=local"),
}


def stop_at(step: int, number: int = signal.SIGINT) -> Watch:
    """Sends the signal to this process when the loss of `step` is recorded."""

    def watch(record: Record) -> None:
        if isinstance(record, Update) and record.step == step:
            os.kill(os.getpid(), number)

    return watch


def interrupted(config: Config, out: Path, step: int = 4, **options: object) -> Path:
    """The folder of a run that was asked to stop at `step`."""
    with pytest.raises(Interrupted):
        suites.simulate(config, out=out, plotted=False, watch=stop_at(step), **options)  # type: ignore[arg-type]
    (partial,) = out.glob("*.partial")
    return partial


def files(folder: Path | None) -> dict[str, bytes]:
    assert folder is not None
    return {name: (folder / name).read_bytes() for name in FILES}


def quiet(text: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_resumed_run_ends_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    config = small(*CONFIGS[name], "evaluation.log_every=1")
    partial = interrupted(config, tmp_path, 6, workers=1)
    assert checkpoints.files(partial)

    result = suites.resume(partial, workers=1, plotted=False)

    assert files(result.folder) == reference(config).files
    assert [path.name for path in tmp_path.iterdir()] == [result.folder.name]  # type: ignore[union-attr]
    assert {"config.toml", "metrics.jsonl"} == {path.name for path in result.folder.iterdir()} & {  # type: ignore[union-attr]
        "config.toml",
        "metrics.jsonl",
        ".lock",
        "failed.txt",
    }
