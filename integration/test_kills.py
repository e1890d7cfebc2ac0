"""Runs that are killed go on: by SIGKILL at random moments, and under torchrun."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.conftest import cfcl, files, one_line, run_words


def test_killed_runs_end_with_the_same_bytes() -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "kills.py"
    words = [sys.executable, str(script), "--kills", "16", "--seed", "2"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=1500, check=False)
    assert result.returncode == 0, result.stdout
    assert ", 0 faults" in result.stdout.splitlines()[-1]


def test_torchrun_starts_the_same_simulation(tmp_path: Path, whole: dict[str, bytes]) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cfcl"]
    result = subprocess.run([*launch, *run_words(tmp_path)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    (folder,) = tmp_path.iterdir()
    assert files(folder) == whole
    assert result.stdout.count('"kind":"done"') == 1, result.stdout


def test_a_run_under_torchrun_goes_on_after_one_of_its_processes_died(tmp_path: Path, whole: dict[str, bytes]) -> None:
    torchrun = shutil.which("torchrun", path=Path(sys.executable).parent)
    if torchrun is None:
        pytest.skip("torchrun is not beside this Python")
    out = tmp_path / "runs"
    launch = [torchrun, "--standalone", "--nproc-per-node", "2", "-m", "cfcl"]
    with subprocess.Popen([*launch, *run_words(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 120
        while not list(out.glob("*.partial/checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        ranks = subprocess.run(
            ["pgrep", "--parent", str(first.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        os.kill(int(ranks[-1]), signal.SIGKILL)
        assert first.wait(120) != 0
    (partial,) = out.glob("*.partial")

    again = subprocess.run(
        [*launch, "resume", str(partial), "--json"], capture_output=True, text=True, timeout=240, check=False
    )

    assert again.returncode == 0, again.stderr
    (folder,) = out.iterdir()
    assert files(folder) == whole


def test_two_runs_in_one_folder_do_not_meet(tmp_path: Path, whole: dict[str, bytes]) -> None:
    words = [sys.executable, "-m", "cfcl", *run_words(tmp_path), "--workers", "1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("*.partial/checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        (partial,) = tmp_path.glob("*.partial")
        one_line(cfcl("resume", str(partial)), 2, "another process is writing", str(partial))
        second = cfcl(*run_words(tmp_path), "--workers", "1")
        assert first.wait(120) == 0
    assert second.returncode == 0, second.stderr
    folders = sorted(tmp_path.iterdir())
    assert [files(folder) for folder in folders] == [whole, whole]
