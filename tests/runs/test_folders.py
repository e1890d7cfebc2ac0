import json
from pathlib import Path
from typing import Any

import pytest

from cfcl.errors import CfclError
from cfcl.records import Environment, Evaluation, Final, Pull, Setup, Timings, Update
from cfcl.runs import folders
from cfcl.runs.suites import Result
from tests.conftest import small
from tests.runs.conftest import MakeRun

EVALUATION = Evaluation(
    step=0,
    probe=0.5,
    knn=0.5,
    alignment=0.1,
    uniformity=-1.0,
    effective_rank=3.0,
    objective=0.2,
    cka=None,
    bytes_push=0,
    bytes_pull=0,
    bytes_up=0,
    bytes_down=0,
    seconds=0.0,
    joules=0.0,
)
UPDATE = Update(0, loss=0.5, triplet=0.5, regulariser=0.0, weight=0.0, active=1.0, pulled_share=0.0, margin=0.0)


def test_names_never_collide_whatever_is_there(tmp_path: Path) -> None:
    config, begin = small(), folders.Writer.begin
    with begin(config, tmp_path) as first, begin(config, tmp_path) as second, first.writing(), second.writing():
        assert first.partial.is_dir()
        assert second.partial.is_dir()
    with begin(config, tmp_path) as third, third.writing():
        pass
    made = [first.folder, second.folder, third.folder]
    assert [folder.name.removeprefix(folders.run_name(config)) for folder in made] == ["", "-2", "-3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(folder.name for folder in made)
    assert {path.name for path in first.folder.iterdir()} == {"config.toml", "metrics.jsonl"}


@pytest.mark.parametrize(("error", "said"), [(ValueError("no"), "no\n"), (KeyboardInterrupt(), None)])
def test_whatever_happens_what_was_measured_stays(error: BaseException, said: str | None, tmp_path: Path) -> None:
    with (
        pytest.raises(type(error)) as found,
        folders.Writer.begin(small(), tmp_path) as writer,
        writer.writing(),
    ):
        writer.record(EVALUATION)
        raise error
    (folder,) = tmp_path.iterdir()
    assert folder == writer.partial
    assert (folder / "metrics.jsonl").read_text() == EVALUATION.to_line() + "\n"
    assert found.value.__notes__ == [f"what was measured is kept; to go on: cfcl resume {folder}"]
    assert (folder / "failed.txt").exists() == (said is not None)
    assert said is None or (folder / "failed.txt").read_text() == said
    with pytest.raises(CfclError, match="there is no finished run at or below"):
        folders.find([tmp_path])


def test_a_folder_in_which_nothing_was_measured_goes(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        folders.Writer.begin(small(), tmp_path) as writer,
        writer.writing(),
    ):
        writer.record(UPDATE)
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_holds_what_its_run_returned(played: Result) -> None:
    assert played.folder is not None

    run = folders.load(played.folder)

    assert (run.config, run.records, run.costs, run.timings) == (
        played.config,
        played.records,
        played.costs,
        played.timings,
    )
    assert (run.records[0], run.records[-1]) == (run.setup, run.final)
    kinds = (Setup, Evaluation, Update, Pull, Final)
    # exchanges at 3, 6 and 9 over the eight links of a ring of four; every second update is logged, and the last
    assert [len(run.of(kind)) for kind in kinds] == [1, 3, 7, 24, 1]
    assert (run.evaluations, run.pulls) == (played.evaluations, run.of(Pull))
    assert (run.environment.device, run.environment.workers) == ("cpu", 1)
    assert "torch" in run.environment.versions


def test_a_folder_is_written_again_byte_by_byte(played: Result) -> None:
    assert played.folder is not None
    run = folders.load(played.folder)
    content = {
        "costs.json": [cost.to_dict() for cost in run.costs],
        "timings.json": run.timings.to_dict(),
        "environment.json": run.environment.to_dict(),
    }

    lines = [record.to_line() for record in run.records]

    assert "\n".join([*lines, ""]) == (played.folder / "metrics.jsonl").read_text()
    for name, found in content.items():
        assert json.dumps(found, indent=1) + "\n" == (played.folder / name).read_text()


def test_results_are_plain_rows_for_those_who_want_them(played: Result) -> None:
    last = played.metrics[-1]
    assert "kind" not in last
    assert last["probe"] == played.evaluations[-1].probe
    assert [row["step"] for row in played.metrics] == [0, 8, 12]
    assert "cka" not in played.metrics[0]  # no aggregation yet
    (setup,) = played.of("setup")
    assert isinstance(setup["edges"], list)
    assert len(played.of("pull")) == 24


def test_a_folder_of_an_early_version_loads(make_run: MakeRun) -> None:
    folder = make_run("fedavg").folder
    metrics = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(metrics.replace('"dataset":"made","encoder":"small-cnn",', ""))
    (folder / "timings.json").write_text('{"selection": [], "evaluation": 1.0, "total": 2.0}')
    (folder / "environment.json").write_text('{"python": "3.11.0", "machine": "x", "device": "cpu", "cfcl": "0.0"}')

    run = folders.load(folder)

    assert (run.setup.dataset, run.setup.points) == (None, (40, 50, 1234))
    assert run.timings == Timings((), None, 1.0, 2.0)
    assert run.environment == Environment("3.11.0", "x", "cpu", None, None, None, {"cfcl": "0.0"})


DAMAGE = [
    ("metrics.jsonl", '"step":10,', '"step":"ten",', r"metrics\.jsonl line 3: step='ten' is not a whole number"),
    ("metrics.jsonl", '"probe":0.75,', '"probe":NaN,', r"metrics\.jsonl line 4: probe=nan is not a finite number"),
    ("metrics.jsonl", '"step":10,', "", r"metrics\.jsonl line 3: a record of kind eval lacks the fields \['step'\]"),
    (
        "metrics.jsonl",
        '"kind":"eval"',
        '"kind":"evil"',
        r"metrics\.jsonl line 2: .* is not a record of the kinds setup, ",
    ),
    ("metrics.jsonl", '"kind":"eval"', '"kind":"eval', r"metrics\.jsonl line 2: .* is not JSON \(.* at column 16\)"),
    ("metrics.jsonl", '{"kind":"final"', '\n{"kind":"final"', r"metrics\.jsonl line 16: '' is not JSON"),
    (
        "metrics.jsonl",
        '"step":0,"loss"',
        '"step":0,"gain":1,"loss"',
        r"metrics\.jsonl line 5: .* train has unknown fields \['gain'\]",
    ),
    ("metrics.jsonl", '"edges":[[0,1],[1,2]]', '"edges":[[0,1]]', r"metrics\.jsonl: line 10: a pull between 1 and 2"),
    ("metrics.jsonl", '"points":[40,50,1234]', '"points":[40,50]', r"metrics\.jsonl: line 1: labels is of 3 devices"),
    ("metrics.jsonl", '"step":10,"probe"', '"step":30,"probe"', r"metrics\.jsonl: line 3: step=30 is not between 0"),
    ("metrics.jsonl", '"kind":"final","step":20', '"kind":"final","step":21', r"metrics\.jsonl: it is of 21, but "),
    ("config.toml", "num_devices = 3", "num_devices = 4", r"metrics\.jsonl: it is of 3, but config\.toml has .*=4"),
    ("costs.json", '"source": 2', '"source": 3', r"costs\.json: costs between 3 and -1, which have no link"),
    ("timings.json", "0.25", "-0.25", r"timings\.json: selection=-0\.25 is not from 0"),
    ("environment.json", "{", '{"cfcl": "0", ', r"environment\.json: a key occurs twice"),
    ("costs.json", '"bytes": 800', '"bytes": 0.5', r"costs\.json: bytes=0\.5 is not a whole number"),
    ("costs.json", "[", "3 [", r"costs\.json: .* is not JSON \(Extra data at column 3\)"),
    ("timings.json", "[[10, 0.25]", "[[10]", r"timings\.json: selection=\[10\] is not a list of the right length"),
    ("timings.json", '"total": 2.0', '"total": null', r"timings\.json: total=None is not a finite number"),
    ("environment.json", '"workers": 2', '"workers": true', r"environment\.json: workers=True is not a whole number"),
    ("environment.json", '"torch": "2.6.0"', '"torch": 2', r"environment\.json: versions\.torch=2 is not text"),
]


@pytest.mark.parametrize(("file", "old", "new", "complaint"), DAMAGE, ids=[row[2] or "missing" for row in DAMAGE])
def test_a_damaged_file_is_refused_by_name_and_line(
    make_run: MakeRun, file: str, old: str, new: str, complaint: str
) -> None:
    damaged = make_run().folder / file
    text = damaged.read_text()
    assert old in text
    damaged.write_text(text.replace(old, new, 1))

    with pytest.raises(
        CfclError,
        match=rf"^run folder .* cannot be read: {complaint}.*; run it again, or use the version of cfcl that wrote it$",
    ) as refused:
        folders.load(damaged.parent)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["3", "null", "{}", '"costs"'])
def test_costs_are_a_list(make_run: MakeRun, content: str) -> None:
    folder = make_run().folder
    (folder / "costs.json").write_text(content)
    with pytest.raises(CfclError, match=r"costs\.json: .* is not a list of costs; run it again"):
        folders.load(folder)


@pytest.mark.parametrize("name", ["timings.json", "environment.json"])
@pytest.mark.parametrize("content", ["3", "[]", "null"])
def test_timings_and_environment_are_objects(make_run: MakeRun, name: str, content: str) -> None:
    folder = make_run().folder
    (folder / name).write_text(content)
    with pytest.raises(CfclError, match=rf"{name}: .* is not a record of kind (Timings|Environment); run it again"):
        folders.load(folder)


@pytest.mark.parametrize("kind", ["setup", "eval", "final"])
def test_a_run_that_did_not_end_is_refused(make_run: MakeRun, kind: str) -> None:
    metrics = make_run("fedavg").folder / "metrics.jsonl"
    kept = [line for line in metrics.read_text().splitlines() if f'"kind":"{kind}"' not in line]
    metrics.write_text("\n".join(kept))
    with pytest.raises(CfclError, match=rf"metrics\.jsonl holds no record of kind {kind}; run it again"):
        folders.load(metrics.parent)


def test_a_config_of_another_version_is_refused_with_the_remedy(make_run: MakeRun) -> None:
    file = make_run("fedavg").folder / "config.toml"
    file.write_text(file.read_text() + "magic = 3\n")
    remedy = r"edit that setting in config\.toml, or use the version of cfcl that wrote it"
    with pytest.raises(CfclError, match=rf"config\.toml: \w+\.magic is not a known key: .*; {remedy}$"):
        folders.load(file.parent)


def test_a_folder_without_a_run_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(CfclError, match="is not a run folder"):
        folders.load(tmp_path)
    folder = make_run().folder
    (folder / "costs.json").unlink()
    with pytest.raises(CfclError, match=r"cannot be read: .*No such file or directory: .*costs\.json'; run it again"):
        folders.load(folder)


def test_what_names_no_folder_is_refused(tmp_path: Path) -> None:
    rubbish: list[Any] = [123, None, b"runs", "", "\0", tmp_path / "absent", [tmp_path], "x" * 5000]
    for name in rubbish:
        with pytest.raises(CfclError, match=r"is not a run folder .*: give a folder that `cfcl run` wrote"):
            folders.load(name)


def test_one_bad_folder_among_many_is_named(make_run: MakeRun) -> None:
    good, bad = make_run().folder, make_run(seed=1).folder
    (bad / "timings.json").unlink()
    with pytest.raises(CfclError, match=rf"^run folder '{bad}' cannot be read: .*timings\.json'; run it again"):
        folders.find([good.parent])
