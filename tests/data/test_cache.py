import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cfcl.data import cache

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


class Maker:
    """Counts how often it had to decode."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> cache.Arrays:
        self.calls += 1
        return {"images": IMAGES, "labels": np.array([7, 8], dtype=np.uint8)}


def stored() -> Path:
    return cache.folder() / "decoded" / "set-1"


def test_arrays_are_decoded_once_and_mapped_from_then_on() -> None:
    make = Maker()
    for _ in range(3):
        arrays = cache.decoded("set-1", make)
        assert arrays["images"].tolist() == IMAGES.tolist()
        assert arrays["labels"].tolist() == [7, 8]
        assert isinstance(arrays["images"].base, np.memmap)
    assert make.calls == 1


def test_torch_takes_the_mapped_memory_and_writing_stays_private() -> None:
    tensor = torch.from_numpy(cache.decoded("set-1", Maker())["images"])
    tensor.fill_(99)
    assert cache.decoded("set-1", Maker())["images"].tolist() == IMAGES.tolist()


def test_another_key_is_another_set() -> None:
    make = Maker()
    cache.decoded("set-1", make)
    cache.decoded("set-2", make)
    assert make.calls == 2


def flip_last(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit flipped": lambda place: flip_last(place / "images.npy"),
    "cut": lambda place: (place / "images.npy").write_bytes((place / "images.npy").read_bytes()[:-5]),
    "empty": lambda place: (place / "labels.npy").write_bytes(b""),
    "gone": lambda place: (place / "labels.npy").unlink(),
    "other type": lambda place: np.save(place / "images.npy", IMAGES.astype(np.int16)),
    "other shape": lambda place: np.save(place / "images.npy", IMAGES.reshape(4, 3, 2)),
    "pickled": lambda place: np.save(place / "images.npy", np.array([{}], dtype=object)),
    "sums cut": lambda place: (place / "sums.json").write_text('{"images": 12'),
    "sums of another kind": lambda place: (place / "sums.json").write_text("[1, 2]"),
    "sums empty": lambda place: (place / "sums.json").write_text("{}"),
    "sums gone": lambda place: (place / "sums.json").unlink(),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_is_damaged_is_made_again(kind: str) -> None:
    make = Maker()
    cache.decoded("set-1", make)
    DAMAGES[kind](stored())
    for _ in range(2):
        assert cache.decoded("set-1", make)["images"].tolist() == IMAGES.tolist()
    assert make.calls == 2


def test_a_place_that_cannot_be_written_is_noted_once_and_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CFCL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    make = Maker()
    for _ in range(2):
        assert cache.decoded("set-1", make)["images"].tolist() == IMAGES.tolist()
    assert make.calls == 2
    captured = capsys.readouterr()
    assert captured.err.count("note: cannot keep decoded images") == 1
    assert "CFCL_CACHE_DIR" in captured.err
    assert captured.out == ""


def test_several_processes_may_store_the_same_at_once() -> None:
    code = (
        "import numpy as np; from cfcl.data import cache\n"
        "a = np.arange(300_000, dtype=np.uint8)\n"
        "for _ in range(5):\n"
        "    cache._store(cache.folder() / 'decoded' / 'big', {'a': a})\n"
        "    assert (cache.decoded('big', lambda: 1 / 0)['a'] == a).all()\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ)) for _ in range(2)]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    left = sorted(path.name for path in (cache.folder() / "decoded" / "big").iterdir())
    assert left == ["a.npy", "sums.json"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        cache._write(tmp_path / "x" / "file", lambda file: 1 // 0)
    assert list((tmp_path / "x").iterdir()) == []


def test_a_checksum_is_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    assert cache.md5(file) == "900150983cd24fb0d6963f7d28e17f72"  # of RFC 1321
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", None)  # it would fail if it were called
        assert cache.md5(file) == "900150983cd24fb0d6963f7d28e17f72"
    file.write_bytes(b"message digest")
    assert cache.md5(file) == "f96b697d7cb7938d525a2f31aaf161d0"


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("CFCL_CACHE_DIR", "/mine")
    assert cache.folder() == Path("/mine")
    monkeypatch.delenv("CFCL_CACHE_DIR")
    assert cache.folder() == Path("/xdg/cfcl")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/anna")
    assert cache.folder() == Path("/home/anna/.cache/cfcl")
