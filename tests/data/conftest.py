import bz2
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cfcl.data import catalogue, notes


@pytest.fixture(autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("CFCL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(notes, "_said", set())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder of real data is known."""
    monkeypatch.delenv(catalogue.DATA_DIR, raising=False)


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def usps_line(label: int, value: float = -1.0) -> str:
    return f"{label} " + " ".join(f"{i}:{value:.6f}" for i in range(1, 257)) + " \n"


def write_usps(path: Path, *lines: str) -> None:
    path.write_bytes(bz2.compress("".join(lines).encode()))
