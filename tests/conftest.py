import signal
from collections.abc import Iterable

import pytest
import torch
from typer.testing import Result

from cfcl import config as configs
from cfcl.config import Config

# Where tests are started in the background SIGINT may be ignored, and so it would be in every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = (
    "train.steps=12",
    "train.batch_size=8",
    "partition.num_devices=4",
    "graph.kind=ring",
    "aggregation.period=4",
    "exchange.period=3",
    "exchange.num_pulled=2",
    "exchange.num_reserve=3",
    "exchange.num_candidates=8",
    "exchange.num_clusters=3",
    "evaluation.num_health=32",
    "evaluation.every=2",
)


def small(*overrides: str, base: Iterable[str] = SMALL) -> Config:
    """A run of a second: four devices on a ring, twelve steps."""
    return configs.load("digits-study", ["name=digits", *base, *overrides])


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def check_complaint(result: Result, *parts: str) -> None:
    """A command was refused in one line that says all of `parts`."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line
