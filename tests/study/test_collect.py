import json
from pathlib import Path

import pytest

from cfcl.config import NUMERICS
from cfcl.runs import suites
from cfcl.study import collect, selections
from cfcl.study.bundle import Cell
from tests.conftest import small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = suites.simulate(small(), out=tmp_path_factory.mktemp("runs"), workers=1, plotted=False)
    assert result.folder is not None
    return result.folder


def test_a_record_says_what_the_run_measured(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evals = [row for row in rows if row["kind"] == "eval"]
    pulls = [row for row in rows if row["kind"] == "pull"]
    selection = json.loads((folder / "timings.json").read_text())["selection"]

    found = collect.record(folder)

    assert (found.method, found.seed, found.steps, found.preset) == ("cfcl-explicit", 0, 12, "digits")
    assert found.digest == small().digest
    assert [item.step for item in found.evaluations] == [row["step"] for row in evals] == [0, 8, 12]
    assert [item.probe for item in found.evaluations] == [row["probe"] for row in evals]
    assert found.evaluations[-1].bytes_push == evals[-1]["bytes_push"]
    # exchanges at 3, 6 and 9: two of them come before the evaluation at 8
    assert found.evaluations[1].selection == pytest.approx(selection[0][1] + selection[1][1])
    assert found.effective_candidates == pytest.approx(sum(row["effective_candidates"] for row in pulls) / len(pulls))
    holders = rows[0]["labels"]
    chances = [row["held_labels"] / len(holders[row["receiver"]]) for row in pulls]
    assert found.false_negatives == pytest.approx(sum(chances) / len(chances))
    assert len(found.distances) == len(found.labels) == 10
    assert found.numerics == NUMERICS


def test_selections_are_made_once_and_kept_beside_the_runs(folder: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    cell = Cell("fig7", "digits", "fedavg", {}, 0, "abc")

    first = selections.select(folder, cell, tmp_path / "kept")

    stamp = (tmp_path / "kept" / "abc.json").stat().st_mtime_ns
    assert {item.method for item in first} == set(selections.SELECTING)
    for item in first:
        assert sum(item.histogram) == item.items > 0
        assert 0 <= item.held <= 1
        assert (item.digest, item.seed, item.panel) == ("abc", 0, "digits")
    assert selections.select(folder, cell, tmp_path / "kept") == first
    assert (tmp_path / "kept" / "abc.json").stat().st_mtime_ns == stamp
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
