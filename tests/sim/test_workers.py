"""Workers that come, and go."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cfcl import config as configs
from cfcl.cli import app
from cfcl.data.datasets import Dataset, load
from cfcl.errors import CfclError, WorkerLost
from cfcl.exchange import policies
from cfcl.models.networks import SmallCnn
from cfcl.records import Record, Update
from cfcl.runs import suites
from cfcl.sim import engines, group, workers
from cfcl.sim.group import Group
from tests.conftest import SMALL, small
from tests.played import played

LONG = ["train.steps=100000", "evaluation.log_every=1"]


def hired(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workers of runs to come."""
    found: list[Any] = []
    start = workers._start

    def remember(*args: Any) -> Any:
        found.append(start(*args))
        return found[-1]

    monkeypatch.setattr(workers, "_start", remember)
    return found


def test_a_worker_that_dies_is_named_with_its_device_and_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workers = hired(monkeypatch)

    def watch(record: Record) -> None:
        if isinstance(record, Update) and record.step > 20:
            workers[0].process.kill()

    message = r"worker 1 \(devices 2 to 3\) was ended by signal 9 at step \d+, device [23]: run again, with fewer"
    with pytest.raises(WorkerLost, match=message):
        suites.simulate(small(*LONG), workers=2, out=tmp_path, watch=watch)
    (partial,) = tmp_path.iterdir()
    assert partial.name.endswith(".partial")
    assert len((partial / "metrics.jsonl").read_text().splitlines()) > 20
    # the process is as good as new
    assert len(suites.simulate(small(), workers=2).metrics) == 3


def test_a_worker_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # The leader's own copy of the config is in order; the worker gets one that is not.
    monkeypatch.setattr(configs, "to_toml", lambda config: "train.steps = 'many'")
    with pytest.raises(WorkerLost, match=r"worker 1 .* failed with code 1 before its first update \(.*train.steps"):
        suites.simulate(small(), workers=2)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path(f"/proc/{os.getpid()}/task").exists(), reason="needs /proc to see processes")
@pytest.mark.parametrize(("blow", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_its_leader(blow: signal.Signals, code: int, tmp_path: Path) -> None:
    words = [word for override in [*SMALL, *LONG] for word in ("--set", override)]
    command = [
        sys.executable,
        "-m",
        "cfcl",
        "run",
        "digits",
        *words,
        "--workers",
        "2",
        "--json",
        "--out",
        str(tmp_path),
    ]
    leader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert leader.stdout is not None
    assert next(line for line in leader.stdout if '"train"' in line)
    workers = children(leader.pid)
    assert len(workers) == 1
    leader.send_signal(blow)
    leader.communicate(timeout=30)
    assert leader.returncode == code
    deadline = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, workers))


def test_torchrun_starts_the_same_simulation(tmp_path: Path) -> None:
    words = [word for override in SMALL for word in ("--set", override)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cfcl"]
    result = subprocess.run(
        [*launch, "run", "digits", *words, "--out", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    (folder,) = tmp_path.iterdir()
    assert (folder / "metrics.jsonl").read_bytes() == played().files["metrics.jsonl"]
    assert result.stdout.count("Run folder") == 1


def test_comparisons_refuse_torchrun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not group.launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert group.launched()
    result = CliRunner().invoke(app, ["compare", "digits", "--out", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert result.stderr == "error: compare starts its own processes, one per run: call it without torchrun\n"
    assert not (tmp_path / "runs").exists()


def refusal(message: str, **options: Any) -> None:
    with pytest.raises(CfclError, match=message), engines.start(small(), **options):
        pass


def test_impossible_workers_are_refused() -> None:
    refusal(r"5 workers cannot share 4 devices: lower --workers", workers=5)
    dataset: Dataset = load(small().data)
    refusal(r"2 workers cannot share objects of this process", workers=2, dataset=dataset)
    refusal(r"2 workers cannot share objects of this process", workers=2, module=SmallCnn((1, 8, 8), 16, torch.Generator()))


def test_what_lives_in_this_process_runs_in_this_process() -> None:
    with engines.start(small(), dataset=load(small().data)) as simulation:
        assert simulation.group.size == 1
    policies.register("mine", policies.POLICIES["uniform"])
    try:
        with engines.start(small("exchange.method=mine")) as simulation:
            assert simulation.group.size == 1
    finally:
        del policies.POLICIES["mine"]


@pytest.mark.parametrize(("size", "total"), [(1, 5), (2, 5), (3, 10), (4, 4), (7, 10_000)])
def test_shares_follow_each_other_and_know_their_owner(size: int, total: int) -> None:
    shares = [Group(rank, size).share(total) for rank in range(size)]
    assert [thing for share in shares for thing in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(Group(0, size).owner(thing, total) == rank for rank, share in enumerate(shares) for thing in share)
