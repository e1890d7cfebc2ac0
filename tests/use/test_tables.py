from pathlib import Path

import numpy as np
import pytest
import torch

from cfcl.errors import CfclError
from cfcl.use import sources, tables
from cfcl.use.embedding import collect, stream
from tests.use.made import SHAPE, draw, encoder

FORMATS = ["x.npz", "x.csv"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("space", ["embedding", "features"])
def test_what_is_written_is_read_again(mixed: Path, name: str, space: tables.Space) -> None:
    trained, source, out = encoder(), sources.find(mixed), mixed.parent / "new" / name
    assert tables.write(out, source, trained, space=space) == []
    found = tables.read(out)
    paths = [mixed / item for item in source.names]
    expected = trained.embed(paths) if space == "embedding" else trained.features(paths)
    assert (list(found.names), found.space) == (list(source.names), space)
    np.testing.assert_array_equal(found.values, expected.numpy())
    assert found.encoder == (trained.digest if name == "x.npz" else None)
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_do_not_depend_on_the_number_of_workers(mixed: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sources, "VALUES", 2 * 64)
    trained, before = encoder(encoder="conv"), torch.get_num_threads()
    for workers in (1, 2, 5):
        tables.write(mixed.parent / f"{workers}{name}", sources.find(mixed), trained, workers=workers)
    first, *others = ((mixed.parent / f"{workers}{name}").read_bytes() for workers in (1, 2, 5))
    assert all(other == first for other in others)
    assert torch.get_num_threads() == before


def test_names_keep_their_images_where_some_cannot_be_read(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "VALUES", 2 * 64)
    for name in ("1.png", "2.png", "3.png"):
        (mixed / name).write_bytes(b"")
    found = collect(sources.find(mixed), encoder(), workers=2)
    assert found.names == ["0.png", "4.png", "5.png", "more/6.png"]
    assert found.positions == [0, 4, 5, 6]
    assert [item.name for item in found.skipped] == ["1.png", "2.png", "3.png"]
    torch.testing.assert_close(torch.from_numpy(found.values[1:2]), encoder().embed(mixed / "4.png"))


def test_nothing_is_written_where_no_image_can_be_read(mixed: Path) -> None:
    (mixed.parent / "some.txt").write_text("a.png\nb.png\n")
    out = mixed.parent / "x.npz"
    with pytest.raises(CfclError, match=r"none of the 2 images can be read, the first because .*a\.png"):
        tables.write(out, sources.find(mixed.parent / "some.txt"), encoder())
    with pytest.raises(CfclError, match="none of the 2 images can be read"):
        collect(sources.find(mixed.parent / "some.txt"), encoder())
    assert sorted(path.name for path in mixed.parent.iterdir()) == ["mixed", "some.txt"]


def test_what_stood_there_stays_until_all_is_written(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = mixed.parent / "x.csv"
    out.write_text("mine")
    monkeypatch.setattr(tables, "stream", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tables.write(out, sources.find(mixed), encoder())
    assert out.read_text() == "mine"
    assert sorted(path.name for path in mixed.parent.iterdir()) == ["mixed", "x.csv"]


def test_few_images_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", images=draw(100, *SHAPE))
    monkeypatch.setattr(sources, "VALUES", 64)
    source, asked = sources.find(tmp_path / "x.npz"), 0
    pieces = source.pieces

    def counted(shape: tuple[int, int, int]) -> object:
        nonlocal asked
        for piece in pieces(shape):
            asked += 1
            yield piece

    monkeypatch.setattr(source, "pieces", counted)
    next(stream(source, encoder(), workers=2))
    assert asked == 5  # two for each of the workers, and one


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.npz", b"rubbish", "is no file of embeddings"),
        ("x.csv", b"", "its first line does not begin with `name`"),
        ("x.csv", b"name,e0\n", "it holds no vectors"),
        ("x.csv", b"name,e0\na,1\nb\n", "line 3 has 1 entries, and the first one 2"),
        ("x.csv", b"name,e0\na,one\n", "could not convert"),
        ("x.csv", b"name,e0\na,nan\n", "numbers that are not finite"),
        ("x.csv", b"name,e0\na,1\na,2\n", "a name stands there twice"),
        ("x.csv", b"name,e0\n\xff,1\n", "is no file of embeddings"),
        ("x.txt", b"", "is no file that ends in .npz, .csv, .parquet"),
    ],
)
def test_files_that_hold_no_embeddings_are_refused(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CfclError, match=complaint):
        tables.read(tmp_path / name)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"embeddings": np.zeros((2, 3))}, "names"),
        ({"embeddings": np.zeros(2), "names": np.array(["a", "b"])}, "rows of floats"),
        ({"embeddings": np.zeros((2, 3), int), "names": np.array(["a", "b"])}, "rows of floats"),
        ({"embeddings": np.zeros((2, 3)), "names": np.array([1, 2])}, "`names` are text"),
        ({"embeddings": np.zeros((2, 3)), "names": np.array(["a"])}, "1 names for 2 vectors"),
        ({"embeddings": np.array([{}]), "names": np.array(["a"])}, "is no file of embeddings"),
    ],
)
def test_arrays_that_are_no_embeddings_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], complaint: str
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(CfclError, match=complaint):
        tables.read(tmp_path / "x.npz")


def test_tables_are_told_from_images(mixed: Path) -> None:
    tables.write(mixed.parent / "x.npz", sources.find(mixed), encoder())
    np.savez(mixed.parent / "y.npz", images=draw(2, 8, 8))
    (mixed.parent / "z.npz").write_bytes(b"rubbish")
    assert [tables.is_table(mixed.parent / name) for name in ("x.npz", "y.npz", "z.npz", "a.csv", "mixed")] == [
        True, False, False, True, False,
    ]  # fmt: skip


def test_a_suffix_says_what_to_write(mixed: Path) -> None:
    with pytest.raises(CfclError, match=r"--out .*x\.pkl' ends in none of \.npz, \.csv, \.parquet"):
        tables.write(mixed.parent / "x.pkl", sources.find(mixed), encoder())
