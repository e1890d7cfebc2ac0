"""The results kept in `docs/results` are what their records give."""

import shutil
from pathlib import Path

import pytest

from cfcl.study import bundle, report, reproduce

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.parent for path in (ROOT / "docs" / "results").glob("*/study.json"))
RECORDS = (".csv", ".json")


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_drawing_them_again_changes_no_byte(folder: Path, tmp_path: Path) -> None:
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in kept:
        if name.endswith(RECORDS):
            shutil.copy(folder / name, tmp_path / name)

    study = bundle.read(tmp_path)
    reproduce.publish(study, tmp_path)

    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made.keys() == kept.keys()
    assert [name for name in kept if made[name] != kept[name]] == []


def test_the_verdicts_in_the_readme_are_those_of_the_full_study() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert report.insert_verdicts(bundle.read(ROOT / "docs" / "results" / "full"), text, "README.md") == text
