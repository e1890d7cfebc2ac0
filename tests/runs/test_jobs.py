import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cfcl.records import Failed, Record, Setup
from cfcl.runs import job
from cfcl.runs.jobs import _Process, run_many
from cfcl.sim import allocator
from tests.conftest import small


def test_a_failed_run_is_reported_and_does_not_stop_the_others(tmp_path: Path) -> None:
    runs = [small(f"exchange.budgets_file={tmp_path}/absent.csv"), small("train.steps=4")]
    seen: dict[int, list[str]] = {0: [], 1: []}

    bad, good = run_many(
        runs,
        out=tmp_path / "runs",
        num_workers=1,
        device="cpu",
        watch=lambda position, record: seen[position].append(record.KIND),
    )

    assert bad.folder is None
    assert "absent.csv" in bad.error
    assert good.folder is not None
    assert (good.folder / "metrics.jsonl").is_file()
    assert seen[0] == ["failed"]
    assert (seen[1][0], seen[1][-1]) == ("setup", "done")
    assert (good.folder / "plots" / "accuracy.png").is_file()
    assert list((tmp_path / "runs").iterdir()) == [good.folder]


def test_a_process_does_one_run_after_another_and_one_that_dies_costs_only_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [small("train.steps=4", f"seed={seed}") for seed in range(3)]
    killed: list[int] = []
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "jaxtyping.py").write_text("raise SystemExit('a module of the current folder')")
    monkeypatch.chdir(tmp_path / "here")

    def watch(position: int, record: Record) -> None:
        if position == 0 and isinstance(record, Setup) and not killed:
            listing = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=True).stdout
            killed.extend(int(word) for word in listing.split())
            os.kill(killed[0], signal.SIGKILL)

    first, *others = run_many(runs, out=tmp_path, num_workers=1, device="cpu", watch=watch, plotted=False)

    assert len(killed) == 1
    assert first.folder is None
    assert first.error == "its process was ended by signal 9 (SIGKILL): perhaps memory ran out"
    for other in others:
        assert other.folder is not None
        assert (other.folder / "encoder.safetensors").is_file()
        assert not (other.folder / "plots").exists()


def test_a_job_ends_with_its_parent_and_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(job, "end_with", done.append)
    monkeypatch.setattr(allocator, "keep_memory", lambda: done.append("kept"))
    monkeypatch.setattr(sys, "argv", ["job", "--parent", "41", "--out", "runs"])
    monkeypatch.setattr(sys, "stdin", [])
    job.main()
    assert done == [41, "kept"]


def test_a_last_word_that_is_cut_off_is_no_record() -> None:
    deed = 'import os; print(\'{"kind": "eval", "st\', end=\'\', flush=True); os.kill(os.getpid(), 15)'
    process = _Process([sys.executable, "-I", "-S", "-c", deed])
    assert list(process.records(small())) == [Failed("its process was ended by signal 15 (SIGTERM)")]
    process.end()
