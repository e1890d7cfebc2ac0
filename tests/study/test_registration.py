import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from cfcl.errors import CfclError
from cfcl.study import markdown, registration, report, webpage
from cfcl.study.profiles import PROFILES, Profile
from tests.runs.test_report import Page
from tests.study import made
from tests.study.conftest import TINY

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not on this machine")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "smoke", TINY)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-q")
    return tmp_path


def _git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    return subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_study_is_settled_by_a_committed_file(repository: Path) -> None:
    file = repository / "docs" / "registered.toml"
    file.parent.mkdir()

    with pytest.raises(CfclError, match="did not exist and has been written: commit it"):
        registration.check(file, "smoke")
    with pytest.raises(CfclError, match="is not committed"):
        registration.check(file, "smoke")
    _git(repository, "add", ".")
    with pytest.raises(CfclError, match="is not committed"):
        registration.check(file, "smoke")
    _git(repository, "commit", "-qm", "settled")

    found = registration.check(file, "smoke")

    assert found["commit"] == _git(repository, "rev-parse", "HEAD").strip()
    assert len(found["sha256"]) == 64


def test_another_plan_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = repository / "registered.toml"
    file.write_text(registration.text("smoke"), encoding="utf-8")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "settled")

    monkeypatch.setitem(PROFILES, "smoke", replace(TINY, seeds=(1, 2, 3)))

    with pytest.raises(CfclError, match="registers another study than profile 'smoke' of this cfcl"):
        registration.check(file, "smoke")


def test_a_folder_without_history_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    file = tmp_path / "registered.toml"
    file.write_text(registration.text("smoke"), encoding="utf-8")

    with pytest.raises(CfclError, match="is in no git repository that can be asked"):
        registration.check(file, "smoke")


def _changed(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What of the plan of `smoke` another profile changes."""
    before = tomllib.loads(registration.text("smoke"))
    monkeypatch.setitem(PROFILES, "smoke", profile)
    after = tomllib.loads(registration.text("smoke"))
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def test_the_plan_names_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _changed(replace(TINY, labels=(1, 4)), monkeypatch) == {"runs_sha256"}  # as many, and others


def test_the_plan_names_seeds_and_the_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _changed(replace(TINY, pilot=11), monkeypatch) == {"pilot", "runs_sha256"}


def test_a_report_names_the_commit_and_the_settings_of_claims() -> None:
    study = made.study(
        {("fig5", "usps", "fedavg"): [[0.5, 0.5]]},
        panels={"usps-common": "usps", "usps": "usps-study"},
        settings={"usps-common": "preset usps, partition.kind=common"},
        registered={"commit": "0123456789abcdef", "sha256": "0"},
    )

    found = report.compose(study)
    said = " ".join(report.notes(found))

    assert "settled before the first run, in commit 0123456789ab." in said
    assert "in its settings: usps. Ours" in said
    assert "that they are about: usps-common." in said
    common = "USPS: 80 % of every device's data are of one common kind"
    assert report.settings(found[0]) == [
        ["usps-common", common, "preset usps, partition.kind=common"],
        ["usps", "USPS: three kinds per device", "preset usps-study"],
    ]
    assert f"| usps-common | {common} | preset usps, partition.kind=common |" in markdown.render(found)
    assert Page(webpage.render(found)).tables[0][0] == ["Panel", "What it is", "Settings"]
    for page in (markdown.render(found).replace("\\", ""), webpage.render(found)):
        assert page.index("that they are about: usps-common") < page.index(
            "Verdicts</h2>" if "<h2" in page else "## Verdicts"
        )
