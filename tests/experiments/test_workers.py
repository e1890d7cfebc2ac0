import signal
import subprocess
import sys
import time
from pathlib import Path

from cfcl.experiments.workers import run_many
from tests.conftest import SMALL, small


def test_a_failed_run_is_reported_and_does_not_stop_the_others(tmp_path: Path) -> None:
    runs = [small(f"exchange.budgets_file={tmp_path}/absent.csv"), small("train.steps=4")]
    seen: set[int] = set()

    bad, good = run_many(
        runs, out=tmp_path / "runs", num_workers=2, device="cpu", watch=lambda position, row: seen.add(position)
    )

    assert bad.folder is None
    assert "absent.csv" in bad.error
    assert good.folder is not None
    assert (good.folder / "metrics.jsonl").is_file()
    assert seen == {1}
    assert list((tmp_path / "runs").iterdir()) == [good.folder]


def _running(marker: str) -> int:
    listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return sum(marker in line for line in listing.splitlines())


def test_an_interrupted_comparison_leaves_no_process_behind(tmp_path: Path) -> None:
    out = str(tmp_path / "runs")
    sets = [word for item in (*SMALL, "train.steps=100000") for word in ("--set", item)]
    command = [sys.executable, "-m", "cfcl", "compare", "digits", *sets, "--out", out]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as parent:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/*.partial")) and time.monotonic() < deadline:
            time.sleep(0.2)
        under_way = _running(out)
        parent.send_signal(signal.SIGINT)
        _, complaint = parent.communicate(timeout=60)
    assert under_way > 1
    assert parent.returncode == 130
    assert "interrupted" in complaint
    assert _running(out) == 0
