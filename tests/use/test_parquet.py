"""Parquet files, where pyarrow is installed."""

import sys
from pathlib import Path

import numpy as np
import pytest

from cfcl.errors import CfclError
from cfcl.use import tables

VALUES = np.array([[0.5, -1.25, 3.0], [1e-30, 0.1, -0.0]], dtype=np.float32)


def write(path: Path) -> None:
    with tables.writing(path, dim=3, encoder="abc", space="features") as append:
        append(["a/ü.png"], VALUES[:1])
        append(["b, c.png"], VALUES[1:])


def test_names_and_values_come_back(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write(tmp_path / "x.parquet")
    found = tables.read(tmp_path / "x.parquet")
    assert (found.names, found.encoder, found.space) == (("a/ü.png", "b, c.png"), "abc", "features")
    assert found.values.dtype == np.float32
    assert found.values.tobytes() == VALUES.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-20])
    with pytest.raises(CfclError, match=r"^[^\n]*x\.parquet' is no file of embeddings[^\n]*$"):
        tables.read(tmp_path / "x.parquet")


def test_without_pyarrow_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CfclError, match=r"pyarrow, which is not installed: pip install 'cfcl\[parquet\]'"):
        write(tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
