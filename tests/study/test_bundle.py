import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfcl.errors import CfclError
from cfcl.study import bundle
from cfcl.study.bundle import Study
from tests.strategies import CELLS, TEXT, tables
from tests.study import made

FILES = ("cells.csv", "distances.csv", "evaluations.csv", "runs.csv", "selections.csv", "study.json")


def _study() -> Study:
    """Every kind of value: text, whole and other numbers, nothing, matrices, a run that is missing."""
    heat = made.record(
        [0.1, 1 / 3], separation=1.7, labels=(3, 5), distances=((0.25, 1.5), (1.25, 0.5)), held_labels=None
    )
    bare = made.record([0.5], effective_candidates=None, centroid_distance=None)
    bare = replace(bare, evaluations=(replace(bare.evaluations[0], cka=None),))
    return made.study(
        {
            ("fig4", "digits", "cfcl-explicit"): [heat, None],
            ("fig9", "usps", "cfcl-implicit", ("reserve", "kmeans"), ("size", 5)): [bare],
            ("fig10", "usps", "cfcl-implicit", ("period", 2.5)): [[0.25, 0.75, 0.5]],
        },
        milestones={"usps implicit": [0.5, 0.6]},
        selections=[
            made.selection("uniform-explicit", distance=0.1, held=2 / 3),
            made.selection(
                "cfcl-explicit", distance=0.05, held=0.0, panel="usps", seed=4, digest="other", histogram=(1, 0, 12)
            ),
        ],
        notes=["μ, \"quoted\", 'and' | more"],
    )


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    bundle.write(_study(), tmp_path / "new" / "study")

    assert sorted(_bytes(tmp_path / "new" / "study")) == sorted(FILES)
    assert bundle.read(tmp_path / "new" / "study") == _study()


def test_the_same_study_gives_the_same_bytes(tmp_path: Path) -> None:
    study = _study()
    backwards = replace(study, runs=dict(reversed(list(study.runs.items()))))

    bundle.write(study, tmp_path / "one")
    bundle.write(backwards, tmp_path / "two")
    bundle.write(bundle.read(tmp_path / "one"), tmp_path / "three")

    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "two") == _bytes(tmp_path / "three")
    assert b"\r" not in b"".join(_bytes(tmp_path / "one").values())


def test_a_later_study_replaces_an_earlier_one(tmp_path: Path) -> None:
    bundle.write(_study(), tmp_path)
    small = made.study({("fig5", "digits", "fedavg"): [[0.5, 0.75]]})

    bundle.write(small, tmp_path)

    assert bundle.read(tmp_path) == small


@pytest.mark.parametrize("written", range(len(FILES) + 1))
def test_an_interruption_loses_nothing_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    place = ("fig5", "digits", "fedavg")
    before, after = made.study({place: [[0.5, 0.75]]}), made.study({place: [[0.5, 0.75], [0.25, 0.5]]})
    bundle.write(before, tmp_path)
    replace_file = Path.replace
    done: list[Path] = []

    def stopped(path: Path, target: Path) -> Path:
        if len(done) == written:
            raise KeyboardInterrupt
        done.append(target)
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", stopped)
    for _ in range(2):  # the second time, files of three versions may lie there
        done.clear()
        with pytest.raises(KeyboardInterrupt):
            bundle.write(after, tmp_path)
        after = made.study({place: [[0.5, 0.75], [0.25, 0.5], [0.5, 0.5]]})

    found = bundle.read(tmp_path)
    assert before.runs.items() <= found.runs.items()
    assert all(cell in found.cells for cell in before.cells)
    assert all(run.evaluations for run in found.runs.values())


@pytest.mark.parametrize("name", FILES)
def test_a_folder_without_one_of_the_files_holds_no_study(tmp_path: Path, name: str) -> None:
    bundle.write(_study(), tmp_path)
    (tmp_path / name).unlink()

    with pytest.raises(CfclError, match=f"holds no study: {name} is missing; give a folder"):
        bundle.read(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["edited", "cut"])
def test_a_file_that_is_not_as_it_was_written_is_refused_by_name(tmp_path: Path, name: str, change: str) -> None:
    bundle.write(_study(), tmp_path)
    lines = (tmp_path / name).read_text(encoding="utf-8").splitlines(keepends=True)
    altered = {"edited": [line.replace("1", "2") for line in lines], "cut": lines[: len(lines) // 2]}[change]
    assert altered != lines
    (tmp_path / name).write_text("".join(altered), encoding="utf-8")

    with pytest.raises(
        CfclError,
        match=rf"cannot be read \(({name} is not as it was written: its checksum differs|.* is not JSON).*\): restore "
        "the file, or remove that folder and run `cfcl reproduce` again",
    ) as caught:
        bundle.read(tmp_path)
    assert "\n" not in str(caught.value)


def _without_sums(folder: Path) -> None:
    """As studies were written before there were checksums."""
    about = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    del about["sha256"]
    (folder / "study.json").write_text(json.dumps(about), encoding="utf-8")


def test_a_study_from_before_there_were_checksums_is_read(tmp_path: Path) -> None:
    bundle.write(_study(), tmp_path)
    _without_sums(tmp_path)
    assert bundle.read(tmp_path) == _study()
    bundle.write(_study(), tmp_path)
    assert "sha256" in json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))


DAMAGE = [
    ("study.json", "{", "{{", "is not JSON"),
    ("study.json", '"pilot": 0', '"pilot": "0"', "study.json has no pilot, or not one of type int"),
    ("study.json", "0.6", "6", "study.json has milestones that are no accuracies"),
    ("cells.csv", "settings", "sweep", "cells.csv line 2: the column settings is missing"),
    ("cells.csv", "{}", "[]", "cells.csv line 2: settings=.* is not an object of words and numbers"),
    ("cells.csv", "fig4,digits", "fig4,digits,usps", "cells.csv line 2: it has 7 cells, and the header 6 columns"),
    ("runs.csv", "1.7", "wide", "runs.csv line 2: separation='wide' is not a finite number"),
    ("runs.csv", "1.7", "nan", "runs.csv line 2: separation='nan' is not a finite number"),
    ("runs.csv", "1.7", "1e400", "runs.csv line 2: separation='1e400' is not a finite number"),
    ("runs.csv", "1.7", "-1.7", "runs.csv line 2: separation='-1.7' is not from 0"),
    ("runs.csv", "digest,preset", "digest,digest", "the header 14 columns"),
    ("evaluations.csv", ",0.75,", ",,", "evaluations.csv line .: probe='' is not a finite number"),
    ("evaluations.csv", ",0.75,", ",75,", "evaluations.csv line .: probe='75' is not from 0 to 1"),
    ("evaluations.csv", ",20,0.5", ",5,0.5", "evaluations.csv has no steps of .* in order"),
    ("distances.csv", ",5,5,0.5", ",5,5,", "distances.csv line 5: distance='' is not a finite number"),
    ("distances.csv", "fig4", "fig5", "distances.csv has no square of the labels of"),
    ("selections.csv", "1 0 12", "1 x 12", "selections.csv line 3: histogram='1 x 12' is not a whole number"),
    ("selections.csv", "1 0 12", '"1 0 12', "selections.csv line .: unexpected end of data"),
]


@pytest.mark.parametrize(("name", "old", "new", "complaint"), DAMAGE, ids=[row[3] for row in DAMAGE])
def test_what_does_not_fit_is_refused_by_file_line_and_column(
    tmp_path: Path, name: str, old: str, new: str, complaint: str
) -> None:
    bundle.write(_study(), tmp_path)
    _without_sums(tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    with pytest.raises(CfclError, match=rf"cannot be read \(.*{complaint}.*\): restore the file") as caught:
        bundle.read(tmp_path)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), text=TEXT | tables(["digest", "step", "probe"], CELLS))
def test_whatever_a_file_holds_it_is_a_study_or_refused(tmp_path: Path, name: str, text: str) -> None:
    bundle.write(_study(), tmp_path)
    _without_sums(tmp_path)
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(CfclError):
        bundle.read(tmp_path)


def test_a_study_knows_what_it_holds() -> None:
    study = _study()

    assert study.figures == ["fig4", "fig7", "fig9", "fig10"]
    assert study.panels("fig9") == ["usps"]
    assert study.panels("fig5") == []
    assert study.milestones("usps", "implicit") == [0.5, 0.6]
    assert study.milestones("usps", "explicit") == []


def test_runs_are_found_by_seed_without_the_pilot_and_what_is_missing() -> None:
    study = made.study(
        {
            ("fig8", "usps", "fedavg", ("devices", 2)): [[0.1], None, [0.3]],
            ("fig8", "usps", "fedavg", ("devices", 4)): [[0.4]],
            ("fig8", "digits", "fedavg", ("devices", 2)): [[0.5]],
            ("fig5", "usps", "fedavg"): [[0.6]],
        }
    )

    def probes(**settings: int) -> dict[int, float]:
        return {
            seed: run.evaluations[0].probe for seed, run in study.find("fig8", "usps", "fedavg", **settings).items()
        }

    assert probes(devices=2) == {1: 0.1, 3: 0.3}
    assert probes(devices=4) == {1: 0.4}
    assert probes(devices=8) == {}
    piloted = replace(study, about={**study.about, "pilot": 3})
    assert list(piloted.find("fig8", "usps", "fedavg", devices=2)) == [1]


def test_accuracies_with_few_labels_are_kept_where_there_are_any(tmp_path: Path) -> None:
    plain = made.study({("fig5", "usps", "fedavg"): [[0.5, 0.6]]})
    run = next(iter(plain.runs.values()))
    few = tuple(replace(item, few=item.probe / 2) for item in run.evaluations)
    both = replace(plain, runs={run.digest: replace(run, evaluations=few)})

    bundle.write(plain, tmp_path / "plain")
    bundle.write(both, tmp_path / "few")

    assert bundle.read(tmp_path / "plain") == plain
    assert bundle.read(tmp_path / "few") == both
    heads = [
        (tmp_path / name / "evaluations.csv").read_text(encoding="utf-8").splitlines()[0] for name in ("plain", "few")
    ]
    assert [head.endswith(",few") for head in heads] == [False, True]
    assert [item.accuracy for item in few] == [0.25, 0.3]


def test_what_few_studies_have_is_kept_where_there_is_any(tmp_path: Path) -> None:
    plain = made.study({("fig5", "usps", "fedavg"): [[0.5, 0.6], [0.5, 0.7]]})
    first, second = plain.runs.values()
    worst = tuple(replace(item, worst_label=0.125, worst_device=0.25) for item in first.evaluations)
    told = replace(first, raw=512, new=0.5, evaluations=worst)
    both = replace(plain, runs={first.digest: told, second.digest: second})

    bundle.write(plain, tmp_path / "plain")
    bundle.write(both, tmp_path / "both")

    assert bundle.read(tmp_path / "plain") == plain
    assert bundle.read(tmp_path / "both") == both
    for file, names in (("runs.csv", ",raw,new"), ("evaluations.csv", ",worst_label,worst_device")):
        heads = [(tmp_path / name / file).read_text(encoding="utf-8").splitlines()[0] for name in ("plain", "both")]
        assert heads[1] == heads[0] + names
