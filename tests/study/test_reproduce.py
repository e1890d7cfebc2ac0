import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cfcl.study import bundle
from cfcl.study.profiles import PROFILES, Panel
from tests.study.conftest import TINY, invoke

pytestmark = pytest.mark.xdist_group("study")
"""One process makes the study that these tests look at."""


def test_a_study_ends_in_records_pictures_a_table_and_a_page(tiny: Path) -> None:
    made = {path.name for path in (tiny / "smoke").iterdir()}

    assert {"cells.csv", "runs.csv", "evaluations.csv", "distances.csv", "selections.csv", "study.json"} <= made
    assert {"fig4.png", "fig4.svg", "report.html", "README.md"} <= made
    command = "`cfcl reproduce fig4 --profile smoke --panels digits`"  # its seeds are those of the profile
    assert command in (tiny / "smoke" / "README.md").read_text(encoding="utf-8")
    assert len(list((tiny / "runs").glob("digits-*"))) == 6  # three methods, two seeds
    # Other figures share these runs, but were not asked for.
    assert set(bundle.read(tiny / "smoke").figures) == {"fig4"}


def test_the_same_command_again_repeats_nothing_and_changes_no_byte(tiny: Path) -> None:
    before = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tiny / "runs").rglob("*") if path.is_file()
    }
    pages = {path.name: path.read_bytes() for path in (tiny / "smoke").iterdir()}

    result = invoke("reproduce", "fig4", "--out", str(tiny))

    assert result.exit_code == 0
    after = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (tiny / "runs").rglob("*") if path.is_file()
    }
    assert {path: value for path, value in after.items() if path.name != ".lock"} == {
        path: value for path, value in before.items() if path.name != ".lock"
    }
    assert {path.name: path.read_bytes() for path in (tiny / "smoke").iterdir()} == pages


def test_redrawing_from_the_records_alone_changes_no_byte(tiny: Path, tmp_path: Path) -> None:
    kept = {path.name: path.read_bytes() for path in (tiny / "smoke").iterdir()}
    for name in kept:
        if name.endswith((".csv", ".json")):
            shutil.copy(tiny / "smoke" / name, tmp_path / name)

    result = invoke("redraw", str(tmp_path))

    assert result.exit_code == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_verdicts_go_where_a_document_has_a_place_for_them(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny / "smoke", tmp_path / "smoke")
    document = tmp_path / "paper.md"
    document.write_text("# Mine\n\n<!-- verdicts -->\nold\n<!-- /verdicts -->\n\nThe end\n", encoding="utf-8")

    result = invoke("redraw", str(tmp_path / "smoke"), "--into", str(document))

    text = document.read_text(encoding="utf-8")
    assert result.exit_code == 0
    assert text.startswith("# Mine\n\n<!-- verdicts -->\n\n- Of ")
    assert text.endswith(
        "\n- [Every claim with its tests, its runs and its command](smoke/README.md#verdicts).\n\n"
        "<!-- /verdicts -->\n\nThe end\n"
    )
    assert "old" not in text
    invoke("redraw", str(tmp_path / "smoke"), "--into", str(document))
    assert document.read_text(encoding="utf-8") == text


def test_a_document_without_a_place_is_left_alone(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny / "smoke", tmp_path / "smoke")
    document = tmp_path / "paper.md"
    document.write_text("# Mine\n", encoding="utf-8")

    result = invoke("redraw", str(tmp_path / "smoke"), "--into", str(document))

    assert result.exit_code == 2
    assert "has no place for verdicts: write the lines <!-- verdicts --> and <!-- /verdicts -->" in result.stderr
    assert document.read_text(encoding="utf-8") == "# Mine\n"


def test_figures_panels_and_seeds_can_be_added_one_by_one(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny, tmp_path / "study")
    both = {"shorter": Panel("digits", interval=10, steps=10), **TINY.panels}
    monkeypatch.setitem(PROFILES, "smoke", replace(TINY, panels=both))

    for panel in both:  # what is asked for last no longer names the first
        words = ["reproduce", "fig7", "--seeds", "1,7" if panel == "digits" else "7", "--panels", panel]
        assert invoke(*words, "--out", str(tmp_path / "study")).exit_code == 0

    assert (tmp_path / "study" / "smoke" / "fig7.png").is_file()
    assert (tmp_path / "study" / "smoke" / "fig4.png").is_file()
    assert len(list((tmp_path / "study" / "runs").glob("digits-*"))) == 6 + 2  # the model of seed 1 was there already
    assert len(list((tmp_path / "study" / "selections").glob("*.json"))) == 3
    found = bundle.read(tmp_path / "study" / "smoke")
    shown = sorted((cell.panel, cell.seed) for cell in found.cells if cell.figure == "fig7")
    assert shown == [("digits", 1), ("digits", 7), ("shorter", 7)]  # the profile has no seed 7
    assert sorted({cell.seed for cell in found.cells if cell.figure == "fig4"}) == [1, 2]
    assert set(found.about["notes"]) == {
        f"{name} is shortened to {both[name].steps} steps in this profile." for name in both
    }


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["fig3"], "error: 'fig3' is not a figure of the study: choose from fig4"),
        (["fig4", "--panels", "usps"], "error: --panels 'usps' is not in this profile: choose from digits"),
        (["fig4", "--seeds", "one"], "error: --seeds 'one' is not a list of whole numbers"),
    ],
)
def test_a_bad_wish_is_one_line_and_leaves_nothing(tmp_path: Path, words: list[str], complaint: str) -> None:
    result = invoke("reproduce", *words, "--out", str(tmp_path / "study"))

    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "study").exists()


def test_a_folder_without_a_study_cannot_be_redrawn(tmp_path: Path) -> None:
    result = invoke("redraw", str(tmp_path))

    assert result.exit_code == 2
    assert "holds no study: study.json is missing" in result.stderr


def test_a_study_that_cannot_be_read_is_refused_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "study.json").write_text("{", encoding="utf-8")

    result = invoke("reproduce", "fig4", "--out", str(tmp_path))

    assert result.exit_code == 2
    assert "cannot be read ('{' is not JSON (" in result.stderr
    assert "): restore the file, or remove that folder and run `cfcl reproduce` again" in result.stderr
    assert not (tmp_path / "runs").exists()
