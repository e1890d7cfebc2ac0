import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cfcl.cli import app
from cfcl.errors import CfclError
from cfcl.runs import checkpoints, folders, overview
from tests.conftest import small
from tests.runs.test_folders import EVALUATION


def _partial(out: Path, *, seed: int, saved: int = 0, failed: str = "") -> Path:
    """An unfinished run."""
    with folders.Writer.begin(small(f"seed={seed}"), out) as writer:
        writer.record(EVALUATION)
        if saved:
            checkpoints.write(writer.partial, saved, b"x")
        if failed:
            (writer.partial / "failed.txt").write_text(failed)
    return writer.partial


def test_every_run_folder_is_listed_with_its_state(tmp_path: Path) -> None:
    with folders.Writer.begin(small(), tmp_path / "some") as writer, writer.writing():
        writer.record(EVALUATION)
    begun, saved = _partial(tmp_path, seed=1), _partial(tmp_path, seed=2, saved=8)
    failed = _partial(tmp_path, seed=3, saved=4, failed="the loss is not finite\n")
    broken = _partial(tmp_path, seed=4)
    (broken / "config.toml").write_text("seed = -1\n")

    with folders.Writer.begin(small("seed=5"), tmp_path) as running:
        found = {entry.folder: entry for entry in overview.below(tmp_path)}

    assert {folder: (entry.state, entry.step, entry.num_steps) for folder, entry in found.items()} == {
        writer.folder: ("finished", 12, 12),
        begun: ("unfinished", 0, 12),
        saved: ("unfinished", 8, 12),
        failed: ("failed", 4, 12),
        broken: ("unreadable", 0, 0),
        running.partial: ("running", 0, 12),
    }
    assert found[failed].reason == "the loss is not finite"
    assert "seed" in found[broken].reason
    assert [folder for folder, entry in found.items() if entry.command] == sorted([begun, saved, failed])
    assert found[saved].command == f"cfcl resume {saved}"
    assert found[saved].num_bytes == sum(file.stat().st_size for file in saved.iterdir())


def test_the_command_lists_and_teaches_how_to_go_on(tmp_path: Path) -> None:
    folder = _partial(tmp_path / "my runs", seed=1, saved=8)
    result = CliRunner().invoke(app, ["runs", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "8 of 12" in result.output
    assert f"cfcl resume '{folder}'" in result.output  # quoted, because of the blank
    (tmp_path / "empty").mkdir()
    assert "There are no run folders" in CliRunner().invoke(app, ["runs", str(tmp_path / "empty")]).output
    with pytest.raises(CfclError, match="is no folder"):
        overview.below(tmp_path / "absent")


def test_what_cannot_be_looked_at_is_refused_and_what_goes_meanwhile_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _partial(tmp_path, seed=1, failed="x" * 5000)
    (entry,) = overview.below(tmp_path)
    assert entry.reason == "x" * 800
    for place in ("x" * 300, "a\0b"):
        with pytest.raises(CfclError, match="is no folder"):
            overview.below(Path(place))
        assert overview.unfinished([Path(place)]) == []
    (folder / "gone").write_bytes(b"123")
    stat = Path.stat

    def vanishing(path: Path, **options: bool) -> os.stat_result:
        found = stat(path, **options)
        if path.name == "gone" and path.exists():
            path.unlink()
        return found

    monkeypatch.setattr(Path, "is_file", lambda path: vanishing(path) is not None)
    assert [item.folder for item in overview.below(tmp_path)] == [folder]

    def fails(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "some")

    monkeypatch.setattr(Path, "rglob", fails)
    with pytest.raises(CfclError, match=r"cannot look below .*Permission denied"):
        overview.below(tmp_path)


def test_a_report_shows_unfinished_runs_as_such(tmp_path: Path) -> None:
    folder = _partial(tmp_path / "runs", seed=1, saved=8, failed="because")
    page = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "--out", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    for part in ("Unfinished runs", folder.name, "8 of 12", "because", f"cfcl resume {folder}"):
        assert part in text
