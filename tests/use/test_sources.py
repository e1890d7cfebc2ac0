import zipfile
from pathlib import Path

import numpy as np
import pytest

from cfcl.errors import CfclError
from cfcl.use import sources
from cfcl.use.sources import Piece
from tests.use.made import SHAPE, draw

NAMES = ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png", "more/6.png"]


def read(path: Path, shape: tuple[int, int, int] = SHAPE) -> list[Piece]:
    return [piece() for piece in sources.find(path).pieces(shape)]


def test_a_folder_gives_all_its_pictures_by_name(mixed: Path) -> None:
    (piece,) = read(mixed)
    assert (piece.names, piece.images.shape, piece.skipped) == (NAMES, (7, *SHAPE), [])
    assert sources.find(mixed).picture(1).size == (9, 20)


def test_pieces_are_as_long_as_memory_allows(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "VALUES", 3 * 64)
    assert [piece.names for piece in read(mixed)] == [NAMES[:3], NAMES[3:6], NAMES[6:]]
    assert [len(piece.names) for piece in read(mixed, (3, 8, 8))] == [1] * 7
    monkeypatch.setattr(sources, "VALUES", 1)
    assert [len(piece.names) for piece in read(mixed)] == [1] * 7


def test_a_list_names_files_beside_it(mixed: Path) -> None:
    (mixed.parent / "some.txt").write_text("mixed/3.png\n\n  mixed/more/6.png\nmixed/gone.png\n")
    (piece,) = read(mixed.parent / "some.txt")
    assert piece.names == ["mixed/3.png", "mixed/more/6.png"]
    assert [item.name for item in piece.skipped] == ["mixed/gone.png"]
    assert "No such file" in piece.skipped[0].why


def test_unreadable_pictures_are_left_out_with_the_reason(mixed: Path) -> None:
    (mixed / "3.png").write_bytes(b"rubbish")
    (piece,) = read(mixed)
    assert piece.names == [name for name in NAMES if name != "3.png"]
    assert len(piece.images) == 6
    assert [item.name for item in piece.skipped] == ["3.png"]


@pytest.mark.parametrize("axes", [(8, 8), (8, 8, 1), (1, 8, 8)])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axes: tuple[int, ...], save: object
) -> None:
    images = draw(7, *axes)
    assert callable(save)
    save(tmp_path / "x.npz", images=images)
    monkeypatch.setattr(sources, "VALUES", 3 * 64)
    pieces = read(tmp_path / "x.npz")
    assert [piece.names for piece in pieces] == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    found = np.concatenate([piece.images for piece in pieces])
    assert np.array_equal(found.reshape(7, 8, 8), images.reshape(7, 8, 8))
    assert np.array_equal(np.asarray(sources.find(tmp_path / "x.npz").picture(4)), images[4].reshape(8, 8))


@pytest.mark.parametrize("axes", [(8, 8, 3), (3, 8, 8)])
def test_arrays_in_colour_keep_their_channels_apart(tmp_path: Path, axes: tuple[int, ...]) -> None:
    images = draw(2, *axes)
    np.savez(tmp_path / "x.npz", images=images)
    (piece,) = read(tmp_path / "x.npz", (3, 8, 8))
    assert np.array_equal(piece.images, images if axes[0] == 3 else images.transpose(0, 3, 1, 2))


def cut(path: Path) -> None:
    np.savez(path, images=draw(7, 8, 8))
    path.write_bytes(path.read_bytes()[:-30])


def columns(path: Path) -> None:
    np.savez(path, images=np.asfortranarray(draw(7, 8, 8)))


def lies(path: Path) -> None:
    """An archive whose bytes are not those that their checksum is of."""
    np.savez(path, images=np.zeros((7, 8, 8), np.uint8))
    with zipfile.ZipFile(path) as archive:
        start = archive.infolist()[0].header_offset
    content = bytearray(path.read_bytes())
    content[start + 400] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (cut, "is not an .npz file of plain arrays"),
        (columns, "holds `images` column by column, but images lie one after another: save a copy in C order"),
        (lies, "is not an .npz file of plain arrays .*CRC"),
        (lambda path: np.savez(path, images=np.zeros((2, 2, 5, 5), np.uint8)), r"holds `images` of shape"),
        (lambda path: np.savez(path, images=np.zeros((2, 5, 5))), "pixels are uint8"),
        (lambda path: np.savez(path, pictures=np.zeros((2, 5, 5), np.uint8)), "holds 'pictures'"),
    ],
)
def test_bad_arrays_are_refused_in_one_line(tmp_path: Path, write: object, complaint: str) -> None:
    assert callable(write)
    write(tmp_path / "x.npz")
    with pytest.raises(CfclError, match=complaint):
        read(tmp_path / "x.npz")


def test_what_holds_no_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "none.txt").write_text("\n")
    (tmp_path / "twice.txt").write_text("a.png\nb.png\na.png\n")
    (tmp_path / "long.txt").write_text("a" * 4097)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    for name, complaint in {
        "empty": "holds no image",
        "none.txt": "names no file: give one path per line",
        "twice.txt": "names 'a.png' twice",
        "long.txt": "has a line of 4,097 characters, more than 4,096",
        "bytes.txt": "cannot be read",
        "x.pdf": "is neither a folder nor an .npz file",
        "gone": "there is nothing at .*gone",
    }.items():
        with pytest.raises(CfclError, match=complaint):
            sources.find(tmp_path / name)
