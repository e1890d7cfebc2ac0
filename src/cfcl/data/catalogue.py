"""The published sets: their files, where those come from, and where they are on this machine."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfcl import reading
from cfcl.data import cache, formats
from cfcl.data.cache import Arrays
from cfcl.data.formats import Split
from cfcl.data.notes import note
from cfcl.errors import CfclError

DATA_DIR = "CFCL_DATA_DIR"
VERSION = 1
"""Part of the key of decoded images: to be raised when decoding changes."""


@dataclass(frozen=True)
class File:
    """A file as its publisher offers it. The checksum decides; no more bytes than the size are ever downloaded."""

    name: str
    num_bytes: int
    md5: str


@dataclass(frozen=True)
class ImageSet:
    """A published set of images."""

    name: str
    description: str
    licence: str
    base_url: str
    """Folder of the publisher; a file's name is appended."""
    train: tuple[File, ...]
    test: tuple[File, ...]
    image_shape: tuple[int, int, int]
    num_train: int
    num_test: int
    read: Callable[..., Split]
    """Images and labels from the paths of a split's files."""
    classes: tuple[str, ...] = ()
    """What the labels stand for, where they are not themselves."""

    @property
    def files(self) -> tuple[File, ...]:
        """All files of the set."""
        return self.train + self.test

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum(file.num_bytes for file in self.files)


SETS: dict[str, ImageSet] = {
    "fashion-mnist": ImageSet(
        name="fashion-mnist",
        description="Grey pictures of ten kinds of clothing (Zalando Research)",
        licence="MIT",
        # The publisher's own repository: its other place has no https.
        base_url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/"
        "b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/",
        train=(
            File("train-images-idx3-ubyte.gz", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            File("train-labels-idx1-ubyte.gz", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        ),
        test=(
            File("t10k-images-idx3-ubyte.gz", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            File("t10k-labels-idx1-ubyte.gz", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        image_shape=(1, 28, 28),
        num_train=60_000,
        num_test=10_000,
        read=formats.fashion_mnist,
        classes=("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "usps": ImageSet(
        name="usps",
        description="Grey handwritten digits from envelopes (US Postal Service)",
        licence="none stated",
        base_url="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",
        train=(File("usps.bz2", 6_579_383, "ec16c51db3855ca6c91edd34d0e9b197"),),
        test=(File("usps.t.bz2", 1_831_726, "8ea070ee2aca1ac39742fdd1ef5ed118"),),
        image_shape=(1, 16, 16),
        num_train=7_291,
        num_test=2_007,
        read=formats.usps,
    ),
    "svhn": ImageSet(
        name="svhn",
        description="Colour digits cropped from house numbers (Stanford, Google)",
        licence="non-commercial",
        # Plain http, as published; the checksum tells whether the bytes are the publisher's.
        base_url="http://ufldl.stanford.edu/housenumbers/",
        train=(File("train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),),
        test=(File("test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),),
        image_shape=(3, 32, 32),
        num_train=73_257,
        num_test=26_032,
        read=formats.svhn,
    ),
}


def find_set(name: str) -> ImageSet:
    """The set called `name`."""
    if name not in SETS:
        raise CfclError(f"{name!r} is not a published set that cfcl knows: choose one of {', '.join(SETS)}")
    return SETS[name]


def licence(name: str) -> str | None:
    """The licence of the set called `name`, as its publisher states it; None of images of your own."""
    if name == "digits":
        return "BSD-3-Clause, as scikit-learn, which it ships with"
    return SETS[name].licence if name in SETS else None


def home(data_dir: Path | None = None) -> Path:
    """Where fetched files go: `data_dir`, else `$CFCL_DATA_DIR`, else the user's cache."""
    return places(data_dir)[0]


def places(data_dir: Path | None = None) -> list[Path]:
    """The folders that are searched, in order."""
    named = os.environ.get(DATA_DIR)
    first = [data_dir] if data_dir is not None else []
    return [*first, *([Path(named)] if named else []), cache.folder() / "data"]


def locate(entry: ImageSet, data_dir: Path | None = None) -> Path | None:
    """The first folder that holds all files of the set, by itself or below the set's name."""
    for folder in _folders(entry, data_dir):
        if not _missing(entry, folder):
            return folder
    return None


def find(entry: ImageSet, data_dir: Path | None = None) -> Path:
    """The folder that holds the set; where there is none, one line that says how to get it."""
    if data_dir is not None and not reading.is_folder(data_dir):
        raise CfclError(f"data.dir={str(data_dir)!r} is not a folder: make it, or give the one that holds {entry.name}")
    found = locate(entry, data_dir)
    if found is not None:
        return found
    for folder in _folders(entry, data_dir):
        missing = _missing(entry, folder)
        if len(missing) < len(entry.files):
            raise CfclError(
                f"{entry.name} is not complete: {folder} lacks {', '.join(missing)}; run `cfcl data fetch "
                f"{entry.name}`, or put them there"
            )
    raise CfclError(
        f"{entry.name} is not on this machine: run `cfcl data fetch {entry.name}`, or put "
        f"{', '.join(file.name for file in entry.files)} into {home(data_dir) / entry.name}"
    )


def altered(entry: ImageSet, folder: Path) -> list[str]:
    """Names of the files whose checksum is not the publisher's."""
    return [file.name for file in entry.files if _md5(folder / file.name) != file.md5]


def load(entry: ImageSet, data_dir: Path | None = None) -> Arrays:
    """The set as bytes: train_images, train_labels, test_images and test_labels."""
    folder = find(entry, data_dir)
    if names := altered(entry, folder):  # told before anything is decoded
        note(f"{', '.join(names)} in {folder}: not with the checksum of the publisher's {entry.name}")
    digest = hashlib.sha256("".join(_md5(folder / file.name) for file in entry.files).encode()).hexdigest()
    return cache.decoded(f"{entry.name}-v{VERSION}-{digest[:16]}", lambda: _read(entry, folder))


def _read(entry: ImageSet, folder: Path) -> Arrays:
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]] = {}
    for split, files, size in (("train", entry.train, entry.num_train), ("test", entry.test, entry.num_test)):
        paths = [folder / file.name for file in files]
        images, labels = entry.read(*paths)
        if len(images) != size:
            raise CfclError(
                f"{paths[0]} holds {len(images)} images, but the {split} split of {entry.name} has {size}: run "
                f"`cfcl data fetch {entry.name}` again, or replace the file"
            )
        arrays |= {f"{split}_images": images, f"{split}_labels": labels.astype(np.uint8)}
    return arrays


def _md5(path: Path) -> str:
    try:
        return cache.md5(path)
    except OSError as error:
        raise CfclError(f"cannot read {path}: {error.strerror}; make it readable") from None


def _folders(entry: ImageSet, data_dir: Path | None) -> list[Path]:
    return [folder for place in places(data_dir) for folder in (place / entry.name, place)]


def _missing(entry: ImageSet, folder: Path) -> Sequence[str]:
    return [file.name for file in entry.files if not reading.is_file(folder / file.name)]
