"""Disks that are full or may not be written: clear lines, and nothing lost that was there."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.conftest import cfcl, files, one_line, run_words


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a file system needs rights that are not there")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def test_a_full_disk_ends_a_run_with_a_line_and_costs_nothing(disk: Path, whole: dict[str, bytes]) -> None:
    (disk / "ballast").write_bytes(bytes(1_000_000))
    one_line(
        cfcl(*run_words(disk / "runs"), "--workers", "1"),
        3,
        "cannot write to",
        "No space left on device",
        "cfcl resume",
    )
    (partial,) = (disk / "runs").iterdir()
    assert "failed" in cfcl("runs", str(disk)).stdout

    _remount(disk, "size=64m")
    result = cfcl("resume", str(partial), "--json")

    assert result.returncode == 0, result.stderr
    (folder,) = (disk / "runs").iterdir()
    assert files(folder) == whole


def test_a_disk_that_may_not_be_written_is_refused_and_what_is_there_stays(disk: Path) -> None:
    _remount(disk, "size=64m")
    assert cfcl(*run_words(disk / "runs", "train.steps=20"), "--workers", "1").returncode == 0
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    _remount(disk, "ro")

    one_line(
        cfcl(*run_words(disk / "runs"), "--workers", "1"), 2, "cannot write below", "Read-only file system", "--out"
    )
    one_line(cfcl(*run_words(disk / "runs"), "--workers", "2"), 2, "cannot write below", "Read-only file system")
    one_line(cfcl("compare", "digits", "--out", str(disk)), 2, "cannot write below")
    one_line(cfcl("report", str(disk / "runs"), "--out", str(disk / "r.html")), 2, "cannot write")
    _remount(disk, "rw")
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before
