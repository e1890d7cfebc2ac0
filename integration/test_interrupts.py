"""A comparison that is interrupted saves its runs and leaves no process behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import SMALL


def _evaluated(out: Path) -> list[Path]:
    """The folders of runs under way that have measured anything."""
    return [file.parent for file in out.glob("runs/*/*.partial/metrics.jsonl") if '"eval"' in file.read_text()]


def _running(marker: str) -> int:
    listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return sum(marker in line for line in listing.splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_saves_its_runs_and_leaves_no_process_behind(number: int, tmp_path: Path) -> None:
    out = str(tmp_path / "runs")
    sets = [word for item in (*SMALL, "train.steps=100000") for word in ("--set", item)]
    command = [sys.executable, "-m", "cfcl", "compare", "digits-study", *sets, "--out", out]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as parent:
        deadline = time.monotonic() + 120
        while not _evaluated(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.2)
        under_way = _running(out)
        parent.send_signal(number)
        _, complaint = parent.communicate(timeout=60)
    assert under_way > 1
    assert parent.returncode == 128 + number
    assert complaint == "interrupted; finished runs are kept, and the same command goes on from there\n"
    assert _running(out) == 0
    assert all(list(folder.glob("checkpoint-*")) for folder in _evaluated(tmp_path))
