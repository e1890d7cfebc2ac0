"""A file is there whole or not at all."""

import os
from pathlib import Path

import pytest

from cfcl.files import write_atomically


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_atomically(file, b"one")
    write_atomically(str(file), b"two")
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_everything_is_on_disk_before_the_old_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen = tmp_path / "x", []
    file.write_bytes(b"old")
    sync = os.fsync

    def watch(handle: int) -> None:
        seen.append((os.stat(handle).st_size if file.read_bytes() == b"old" else "folder", file.read_bytes()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watch)
    write_atomically(file, b"newer")
    assert seen == [(5, b"old"), ("folder", b"newer")]


def test_a_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "usual").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "link").symlink_to("x")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x").read_bytes() == b"new"


def test_names_may_be_as_long_as_names_may_be(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), b"data")
    assert (tmp_path / ("x" * 255)).read_bytes() == b"data"


def test_only_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(FileExistsError, match="no regular file"):
            write_atomically(tmp_path / name, b"data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_what_is_no_name_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="no file of this name"):
        write_atomically(tmp_path / "a\0b", b"data")
    with pytest.raises(OSError, match=r"no file of this name|links"):
        write_atomically(tmp_path / "a" / "x", b"data")
