import json
from dataclasses import replace
from pathlib import Path

import pytest

from cfcl.config import NUMERICS, Config
from cfcl.records import Overlap
from cfcl.runs import suites
from cfcl.sim import overlap
from cfcl.study import collect, measures, selections, worlds
from cfcl.study.bundle import Cell, Study
from cfcl.study.figures import FIGURES
from cfcl.study.profiles import PROFILES
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
    # reserves at 0, exchanges at 3, 6 and 9: three of these come before the evaluation at 8
    assert [step for step, _ in selection] == [0, 3, 6, 9]
    assert found.evaluations[1].selection == pytest.approx(sum(duration for _, duration in selection[:3]))
    # what is paid at t = 0 counts from there on: 8 links, 3 reserve points of 64 bytes
    assert (evals[0]["bytes_push"], found.evaluations[0].bytes_push) == (0, 8 * 3 * 64)
    assert found.evaluations[0].seconds == pytest.approx(0.003072)
    assert found.evaluations[0].selection == pytest.approx(selection[0][1])
    assert found.effective_candidates == pytest.approx(sum(row["effective_candidates"] for row in pulls) / len(pulls))
    holders = rows[0]["labels"]
    chances = [row["held_labels"] / len(holders[row["receiver"]]) for row in pulls]
    assert found.false_negatives == pytest.approx(sum(chances) / len(chances))
    assert len(found.distances) == len(found.labels) == 10
    assert found.numerics == NUMERICS
    assert worlds.raw_bytes(folder) == 64 * sum(rows[0]["points"])


def test_the_estimate_of_what_is_new_is_made_once_where_a_figure_shows_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, made = small().digest, list[str]()
    monkeypatch.setattr(collect, "PROFILES", {"made": PROFILES["smoke"]})
    whole = overlap.measure

    def counted(config: Config) -> Overlap:
        made.append(config.digest)
        return whole(config)

    monkeypatch.setattr(overlap, "measure", counted)
    cells = [Cell("foretold", "digits", "uniform-explicit", {"share": 0.5}, 0, digest)]

    def gathered(cells: list[Cell], kept: Study | None) -> Study:
        facts = worlds.facts(cells, kept, {digest: folder})
        return collect.gather("made", cells, kept, {digest: folder}, [], facts=facts)

    found = gathered(cells, None)
    again = gathered(cells, found)
    without = gathered([replace(cells[0], figure="fig5")], None)

    assert found.runs[digest].new == pytest.approx(whole(small()).new)
    assert again.runs == found.runs
    assert made == [digest]
    assert without.runs[digest].new is None
    assert without.runs[digest].raw == found.runs[digest].raw == worlds.raw_bytes(folder)
    assert FIGURES["foretold"].known(found, cells[0])
    assert not FIGURES["foretold"].known(without, cells[0])


def test_the_worst_are_taken_over_from_records(tmp_path: Path) -> None:
    config = small("evaluation.labels_per_class=[10]", "evaluation.worst=true")
    result = suites.simulate(config, out=tmp_path, workers=1, plotted=False)
    assert result.folder is not None
    rows = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]

    found = collect.record(result.folder)

    evals = [row for row in rows if row["kind"] == "eval"]
    assert [(item.worst_label, item.worst_device) for item in found.evaluations] == [
        (row["worst_label"], row["worst_device"]) for row in evals
    ]


def test_bulk_exchange_is_charged_in_full_at_every_milestone(tmp_path: Path) -> None:
    config = small("exchange.method=bulk", "train.learning_rate=0.01")
    result = suites.simulate(config, out=tmp_path, workers=1, plotted=False)
    assert result.folder is not None
    found = collect.record(result.folder)
    curve = tuple(replace(item, probe=probe) for item, probe in zip(found.evaluations, (0.1, 0.9, 0.9), strict=True))
    spent = measures.reach(replace(found, evaluations=curve), 0.2)
    assert spent is not None
    # 8 links, 2 items at each of three exchanges, all of it at t = 0
    assert spent.pull == pytest.approx(8 * 6 * 64)


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
