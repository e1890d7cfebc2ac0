"""A finished run stays finished: what its digest covers, and what a study does with what is kept."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cfcl import config as configs
from cfcl.config import NUMERICS, Config, Section, TrainConfig
from cfcl.runs.jobs import Outcome
from cfcl.study import bundle, collect, markdown, measures, pages, plan, report, reproduce, webpage
from cfcl.study.bundle import Cell, Study
from cfcl.study.figures import FIGURES
from tests.conftest import small
from tests.study import made
from tests.study.conftest import invoke

DEFAULTS = Path(__file__).with_name("defaults.json")
LOW, HIGH = (0.5, 0.5, 0.5), (0.5, 0.75, 1.0)

pytestmark = pytest.mark.xdist_group("study")
"""One process makes the study that these tests look at."""


class _Train(TrainConfig):
    patience: int = 0


class _Future(Section):
    objective: str = "triplet"


class _Later(Config):
    """The config of a later time, with a field in a section and a section that there are not yet."""

    train: _Train = _Train()
    future: _Future = _Future()


def _later(config: Config, **changes: dict[str, Any]) -> Config:
    table = config.model_dump()
    table["train"] = _Train(**table["train"], **changes.get("train", {}))
    return _Later(**table, future=_Future(**changes.get("future", {})))


def test_a_new_field_orphans_no_run() -> None:
    for config in (Config(), small("seed=3"), configs.load("usps")):
        assert _later(config).digest == config.digest
        assert _later(config, train={"patience": 5}).digest != config.digest
        assert _later(config, future={"objective": "pairs"}).digest != config.digest


def test_a_digest_names_the_settings_and_the_numerics() -> None:
    config = small()
    # worked out once: whoever changes how a digest is made orphans all that is kept
    assert Config().digest_under(1) == "e7c7278e1581"
    assert config.digest == config.digest_under(NUMERICS) != config.digest_under(NUMERICS + 1)
    assert small("data.dir='/elsewhere'").digest == config.digest
    assert small("seed=1").digest != config.digest


def test_a_changed_default_raises_the_numerics() -> None:
    kept = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    today = {f"{section}.{key}".lstrip("."): value for section, key, value, _ in configs.fields(Config())}
    moved = {key: today.get(key, "gone") for key, value in kept["defaults"].items() if today.get(key, "gone") != value}

    assert kept["numerics"] == NUMERICS, f"write the defaults of numerics {NUMERICS} into {DEFAULTS.name}"
    assert moved == {}, "a changed default changes what kept runs mean: raise NUMERICS in config/schema.py"


def _two_versions() -> Study:
    """Two seeds under numerics 1, and one of them, and a missing run, under numerics 2."""
    old = made.study({("fig5", "usps", "fedavg"): [LOW, LOW], ("fig5", "usps", "cfcl-explicit"): [HIGH, HIGH]})
    new = made.study({("fig5", "usps", "fedavg"): [HIGH, None]})
    cells = [replace(cell, digest=f"new {cell.digest}") for cell in new.cells]
    runs = {f"new {name}": replace(run, digest=f"new {name}", numerics=2) for name, run in new.runs.items()}
    about = {**old.about, "numerics": 2}
    aged = {name: replace(run, numerics=1) for name, run in old.runs.items()}
    return replace(old, about=about, cells=(*cells, *old.cells), runs={**aged, **runs})


def test_older_numerics_are_shown_apart_and_paired_with_nothing_newer(tmp_path: Path) -> None:
    newest, older = report.compose(_two_versions())

    assert [row[:4] for row in newest.chapters[0].table.rows] == [["usps", "fedavg", "1 of 2", "100.00"]]
    rows = [dict(zip(older.chapters[0].table.head, row, strict=True)) for row in older.chapters[0].table.rows]
    # against the 50 of its own version: against the 100 of the newer one it would be 0
    assert [row.get("Final − FedAvg") for row in rows] == ["–", "+50.00 (+50.00 to +50.00)"]
    assert [item.title for part in (newest, older) for item in part.chapters] == [
        "Fig. 5: accuracy over steps",
        "Fig. 5: accuracy over steps, numerics 1",
    ]
    pages.write([newest, older], tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig5.png", "fig5-numerics-1.png"}
    for text in (webpage.render([newest, older]), markdown.render([newest, older])):
        assert "All numbers are of numerics version 2; records of older versions stand apart, below." in text
        assert "Records of numerics 1" in text


def test_milestones_come_from_the_pilots_uniform_exchange_alone() -> None:
    pilot = made.record([0.2, 0.5, 0.6, 0.6, 0.6])  # from 0.2 to 0.6: half way is 0.4, three quarters 0.5
    runs = {"pilot": pilot, "other": made.record([0.9] * 5)}
    cells = [
        Cell("fig6", "usps", "cfcl-explicit", {}, 10, "other"),
        Cell("fig6", "usps", "uniform-explicit", {}, 10, "pilot"),
        Cell("fig6", "usps", "uniform-explicit", {}, 1, "other"),
        Cell("fig6", "usps", "uniform-implicit", {}, 10, "unfinished"),
    ]

    assert measures.milestones(cells, runs, 10) == {"usps explicit": [0.4, 0.5, 0.56, 0.6]}


def test_a_study_of_one_version_is_whole() -> None:
    study = made.study({("fig5", "usps", "fedavg"): [LOW]})

    (part,) = report.split(study)

    assert part is study


class _Runs:
    """Stands for the processes that do runs: notes what is asked for, and fails."""

    def __init__(self) -> None:
        self.asked: list[Config] = []

    def __call__(self, todo: Sequence[Config], **options: Any) -> list[Outcome]:
        self.asked += todo
        return [Outcome(config, None, "not today") for config in todo]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> _Runs:
    found = _Runs()
    monkeypatch.setattr(reproduce, "run_many", found)
    return found


@pytest.fixture
def published(tiny: Path, tmp_path: Path) -> Path:
    """The CSV files of a study, without its runs."""
    folder = tmp_path / "kept"
    folder.mkdir()
    for path in (tiny / "smoke").iterdir():
        if path.suffix in (".csv", ".json"):
            shutil.copy(path, folder / path.name)
    return folder


def test_published_records_count_as_finished_runs(published: Path, runs: _Runs) -> None:
    before = {path.name: path.read_bytes() for path in published.iterdir()}

    assert invoke("reproduce", "fig4", "--out", str(published)).exit_code == 0

    assert runs.asked == []
    assert {name: (published / name).read_bytes() for name in before} == before
    assert (published / "fig4.png").is_file()


def test_seeds_are_added_to_what_is_published(published: Path, runs: _Runs) -> None:
    before = bundle.read(published)

    invoke("reproduce", "fig4", "--seeds", "2-3", "--out", str(published))

    assert [(run.method, run.seed) for run in runs.asked] == [
        ("fedavg", 3),
        ("cfcl-explicit", 3),
        ("cfcl-implicit", 3),
    ]
    after = bundle.read(published)
    assert after.runs == before.runs
    assert sorted({cell.seed for cell in after.cells}) == [1, 2, 3]


def test_what_was_not_published_is_run_again(published: Path, runs: _Runs) -> None:
    invoke("reproduce", "fig7", "--seeds", "1", "--out", str(published))  # it needs a model, not a record

    assert [(run.method, run.seed) for run in runs.asked] == [("fedavg", 1)]
    study = bundle.read(published)
    bundle.write(
        replace(study, runs={name: replace(run, labels=(), distances=()) for name, run in study.runs.items()}),
        published,
    )
    invoke("reproduce", "fig4", "--seeds", "1", "--out", str(published))  # distances between labels were not kept

    assert len(runs.asked) == 1 + 3


def test_published_selections_need_no_model_again() -> None:
    study = made.study(
        {("fig7", "usps", "fedavg"): [LOW, LOW]},
        selections=[made.selection("cfcl-explicit", panel="usps", digest="fig7-usps-fedavg-1", distance=0.5, held=0.5)],
    )
    first, second, *_ = study.cells

    assert FIGURES["fig7"].known(study, first)
    assert not FIGURES["fig7"].known(study, second)
    assert not FIGURES["fig7"].known(replace(study, runs={}), first)


def test_another_profile_is_refused(published: Path) -> None:
    result = invoke("reproduce", "fig4", "--profile", "quick", "--out", str(published))

    assert result.exit_code == 2
    assert "holds a study of profile 'smoke', not 'quick': give that --profile, or another --out" in result.stderr


def _raise_numerics(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (configs.schema, plan, collect, reproduce):
        monkeypatch.setattr(module, "NUMERICS", NUMERICS + 1)


def test_nothing_is_selected_today_under_a_model_of_older_numerics(
    tiny: Path, tmp_path: Path, runs: _Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny, tmp_path / "study")
    study = bundle.read(tmp_path / "study" / "smoke")
    model = next(replace(cell, figure="fig7") for cell in study.cells if cell.method == "fedavg")
    bundle.write(replace(study, cells=(*study.cells, model)), tmp_path / "study" / "smoke")
    _raise_numerics(monkeypatch)

    invoke("reproduce", "fig4", "--seeds", "1", "--out", str(tmp_path / "study"))

    after = bundle.read(tmp_path / "study" / "smoke")
    assert model in after.cells
    assert (after.selections, (tmp_path / "study" / "selections").exists()) == ((), False)


def test_records_of_older_numerics_stay_and_their_runs_are_done_anew(
    published: Path, runs: _Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bundle.read(published)
    _raise_numerics(monkeypatch)

    result = invoke("reproduce", "fig4", "--out", str(published))

    assert result.exit_code == 1
    assert len(runs.asked) == len(before.cells)
    newest, older = report.split(bundle.read(published))
    assert (newest.about["numerics"], older.about["numerics"]) == (NUMERICS + 1, NUMERICS)
    assert (newest.runs, older.runs, older.cells) == ({}, before.runs, before.cells)
    assert f"fig4-numerics-{NUMERICS}.png" in {path.name for path in published.iterdir()}
    # asked for again, nothing of it is lost
    invoke("reproduce", "fig4", "--seeds", "1", "--out", str(published))
    assert report.split(bundle.read(published))[1].cells == before.cells


def test_kept_runs_that_would_be_others_today_are_left_out_aloud(published: Path, runs: _Runs) -> None:
    study = bundle.read(published)
    other = replace(study.cells[0], digest="of another preset")
    run = replace(study.runs[study.cells[0].digest], digest=other.digest)
    bundle.write(replace(study, cells=(other, *study.cells), runs={**study.runs, other.digest: run}), published)

    result = invoke("reproduce", "fig4", "--out", str(published))

    assert "1 kept runs are left out: their presets have changed since" in " ".join(result.stdout.split())
    assert bundle.read(published) == study
