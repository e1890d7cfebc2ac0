"""Where images come from: a folder, a list of files, or arrays. They are looked at piece by piece, however many."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from cfcl import reading
from cfcl.data import archive, listing, pictures
from cfcl.errors import CfclError
from cfcl.use import intake
from cfcl.use.intake import Shape

LIST = ".txt"
AT_ONCE = 128
"""Images of a piece, at most: fewer keep both cores busy to the end, and more leave the cache."""
VALUES = 2**22
"""Values of the images of a piece, as they are or as the encoder sees them, at most; but one image always fits."""


LONGEST = 4096
"""Characters of a name in a list: no system opens a longer path."""


class Skipped(NamedTuple):
    """An image that could not be read."""

    name: str
    why: str


class Piece(NamedTuple):
    """Images that follow each other, read."""

    names: list[str]
    images: pictures.Pixels
    """One for each name."""
    skipped: list[Skipped]


class Source(Protocol):
    """Images with names, in a fixed order."""

    names: Sequence[str]

    @abstractmethod
    def pieces(self, shape: Shape) -> Iterator[Callable[[], Piece]]:
        """All of them as an encoder sees them, piece by piece; a piece is read when it is called, in any thread.

        Where a piece ends depends on the images and on `shape` alone.
        """

    @abstractmethod
    def picture(self, position: int, side: int | None = None) -> Image.Image:
        """One of them as people see it, in mode L or RGB; if it is shown no larger than `side`, perhaps smaller."""


def find(path: Path) -> Source:
    """The images at `path`: a folder, an .npz file with an array `images`, a .txt file with a path per line, or one
    picture.
    """
    suffix = path.suffix.lower()
    if reading.is_folder(path):
        found = listing.find(path, "flat")
        (files,) = found.files
        return Files([_name(file.relative_to(path)) for file in files], files)
    if not reading.is_file(path):
        raise CfclError(
            f"there is nothing at {str(path)!r}: give a folder of images, an .npz file, or a .txt file with a path per "
            "line"
        )
    if suffix == ".npz":
        return Arrays(path)
    if suffix == LIST:
        return _listed(path)
    if suffix in pictures.SUFFIXES:
        return Files([path.name], [path])
    raise CfclError(
        f"{str(path)!r} is neither a folder nor an .npz file, a .txt file with a path per line or a picture "
        f"({', '.join(sorted(pictures.SUFFIXES))}): give one of these"
    )


class Files:
    """Pictures in files."""

    def __init__(self, names: Sequence[str], paths: Sequence[Path]) -> None:
        self.names = names
        self._paths = paths

    def pieces(self, shape: Shape) -> Iterator[Callable[[], Piece]]:
        """See Source."""
        size = _rows(shape)
        for start in range(0, len(self._paths), size):
            yield lambda start=start: self._read(slice(start, start + size), shape)  # type: ignore[misc]

    def picture(self, position: int, side: int | None = None) -> Image.Image:
        """See Source."""
        return pictures.opened(self._paths[position], None if side is None else (side, side))

    def _read(self, part: slice, shape: Shape) -> Piece:
        names: list[str] = []
        images: list[pictures.Pixels] = []
        skipped: list[Skipped] = []
        for name, path in zip(self.names[part], self._paths[part], strict=True):
            try:
                images.append(intake.picture(path, shape))
                names.append(name)
            except CfclError as error:
                skipped.append(Skipped(name, str(error)))
        return Piece(names, _stacked(images, shape), skipped)


class Arrays:
    """Images in an array of an .npz file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._axes = archive.axes(path, "images", archive.heads(path, whole=False)["images"].shape)
        self.names: Sequence[str] = [str(place) for place in range(self._axes.points)]
        self._whole: pictures.Pixels | None = None

    def pieces(self, shape: Shape) -> Iterator[Callable[[], Piece]]:
        """See Source."""
        axes = self._axes
        size = min(_rows(shape), _rows((axes.channels, axes.height, axes.width)))
        start = 0
        for rows in archive.stream(self._path, "images", size):
            names = self.names[start : start + len(rows)]
            yield lambda rows=rows, names=names: self._read(rows, list(names), shape)  # type: ignore[misc]
            start += len(rows)

    def picture(self, position: int, side: int | None = None) -> Image.Image:
        """See Source."""
        if self._whole is None:
            self._whole = archive.read(self._path, ("images",))["images"]
        return self._pil(self._whole[position])

    def _read(self, rows: pictures.Pixels, names: list[str], shape: Shape) -> Piece:
        return Piece(names, _stacked([intake.pixels(self._pil(image), shape) for image in rows], shape), [])

    def _pil(self, image: pictures.Pixels) -> Image.Image:
        axes = self._axes
        if axes.channels == 1:
            return Image.fromarray(image.reshape(axes.height, axes.width))
        return Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0) if axes.second else image))


def _listed(path: Path) -> Files:
    """The files that a list names, relative to its own folder."""
    try:
        lines = reading.text(path).splitlines()
    except (OSError, ValueError) as error:
        raise CfclError(f"the list {str(path)!r} cannot be read ({error}): give one path per line, in UTF-8") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise CfclError(f"the list {str(path)!r} names no file: give one path per line")
    if (most := max(map(len, names))) > LONGEST:
        raise CfclError(f"the list {str(path)!r} has a line of {most:,} characters, more than {LONGEST:,}: correct it")
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise CfclError(f"the list {str(path)!r} names {twice!r} twice, but names tell images apart: remove one")
    return Files(names, [path.parent / name for name in names])


def _name(path: Path) -> str:
    """A path as text that any file can hold."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _rows(shape: Shape) -> int:
    channels, height, width = shape
    return max(1, min(AT_ONCE, VALUES // (channels * height * width)))


def _stacked(images: Sequence[pictures.Pixels], shape: Shape) -> pictures.Pixels:
    return np.stack(images) if images else np.empty((0, *shape), dtype=np.uint8)
