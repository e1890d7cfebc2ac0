"""Files of arrays that are not what they seem: one line, and no memory for it."""

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfcl.config import DataConfig
from cfcl.data import archive, datasets, limits
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError

OK = np.zeros((10, 5, 4), dtype=np.uint8)


def load(path: Path) -> Dataset:
    return datasets.load(DataConfig(dataset="npz", path=path))


def npz(path: Path, **arrays: Any) -> Dataset:
    np.savez(path / "mine.npz", images=OK, **arrays)
    return load(path / "mine.npz")


def crafted(path: Path, head: str, body: bytes = b"", name: str = "images.npy") -> Dataset:
    text = head.encode() + b"\n"
    with zipfile.ZipFile(path / "mine.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body)
    return load(path / "mine.npz")


def head(shape: tuple[int, ...], kind: str = "|u1") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"


def encrypted(path: Path) -> Dataset:
    np.savez(path / "mine.npz", images=OK)
    data = bytearray((path / "mine.npz").read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    (path / "mine.npz").write_bytes(data)
    return load(path / "mine.npz")


BAD: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "a shape of 10^21": (
        lambda p: crafted(p, head((10**9, 10**6, 10**6)), b"x"), ("promises 1,000,000,000,000,000,000,000", "has 1")),
    "more than promised": (lambda p: crafted(p, head((2, 5, 4)), bytes(50)), ("promises 40 bytes, but has 50",)),
    "negative sides": (lambda p: crafted(p, head((-5, -4, 1)), bytes(20)), ("(-5, -4, 1)",)),
    "objects": (lambda p: crafted(p, head((1,), "|O"), bytes(8)), ("holds object", "without objects")),
    "huge items": (lambda p: crafted(p, head((1,), "|V9999"), bytes(9999)), ("|V9999", "pixels are uint8")),
    "code for a head": (lambda p: crafted(p, "__import__('os').abort()"), ("not an .npz file",)),
    "another name": (lambda p: crafted(p, head((1,)), b"x", "../images.npy"), ("holds '../images'", "the names are")),
    "encrypted": (encrypted, ("not an .npz file", "encrypted")),
    "labels of 10^12": (lambda p: npz(p, labels=np.full(10, 10**12)), ("1000000000000 in `labels`", "0 to 9999")),
    "labels beyond 64 bits": (
        lambda p: npz(p, labels=np.full(10, 2**64 - 1, dtype=np.uint64)), ("18446744073709551615", "renumber")),
    "labels that are none": (lambda p: npz(p, labels=np.full(10, np.nan)), ("float64", "whole numbers")),
    "devices beyond 64 bits": (
        lambda p: npz(p, devices=np.full(10, 2**64 - 1, dtype=np.uint64)), ("in `devices`", "0 to 2147483647")),
    "one test image": (lambda p: npz(p, test_images=OK[:1]), ("has 1 test image", "at least 2", "give more")),
    "no test images": (lambda p: npz(p, test_images=OK[:0]), ("`test_images` of shape (0, 5, 4)",)),
    "a folder": (load, ("Is a directory",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_gets_one_line(tmp_path: Path, kind: str) -> None:
    cause, parts = BAD[kind]
    with pytest.raises(CfclError) as caught:
        cause(tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    for part in (str(tmp_path), *parts):
        assert part in line, line


def test_a_small_file_that_claims_to_be_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "SMALL", 1_000_000)
    assert crafted(tmp_path, head((950, 32, 32)), bytes(950 * 1024)).image_shape == (1, 32, 32)
    with pytest.raises(
        CfclError, match=r"would unpack to 2,048,\d+, but more than 200 times its size is refused: save"
    ):
        crafted(tmp_path, head((2000, 32, 32)), bytes(2000 * 1024))
    noise = np.random.default_rng(0).bytes(2000 * 1024)
    assert len(crafted(tmp_path, head((2000, 32, 32)), noise).train_images) == 1600


def test_heads_are_read_without_the_arrays(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mine.npz", images=OK, labels=np.arange(10, dtype=np.int16))
    assert archive.heads(tmp_path / "mine.npz") == {
        "images": ((10, 5, 4), np.dtype(np.uint8), False),
        "labels": ((10,), np.dtype(np.int16), False),
    }
    assert list(archive.read(tmp_path / "mine.npz", ["labels", "devices"])) == ["labels"]


def test_what_the_machine_cannot_hold_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memory", lambda: 399)
    # 200 bytes of pixels and 128 of head, twice, are 656
    with pytest.raises(CfclError, match=r"mine.npz would take .* this machine has .*: give fewer or smaller images"):
        npz(tmp_path)
    monkeypatch.setattr(limits, "memory", lambda: 656)
    assert len(npz(tmp_path).train_images) == 8
