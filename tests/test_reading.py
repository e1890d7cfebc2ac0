import os
from pathlib import Path

import pytest

from cfcl import reading


def test_text_comes_without_the_mark_of_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf\xc3\xa4\r\n")
    assert reading.text(tmp_path / "a") == "ä\r\n"
    assert reading.text(tmp_path / "a", limit=7) == "ä\r\n"


def test_what_can_be_nowhere_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, found in (("", (True, False, True)), ("file", (True, True, False))):
        path = tmp_path / place
        assert (reading.exists(path), reading.is_file(path), reading.is_folder(path)) == found
    for place in ("absent", "file/x", "x" * 300, "a\0b", "\udcff"):
        path = tmp_path / place
        assert (reading.exists(path), reading.is_file(path), reading.is_folder(path)) == (False, False, False)


def test_a_home_folder_is_found_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert reading.expanded(Path("~/x")) == Path("/home/somebody/x")
    assert reading.expanded(Path("~nobody-of-this-name/x")) == Path("~nobody-of-this-name/x")
    assert reading.expanded(Path("a/~")) == Path("a/~")


def test_what_is_no_file_of_a_limited_size_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345678")
    (tmp_path / "latin").write_bytes(b"\xe4")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match="it is not a regular file"):
            reading.text(tmp_path / name)
    with pytest.raises(ValueError, match="it has 8 bytes, more than 7"):
        reading.text(tmp_path / "large", limit=7)
    with pytest.raises(UnicodeDecodeError):
        reading.text(tmp_path / "latin")
    for name in ("", "absent", "loop", "large/file"):
        with pytest.raises(OSError, match=r"Is a directory|No such file|symbolic links|Not a directory"):
            reading.text(tmp_path / name)
    with pytest.raises(ValueError, match="null"):
        reading.text(tmp_path / "a\0b")
