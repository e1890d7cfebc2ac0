import bz2
import contextlib
import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from cfcl.data import catalogue, formats, matlab
from cfcl.errors import CfclError
from tests.data.conftest import usps_line, write_idx, write_usps

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def fashion(folder: Path, labels: tuple[int, ...] = (9, 0)) -> None:
    write_idx(folder / IMAGES, np.arange(2 * 784, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28))
    write_idx(folder / LABELS, np.array(labels, dtype=np.uint8))


def svhn_arrays(num_points: int = 2) -> dict[str, object]:
    pixels = np.zeros((32, 32, 3, num_points), dtype=np.uint8)
    pixels[4, 7, 2, 1] = 200  # row 4, column 7, blue, of the second image
    return {"X": pixels, "y": np.array([[10], [3]], dtype=np.uint8)[:num_points]}


def test_idx_files_become_images_and_labels(tmp_path: Path) -> None:
    fashion(tmp_path)

    images, labels = formats.fashion_mnist(tmp_path / IMAGES, tmp_path / LABELS)

    assert images.shape == (2, 1, 28, 28)
    assert (str(images.dtype), str(labels.dtype)) == ("uint8", "int64")
    # pixel 1,2 of image 1 is number 784 + 28 + 2 = 814, as a byte 814 - 3 * 256 = 46
    assert images[1, 0, 1, 2] == 46
    assert labels.tolist() == [9, 0]


def test_libsvm_values_are_truncated_to_bytes(tmp_path: Path) -> None:
    line = usps_line(10, 1.0).replace("2:1.000000", "2:0.000000", 1).replace(" 17:1.000000", " 17:-0.999999")
    write_usps(tmp_path / "usps.bz2", line, usps_line(1, -1.0))

    images, labels = formats.usps(tmp_path / "usps.bz2")

    assert images.shape == (2, 1, 16, 16)
    assert (str(images.dtype), str(labels.dtype)) == ("uint8", "int64")
    # 1 is 255; 0 is 127.5, cut to 127; -0.999999 is 0.0001, cut to 0; value 17 is the first of the second row
    assert images[0, 0, 0, :3].tolist() == [255, 127, 255]
    assert images[0, 0, 1, :2].tolist() == [0, 255]
    assert labels.tolist() == [9, 0]


def test_matlab_axes_are_turned_and_ten_is_zero(tmp_path: Path) -> None:
    savemat(tmp_path / "test.mat", svhn_arrays(), do_compression=True)

    images, labels = formats.svhn(tmp_path / "test.mat")

    assert images.shape == (2, 3, 32, 32)
    assert (str(images.dtype), str(labels.dtype)) == ("uint8", "int64")
    assert np.argwhere(images).tolist() == [[1, 2, 4, 7]]
    assert labels.tolist() == [0, 3]


def cut(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 8):
        data[place] ^= 0xFF
    path.write_bytes(bytes(data))


def damage_fashion(tmp_path: Path, how: Callable[[Path], object]) -> None:
    fashion(tmp_path)
    how(tmp_path)
    formats.fashion_mnist(tmp_path / IMAGES, tmp_path / LABELS)


def damage_usps(tmp_path: Path, how: Callable[[Path], object]) -> None:
    rng = np.random.default_rng(0)
    write_usps(tmp_path / "usps.bz2", *(usps_line(3, value) for value in rng.uniform(-1, 1, 50)))
    how(tmp_path / "usps.bz2")
    formats.usps(tmp_path / "usps.bz2")


def damage_svhn(tmp_path: Path, **changes: object) -> None:
    arrays = {key: value for key, value in (svhn_arrays() | changes).items() if value is not None}
    savemat(tmp_path / "test.mat", arrays)
    formats.svhn(tmp_path / "test.mat")


def damage_matlab(tmp_path: Path, how: Callable[[Path], object]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 2), dtype=np.uint8)
    savemat(tmp_path / "test.mat", svhn_arrays() | {"X": noise}, do_compression=True)
    how(tmp_path / "test.mat")
    formats.svhn(tmp_path / "test.mat")


SMALL = np.zeros((2, 27, 28), dtype=np.uint8)


def huge_idx(path: Path, *shape: int, body: int = 0) -> None:
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 3)) + struct.pack(">III", *shape) + bytes(body)))


def huge_matlab(path: Path) -> None:
    data = zlib.compress(struct.pack("<II", 14, 1_000_000) + bytes(1_000_000), 1)
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(data)) + data)


def test_a_damaged_matlab_file_never_takes_the_process_with_it(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for compressed in (True, False):
        savemat(tmp_path / "whole.mat", svhn_arrays(), do_compression=compressed)
        whole = (tmp_path / "whole.mat").read_bytes()
        assert formats.svhn(tmp_path / "whole.mat")[1].tolist() == [0, 3]
        for _ in range(200):
            data = bytearray(whole[: None if noise.random() < 0.8 else noise.integers(len(whole))])
            for place in noise.integers(124, 260, 3):
                data[min(place, len(data) - 1)] = noise.integers(256)
            (tmp_path / "test.mat").write_bytes(bytes(data))
            with contextlib.suppress(CfclError):
                formats.svhn(tmp_path / "test.mat")


def test_matlab_numbers_of_all_kinds_are_read_as_scipy_reads_them(tmp_path: Path) -> None:
    arrays = {kind: np.arange(6).astype(kind).reshape(2, 3) for kind in "i1 u1 i2 u2 i4 u4 f4 f8 i8 u8".split()}  # noqa: SIM905
    for compressed in (True, False):
        savemat(tmp_path / "a.mat", {**arrays, "text": "abc", "cell": {"a": 1}}, do_compression=compressed)
        found, wanted = matlab.arrays(tmp_path / "a.mat", [*arrays, "text", "cell"]), loadmat(tmp_path / "a.mat")
        assert list(found) == list(arrays)
        for name, array in found.items():
            assert array.dtype == wanted[name].dtype
            assert array.tolist() == wanted[name].tolist() == [[0, 1, 2], [3, 4, 5]]


# The damage, which file is named, what was found, and the rule.
DAMAGES: dict[str, tuple[Callable[[Path], None], str, str, str]] = {
    "idx cut": (lambda p: damage_fashion(p, lambda f: cut(f / IMAGES)), IMAGES, "ends too early", "complete"),
    "idx bytes flipped": (lambda p: damage_fashion(p, lambda f: flip(f / IMAGES)), IMAGES, "cannot be read", "format"),
    "idx not gzip": (
        lambda p: damage_fashion(p, lambda f: f.joinpath(IMAGES).write_bytes(b"<html>404</html>")),
        IMAGES, "Not a gzipped file", "published format"),
    "idx empty": (lambda p: damage_fashion(p, lambda f: cut(f / LABELS, 0)), LABELS, "starts with ''", "00000801"),
    "idx files swapped": (
        lambda p: damage_fashion(p, lambda f: f.joinpath(IMAGES).write_bytes((f / LABELS).read_bytes())),
        IMAGES, "starts with '00000801'", "start with '00000803'"),
    "idx of floats": (
        lambda p: damage_fashion(p, lambda f: f.joinpath(LABELS).write_bytes(gzip.compress(b"\0\0\x0d\1" + bytes(8)))),
        LABELS, "'00000d01'", "'00000801'"),
    "idx values missing": (
        lambda p: damage_fashion(p, lambda f: f.joinpath(LABELS).write_bytes(gzip.compress(b"\0\0\x08\1\0\0\0\5abc"))),
        LABELS, "holds 3 values", "promises 5"),
    "idx header cut": (
        lambda p: damage_fashion(p, lambda f: f.joinpath(LABELS).write_bytes(gzip.compress(b"\0\0\x08\1\0"))),
        LABELS, "cannot be read", "published format"),
    "idx more than promised": (
        lambda p: damage_fashion(p, lambda f: huge_idx(f / IMAGES, 2, 28, 28, body=10**7)),
        IMAGES, "more than 1568 values", "promises 2 × 28 × 28"),
    "idx of billions": (
        lambda p: damage_fashion(p, lambda f: huge_idx(f / IMAGES, 2**32 - 1, 28, 28)),
        IMAGES, "claims to hold 4,294,967,295 points", "100,000"),
    "idx of giants": (
        lambda p: damage_fashion(p, lambda f: huge_idx(f / IMAGES, 2, 2**31, 2**31)), IMAGES, "2147483648", "28×28"),
    "libsvm bomb": (
        lambda p: damage_usps(p, lambda f: f.write_bytes(bz2.compress(bytes(1_000_000), 1))),
        "usps.bz2", "unpacks to more than 900,000 bytes", "no split"),
    "matlab bomb": (lambda p: damage_matlab(p, huge_matlab), "test.mat", "more than 900,000 bytes", "MATLAB 5"),
    "matlab promises": (
        lambda p: damage_matlab(p, lambda f: f.write_bytes(f.read_bytes()[:128] + struct.pack("<II", 14, 2**32 - 1))),
        "test.mat", "0 bytes are left where 4,294,967,295", "MATLAB 5"),
    "idx wrong size": (lambda p: damage_fashion(p, lambda f: write_idx(f / IMAGES, SMALL)), IMAGES, "27×28", "28×28"),
    "idx too few labels": (lambda p: damage_fashion(p, lambda f: fashion(f, (1,))), LABELS, "1 labels", "2 images"),
    "idx wrong label": (lambda p: damage_fashion(p, lambda f: fashion(f, (1, 10))), LABELS, "label 10", "0 to 9"),
    "libsvm cut": (lambda p: damage_usps(p, cut), "usps.bz2", "ends too early", "complete"),
    "libsvm bytes flipped": (lambda p: damage_usps(p, flip), "usps.bz2", "cannot be read", "published format"),
    "libsvm not bzip2": (
        lambda p: damage_usps(p, lambda f: f.write_text("7 1:0")), "usps.bz2", "cannot be read", "format"),
    "libsvm empty": (lambda p: damage_usps(p, lambda f: write_usps(f)), "usps.bz2", "holds no line", "an image"),
    "libsvm short line": (
        lambda p: damage_usps(p, lambda f: write_usps(f, usps_line(1), usps_line(1).replace("256:-1.000000 ", ""))),
        "usps.bz2", "255 values in line 2", "256 values"),
    "libsvm numbers shuffled": (
        lambda p: damage_usps(p, lambda f: write_usps(f, usps_line(1).replace(" 7:", " 8:"))),
        "usps.bz2", "numbers its values otherwise", "1: to 256:"),
    "libsvm letters": (
        lambda p: damage_usps(p, lambda f: write_usps(f, usps_line(1).replace("9:-1.0", "9:what"))),
        "usps.bz2", "other than numbers", "LIBSVM text"),
    "libsvm not text": (
        lambda p: damage_usps(p, lambda f: f.write_bytes(bz2.compress(b"\xff\xfe\x00"))),
        "usps.bz2", "other than numbers", "LIBSVM text"),
    "libsvm value": (lambda p: damage_usps(p, lambda f: write_usps(f, usps_line(1, 1.5))), "usps.bz2", "1.5", "-1..1"),
    "libsvm nan": (
        lambda p: damage_usps(p, lambda f: write_usps(f, usps_line(1, float("nan")))), "usps.bz2", "nan", "-1..1"),
    "libsvm label": (lambda p: damage_usps(p, lambda f: write_usps(f, usps_line(0))), "usps.bz2", "label 0", "1 to 10"),
    "matlab cut": (lambda p: damage_matlab(p, cut), "test.mat", "cannot be read", "complete MATLAB 5 file"),
    "matlab bytes flipped": (lambda p: damage_matlab(p, flip), "test.mat", "cannot be read", "MATLAB 5"),
    "matlab not matlab": (
        lambda p: damage_matlab(p, lambda f: f.write_text("<html>" * 100)), "test.mat", "cannot be read", "5"),
    "matlab absent": (lambda p: damage_matlab(p, Path.unlink), "test.mat", "cannot be read", "must be"),
    "matlab no y": (lambda p: damage_svhn(p, y=None), "test.mat", "no numbers `y`", "`X` and `y`"),
    "matlab floats": (lambda p: damage_svhn(p, X=np.zeros((32, 32, 3, 2))), "test.mat", "float64", "uint8"),
    "matlab shape": (
        lambda p: damage_svhn(p, X=np.zeros((2, 32, 32, 3), dtype=np.uint8)), "test.mat", "(2, 32, 32, 3)", "points"),
    "matlab labels": (lambda p: damage_svhn(p, y=np.array([[1], [0]])), "test.mat", "label 0 at point 1", "1 to 10"),
    "matlab label number": (lambda p: damage_svhn(p, y=np.array([[1]])), "test.mat", "(1, 1)", "2 images"),
    "matlab label type": (
        lambda p: damage_svhn(p, y=np.array([["a"], ["b"]])), "test.mat", "no numbers `y`", "`X` and `y`"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_gets_one_line_with_file_finding_rule_and_remedy(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause, file, found, rule = DAMAGES[kind]
    monkeypatch.setattr(formats, "MAX_TEXT", 900_000)
    monkeypatch.setattr(matlab, "MAX_BYTES", 900_000)
    with pytest.raises(CfclError) as caught:
        cause(tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    for part in (str(tmp_path / file), found, rule, "cfcl data fetch ", "again, or replace the file"):
        assert part in line, line


def real(name: str, *files: str) -> Path:
    entry = catalogue.find_set(name)
    for place in catalogue.places():
        folder = place / name if (place / name).is_dir() else place
        if all((folder / file).is_file() for file in files or [file.name for file in entry.files]):
            return folder
    pytest.skip(f"{name} ({', '.join(files) or 'all files'}) is not here: set {catalogue.DATA_DIR}")


@pytest.mark.real_data
def test_real_fashion_mnist() -> None:
    folder = real("fashion-mnist")
    for prefix, size, total, first, last, start in (
        ("train", 60_000, 3_431_114_169, 76_247, 16_684, [9, 0, 0, 3, 0, 2, 7, 2]),
        ("t10k", 10_000, 573_469_082, 33_456, 24_390, [9, 2, 1, 1, 6, 1, 4, 6]),
    ):
        paths = [folder / f"{prefix}-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1")]
        images, labels = formats.fashion_mnist(*paths)
        assert images.shape == (size, 1, 28, 28)
        assert (images.sum(dtype=np.int64), images[0].sum(), images[-1].sum()) == (total, first, last)
        assert labels[:8].tolist() == start
        assert np.bincount(labels).tolist() == [size // 10] * 10


@pytest.mark.real_data
def test_real_usps() -> None:
    folder = real("usps")
    for name, counts, total, first, last in (
        ("usps.bz2", [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644], 117_502_683, 21_793, 17_670),
        ("usps.t.bz2", [359, 264, 198, 166, 200, 160, 170, 147, 166, 177], 34_048_836, 17_340, 12_014),
    ):
        images, labels = formats.usps(folder / name)
        assert images.shape == (sum(counts), 1, 16, 16)
        assert np.bincount(labels).tolist() == counts
        assert (images.sum(dtype=np.int64), images[0].sum(), images[-1].sum()) == (total, first, last)
    assert labels[:8].tolist() == [9, 6, 3, 6, 6, 0, 0, 0]
    assert images[0, 0, 8].tolist() == [1, 21, 91, 167, 184, 186, 193, 197, 213, 238, 215, 116, 30, 3, 0, 0]


@pytest.mark.real_data
def test_real_svhn_test_split() -> None:
    images, labels = formats.svhn(real("svhn", "test_32x32.mat") / "test_32x32.mat")
    assert images.shape == (26_032, 3, 32, 32)
    assert np.bincount(labels).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    # all; the first image; its red; blue of the last; red, green and blue at row 3, column 5 of the first
    assert images.sum(dtype=np.int64) == 9_339_025_758
    assert (images[0].sum(), images[0, 0].sum(), images[-1, 2].sum()) == (199_017, 38_187, 74_821)
    assert images[0, :, 3, 5].tolist() == [43, 104, 68]
    assert labels[:8].tolist() == [5, 2, 1, 0, 6, 1, 9, 1]


@pytest.mark.real_data
def test_real_svhn_training_split() -> None:
    images, labels = formats.svhn(real("svhn", "train_32x32.mat") / "train_32x32.mat")
    assert images.shape == (73_257, 3, 32, 32)
    assert np.bincount(labels).tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
