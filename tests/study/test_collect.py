import json
from pathlib import Path

import pytest

from cfcl.runs import suites
from cfcl.study import collect
from cfcl.study.bundle import Cell
from tests.conftest import small
from tests.study import made


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
    assert collect.without_distances(found).distances == ()


def test_milestones_come_from_the_pilots_uniform_exchange_alone() -> None:
    pilot = made.record([0.2, 0.5, 0.6, 0.6, 0.6])  # from 0.2 to 0.6: half way is 0.4, three quarters 0.5
    runs = {"pilot": pilot, "other": made.record([0.9] * 5)}
    cells = [
        Cell("fig6", "usps", "cfcl-explicit", {}, 10, "other"),
        Cell("fig6", "usps", "uniform-explicit", {}, 10, "pilot"),
        Cell("fig6", "usps", "uniform-explicit", {}, 1, "other"),
        Cell("fig6", "usps", "uniform-implicit", {}, 10, "unfinished"),
    ]

    assert collect.milestones(cells, runs, 10) == {"usps explicit": [0.4, 0.5, 0.56, 0.6]}


def test_selections_are_made_once_and_kept(folder: Path) -> None:
    first = collect.select(folder, "digits")
    stamp = (folder / "selections.json").stat().st_mtime_ns

    assert {item.method for item in first} == set(collect.SELECTING)
    for item in first:
        assert sum(item.histogram) == item.items > 0
        assert 0 <= item.held <= 1
    assert collect.select(folder, "digits") == first
    assert (folder / "selections.json").stat().st_mtime_ns == stamp
