"""A study on digits, one seed of it, killed on the way: a minute or two."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cfcl.study import bundle, plan
from cfcl.study.profiles import PROFILES

FIGURES = ("fig4", "fig6", "fig7", "fig9")  # maps, the pilot, selections, a sweep


def _finished(out: Path) -> dict[str, int]:
    found = [path for path in (out / "runs").glob("*/timings.json") if not path.parent.name.endswith(".partial")]
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


def _processes(out: Path) -> str:
    return subprocess.run(["pgrep", "-f", str(out)], capture_output=True, text=True, check=False).stdout


def test_a_study_that_was_killed_goes_on_where_it_stopped_and_ends_in_a_report(tmp_path: Path) -> None:
    out = tmp_path / "study"
    command = [sys.executable, "-m", "cfcl", "reproduce", *FIGURES, "--profile", "smoke", "--out", str(out)]
    command += ["--seeds", "1"]
    deadline = time.monotonic() + 300
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as first:
        while len(_finished(out)) < 5 and time.monotonic() < deadline:
            time.sleep(0.2)
        os.kill(first.pid, signal.SIGKILL)
    before = _finished(out)
    assert len(before) >= 5
    while _processes(out) and time.monotonic() < deadline:  # the runs under way notice that nobody listens
        time.sleep(0.2)

    again = subprocess.run(command, capture_output=True, text=True, check=False)

    assert again.returncode == 0, again.stderr
    wanted = plan.plan(PROFILES["smoke"], FIGURES, seeds=[1])
    after = _finished(out)
    assert before.items() <= after.items()
    assert len(after) == len({cell.digest for cell, _ in wanted})
    study = bundle.read(out / "smoke")
    assert study.cells == tuple(cell for cell, _ in wanted)
    assert set(study.runs) == {cell.digest for cell in study.cells}
    for figure in FIGURES:
        assert (out / "smoke" / f"{figure}.png").stat().st_size > 5_000
    assert "Verdicts" in again.stdout
