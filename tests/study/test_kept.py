"""The results kept in `docs/results` are what their records give."""

import shutil
from pathlib import Path

import pytest

from cfcl.config import NUMERICS
from cfcl.study import bundle, markdown, measures, pages, plan, report
from cfcl.study.profiles import PROFILES

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.parent for path in (ROOT / "docs" / "results").glob("*/study.json"))
RECORDS = (".csv", ".json")


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_drawing_them_again_changes_no_byte_there_nor_in_the_readme(folder: Path, tmp_path: Path) -> None:
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in kept:
        if name.endswith(RECORDS):
            shutil.copy(folder / name, tmp_path / name)

    study = bundle.read(tmp_path)
    bundle.write(study, tmp_path)
    found = report.compose(study)
    pages.write(found, tmp_path)

    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made.keys() == kept.keys()
    assert [name for name in kept if made[name] != kept[name]] == []
    readme, link = (ROOT / "README.md").read_text(encoding="utf-8"), f"docs/results/{folder.name}/README.md#verdicts"
    if f"command]({link})" in readme:
        assert markdown.insert_verdicts(found[0], readme, "README.md", link) == readme


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_every_kept_run_is_one_that_would_be_done_today(folder: Path) -> None:
    study, profile = bundle.read(folder), PROFILES[folder.name]

    assert {cell.digest for cell in study.cells} == set(study.runs)
    # Numerics of an older version would be shown, but no longer planned.
    (newest, *older) = report.split(study)
    if newest.about["numerics"] == NUMERICS:
        assert tuple(plan.merged(profile, study, [])) == (
            *newest.cells,
            *(cell for part in older for cell in part.cells),
        )
    assert measures.milestones(newest.cells, newest.runs, profile.pilot) == newest.about["milestones"]


def test_the_readme_has_the_verdicts_of_one_of_them() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    found = [folder for folder in KEPT if f"command](docs/results/{folder.name}/README.md#verdicts)" in readme]
    assert len(found) == 1
