"""Workers that come, and go."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
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
from cfcl.sim.simulation import Simulation
from cfcl.sim.world import check_same
from tests.conftest import SMALL, small
from tests.played import played

ADDRESS = {"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
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

    message = (
        r"worker 1 \(devices 2 to 3\) was ended by signal 9 \(SIGKILL\) at step \d+, device [23]: run again, with fewer"
    )
    with pytest.raises(WorkerLost, match=message):
        suites.simulate(small(*LONG), workers=2, out=tmp_path, watch=watch)
    (partial,) = tmp_path.iterdir()
    assert partial.name.endswith(".partial")
    assert len((partial / "metrics.jsonl").read_text().splitlines()) > 20
    # the process is as good as new
    assert len(suites.simulate(small(), workers=2).metrics) == 3


def test_what_a_worker_refuses_is_refused_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    # The leader's own copy of the config is in order; the worker gets one that is not.
    monkeypatch.setattr(configs, "to_toml", lambda config: "train.steps = 'many'")
    with pytest.raises(CfclError, match=r"the leader: train.steps='many' is not allowed") as caught:
        suites.simulate(small(), workers=2)
    assert not isinstance(caught.value, WorkerLost)


def stand_in(monkeypatch: pytest.MonkeyPatch, *deeds: str) -> None:
    """In place of workers, processes that do as they are told."""

    def start(order: dict[str, Any], folder: Path) -> Any:
        complaints = (folder / f"worker-{order['rank']}").open("w+")
        command = [sys.executable, "-I", "-S", "-c", f"import os, sys, time\n{deeds[order['rank'] - 1]}"]
        return workers._Worker(subprocess.Popen(command, cwd=folder, stderr=complaints), complaints)

    monkeypatch.setattr(workers, "_start", start)


def lost(size: int) -> str:
    with pytest.raises(WorkerLost) as caught, workers.hired(small(), size, "cpu"):
        pass
    return str(caught.value)


def test_a_worker_that_dies_between_being_ready_and_being_connected_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MEETING", timedelta(seconds=0.5))
    stand_in(monkeypatch, "open('ready-1', 'w'); time.sleep(0.1); os.kill(os.getpid(), 9)")
    assert lost(2).startswith("worker 1 (devices 2 to 3) was ended by signal 9 (SIGKILL) before its first update: run")


def test_workers_that_are_there_but_do_not_connect_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MEETING", timedelta(seconds=0.5))
    monkeypatch.setattr(workers, "LAST_WORDS", 0.1)
    stand_in(monkeypatch, "open('ready-1', 'w'); time.sleep(60)")
    assert lost(2).startswith("the workers are out of reach (")


def test_the_worker_that_died_first_is_named_and_not_those_it_took_along(monkeypatch: pytest.MonkeyPatch) -> None:
    bereaved = "time.sleep(60)"
    stand_in(monkeypatch, bereaved, "print('a warning', file=sys.stderr, flush=True); os.kill(os.getpid(), 15)")
    assert lost(3).startswith("worker 2 (devices 2 to 3) was ended by signal 15 (SIGTERM) before its first update: run")
    stand_in(monkeypatch, bereaved, "time.sleep(0.3); sys.exit('no space left')")
    assert "worker 2 (devices 2 to 3) ended with code 1 before its first update (no space left): run" in lost(3)


def test_a_worker_that_cannot_be_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    refusal(r"worker 1 cannot be started: No such file or directory; use fewer --workers", workers=2)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listening(pid: int) -> set[str]:
    """The addresses, as hexadecimal digits, on which a process accepts connections."""
    links = [str(item.readlink()) for item in Path(f"/proc/{pid}/fd").iterdir() if item.is_symlink()]
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {line[1].split(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in links}


sees_processes = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see processes")


@sees_processes
def test_a_connection_closes_with_its_context_whoever_holds_its_group(tmp_path: Path) -> None:
    with group.met(Group(), tmp_path / "meeting") as met:
        assert listening(os.getpid()) == {"0100007F"}
    assert met.handle() is None
    assert listening(os.getpid()) == set()


@dataclass(frozen=True)
class Together:
    """Two runs of two workers each, in two threads of one process, in a folder with a module of another's."""

    metrics: list[bytes]
    addresses: frozenset[str]
    most_children: int
    folder: Path


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Together:
    folder, addresses, counts = tmp_path_factory.mktemp("together"), set[str](), list[int]()
    for name in ("temporary", "runs"):
        (folder / name).mkdir()
    (folder / "jaxtyping.py").write_text(f"open({str(folder / 'hijacked')!r}, 'w')")

    def watch(record: Record) -> None:
        mine = children(os.getpid())
        counts.append(len(mine))
        for pid in (os.getpid(), *mine):
            with suppress(OSError):
                addresses.update(listening(pid))

    def metrics(seed: int) -> bytes:
        done = suites.simulate(small(f"seed={seed}"), workers=2, out=folder / "runs", plotted=False, watch=watch)
        assert done.folder is not None
        return (done.folder / "metrics.jsonl").read_bytes()

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.chdir(folder)
        patch.setattr(tempfile, "tempdir", str(folder / "temporary"))
        return Together(list(pool.map(metrics, (0, 1))), frozenset(addresses), max(counts), folder)


@sees_processes
def test_runs_in_two_threads_do_not_disturb_each_other(together: Together) -> None:
    assert together.most_children == 2
    assert together.metrics == [played(f"seed={seed}").files["metrics.jsonl"] for seed in (0, 1)]


@sees_processes
def test_nothing_listens_on_other_addresses_than_this_machines_own(together: Together) -> None:
    assert together.addresses == {"0100007F"}  # 127.0.0.1, the last byte first


@sees_processes
def test_nothing_of_a_run_is_left(together: Together) -> None:
    assert not dist.is_initialized()
    assert listening(os.getpid()) == set()
    assert children(os.getpid()) == []
    # torch may have made a cache there, which is not ours to remove
    left = [path.name for path in (together.folder / "temporary").iterdir()]
    assert [name for name in left if not name.startswith("torchinductor_")] == []


@sees_processes
def test_workers_take_no_modules_from_the_current_folder(together: Together) -> None:
    assert not (together.folder / "hijacked").exists()


def test_processes_that_have_read_different_images_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    labels = np.arange(60) % 4
    np.savez(tmp_path / "mine.npz", images=images, labels=labels)
    start = workers._start

    def rewrite(*args: Any) -> Any:
        images[7, 3, 3] += 1
        np.savez(tmp_path / "mine.npz", images=images, labels=labels)
        return start(*args)

    monkeypatch.setattr(workers, "_start", rewrite)
    config = small("data.dataset=npz", f"data.path={tmp_path / 'mine.npz'}", "partition.kind=iid")
    with pytest.raises(CfclError, match="process 1 has other data than process 0, but each reads them"):
        suites.simulate(config, workers=2, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "what"),
    [("seed=1", "partition"), ("model.embedding_dim=8", "model"), ("graph.kind=complete", "graph")],
)
def test_processes_that_have_built_different_things_are_refused(
    change: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (Simulation(small(*overrides)).world for overrides in ((), (change,)))
    monkeypatch.setattr(Group, "everywhere", lambda self, line: [line, json.dumps(mine.fingerprints)])
    check_same(mine, Group(0, 2))
    with pytest.raises(CfclError, match=f"process 1 has other {what}"):
        check_same(other, Group(0, 2))


@sees_processes
@pytest.mark.parametrize(
    ("moment", "blow", "code"),
    [("training", signal.SIGINT, 130), ("training", signal.SIGTERM, None), ("born", signal.SIGKILL, -9)],
)
def test_no_process_outlives_its_leader(moment: str, blow: signal.Signals, code: int | None, tmp_path: Path) -> None:
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
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    leader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert leader.stdout is not None
    if moment == "training":
        assert next(line for line in leader.stdout if '"train"' in line)
    while not list(tmp_path.glob("temporary/cfcl-*/worker-1")) or not (workers := children(leader.pid)):
        time.sleep(0.01)
    assert len(workers) == 1
    leader.send_signal(blow)
    leader.communicate(timeout=30)
    assert code in (None, leader.returncode)
    deadline = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    assert list(tmp_path.glob("temporary/cfcl-*")) == []


def test_comparisons_refuse_torchrun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not group.launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert group.launched()
    result = CliRunner().invoke(app, ["compare", "digits", "--out", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert result.stderr == "error: compare starts its own processes, one per run: call it without torchrun\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "2"}, r"WORLD_SIZE=2 is in the environment, but RANK, MASTER_ADDR, MASTER_PORT not: start by"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, r"but MASTER_ADDR, MASTER_PORT not: start by torchrun"),
        ({"WORLD_SIZE": "two"}, r"WORLD_SIZE='two' in the environment is not a number: start by torchrun, or unset it"),
        ({"WORLD_SIZE": "2", **ADDRESS, "RANK": "x"}, r"RANK='x' in the environment is not a number"),
        ({"WORLD_SIZE": "2", **ADDRESS, "RANK": "2"}, r"RANK=2 in the environment is not below WORLD_SIZE=2"),
        ({"WORLD_SIZE": "2", **ADDRESS, "MASTER_PORT": "70000"}, r"processes of torchrun cannot be reached \(.*70000"),
    ],
)
def test_half_of_torchruns_environment_is_refused(
    environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    refusal(message)


def test_a_group_of_the_callers_own_is_used_and_left_as_it_was(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        known = len(dist.distributed_c10d._world.pg_map)
        with engines.start(small()) as simulation:
            assert simulation.group.size == 1
        assert len(dist.distributed_c10d._world.pg_map) == known
    finally:
        dist.destroy_process_group()


def refusal(message: str, **options: Any) -> None:
    with pytest.raises(CfclError, match=message), engines.start(small(), **options):
        pass


def test_impossible_workers_are_refused() -> None:
    refusal(r"5 workers cannot share 4 devices: lower --workers", workers=5)
    dataset: Dataset = load(small().data)
    refusal(r"2 workers cannot share objects of this process", workers=2, dataset=dataset)
    refusal(r"2 workers cannot share objects of this process", workers=2, module=SmallCnn((1, 8, 8), 16))


def test_devices_that_are_none_are_refused() -> None:
    refusal(r"device 'meta' cannot be used: .*; choose cpu, or a device this torch has", device="meta")
    refusal(r"device 'gpu' cannot be used: .*; choose cpu, or a device this torch has", device="gpu")


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


def test_an_orphan_removes_the_folder_that_it_is_still_writing_to(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}").touch()
    code = """
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from cfcl.sim.workers import end_with
end_with(-1, sys.argv[1])
for number in count(300):
    with suppress(OSError):
        (Path(sys.argv[1]) / f"{number}").touch()
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False).returncode == 1
    assert not tmp_path.exists()


@pytest.mark.parametrize(("parent", "then"), [(7, []), (1, ["pauses"])])
def test_a_worker_that_fails_leaves_time_to_tidy_up_after_its_leader(
    parent: int, then: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, done = tmp_path / "order-1", list[str]()

    def fail(order: dict[str, Any]) -> None:
        raise FileNotFoundError("the folder has gone")

    monkeypatch.setattr(workers, "end_with", lambda parent, rubbish: done.append(f"watches {parent}"))
    monkeypatch.setattr(workers, "serve", fail)
    monkeypatch.setattr(time, "sleep", lambda seconds: done.append(f"waits {seconds > workers.GLANCE}"))
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(signal, "pause", lambda: done.append("pauses"))
    monkeypatch.setattr(sys, "argv", ["workers", str(orders)])
    orders.write_text(json.dumps({"leader": 7, "folder": str(tmp_path)}))
    with pytest.raises(FileNotFoundError):
        workers.main()
    assert done == ["watches 7", "waits True", *then]
