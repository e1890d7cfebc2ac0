"""Images of your own: a folder of pictures, or arrays in an .npz file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from cfcl import reading
from cfcl.config import DataConfig
from cfcl.data import archive, listing, pictures
from cfcl.data.archive import bad
from cfcl.data.limits import check_memory
from cfcl.data.listing import Layout
from cfcl.data.notes import note
from cfcl.data.pictures import Look
from cfcl.data.splits import MAX_LABEL, Dataset, divide, joined
from cfcl.errors import CfclError

MAX_DEVICE = 2**31 - 1


@dataclass(frozen=True)
class Survey:
    """What is known of images before any of them is decoded."""

    path: Path
    num_images: int
    """Those for the test excluded, where the data say which."""
    labels: Tensor | None
    devices: Tensor | None
    has_test: bool
    """Whether the data bring a test split of their own."""
    layout: Layout
    names: Sequence[str]
    """Of the sub-folders that are told apart."""
    looks: Callable[[], Sequence[Look]]
    """Sizes and colour, one for each image or one for all that are equal; takes time when first asked."""


def survey(config: DataConfig) -> Survey:
    """The images at `config.path`: a folder, or an .npz file by its suffix or where `config.dataset` says so."""
    return _survey_npz(config) if is_npz(config) else _survey_folder(config)[0]


def is_npz(config: DataConfig) -> bool:
    """Whether `config` means a file of arrays; where it leaves the kind of data open the suffix decides."""
    return config.dataset == "npz" or (config.layout == "auto" and _path(config).suffix.lower() == ".npz")


def load(config: DataConfig) -> Dataset:
    """The dataset at `config.path`."""
    return from_npz(config) if is_npz(config) else from_folder(config)


def from_folder(config: DataConfig) -> Dataset:
    """The pictures below `config.path`, in order of their names; sub-folders are classes or devices, by layout."""
    seen, found = _survey_folder(config)
    for line in found.notes:
        note(line)
    with pictures.quietly():
        images = _stack([path for files in found.files for path in files], config)
    name = _path(config).name or "folder"
    dataset = divide(name, images, seen.labels, seen.devices, fraction=config.test_fraction)
    return replace(dataset, classes=found.names) if found.layout == "classes" else dataset


def from_npz(config: DataConfig) -> Dataset:
    """The arrays in the file `config.path`."""
    path = _path(config)
    arrays = archive.read(path)
    images = _as_images(path, "images", arrays["images"], config)
    labels = _numbers(path, "labels", arrays.get("labels"), len(images), MAX_LABEL)
    devices = _numbers(path, "devices", arrays.get("devices"), len(images), MAX_DEVICE)
    if "test_images" not in arrays:
        if "test_labels" in arrays:
            raise bad(path, "has `test_labels` without `test_images`", "labels belong to images", "add `test_images`")
        return divide(path.stem, images, labels, devices, fraction=config.test_fraction)
    test = _as_images(path, "test_images", arrays["test_images"], config)
    test_labels = _numbers(path, "test_labels", arrays.get("test_labels"), len(test), MAX_LABEL)
    return replace(joined(str(path), (images, labels), (test, test_labels), devices), name=path.stem)


def _path(config: DataConfig) -> Path:
    if config.path is None:
        raise CfclError(
            "data.path is not set, but says where your images are: give a folder of pictures or an .npz file, such as "
            "--set data.path=photos"
        )
    return reading.expanded(config.path)


def _survey_folder(config: DataConfig) -> tuple[Survey, listing.Listing]:
    path = _path(config)
    found = listing.find(path, config.layout)
    files = [file for group in found.files for file in group]
    owners = torch.repeat_interleave(torch.tensor([len(group) for group in found.files]))
    seen = Survey(
        path=path,
        num_images=len(files),
        labels=owners if found.layout == "classes" else None,
        devices=owners if found.layout == "devices" else None,
        has_test=False,
        layout=found.layout,
        names=found.names,
        looks=cache(lambda: _looks(files)),
    )
    return seen, found


def _looks(files: Sequence[Path]) -> list[Look]:
    with pictures.quietly():
        return [pictures.look(file) for file in files]


def _survey_npz(config: DataConfig) -> Survey:
    path = _path(config)
    heads = archive.heads(path)
    arrays = archive.read(path, ("labels", "devices"))
    num_images, height, width, channels, _ = archive.axes(path, "images", heads["images"].shape)
    return Survey(
        path=path,
        num_images=num_images,
        labels=_numbers(path, "labels", arrays.get("labels"), num_images, MAX_LABEL),
        devices=_numbers(path, "devices", arrays.get("devices"), num_images, MAX_DEVICE),
        has_test="test_images" in heads,
        layout="flat",
        names=(),
        looks=lambda: [Look(height, width, channels == 1)],
    )


def _form(shape: Sequence[int]) -> str:
    channels, height, width = shape[-3:]
    return f"{channels}×{height}×{width}"


def _stack(paths: Sequence[Path], config: DataConfig) -> Tensor:
    size = _size(config)
    first = pictures.read(paths[0], grey=config.grey, size=size)
    what = f"{len(paths):,} images of {_form(first.shape)}"
    check_memory(first.nbytes * len(paths), what, "set data.image_size, such as 32")
    images = np.empty((len(paths), *first.shape), dtype=np.uint8)
    for position, path in enumerate(paths):
        image = pictures.read(path, grey=config.grey, size=size)
        if image.shape != first.shape:
            raise bad(
                path,
                f"is {_form(image.shape)} and {paths[0].name} is {_form(first.shape)}",
                "all images must be of one size",
                "set data.image_size, such as 32",
            )
        images[position] = image
    return torch.from_numpy(images)


def _size(config: DataConfig) -> pictures.Size | None:
    return None if config.image_size is None else (config.image_size, config.image_size)


def _as_images(path: Path, key: str, array: NDArray[Any], config: DataConfig) -> Tensor:
    """[points, channels, height, width], grey and resized as requested."""
    points, height, width, channels, second = archive.axes(path, key, array.shape)
    pixels = array if second else array.reshape(points, height, width, channels).transpose(0, 3, 1, 2)
    if config.image_size is not None or (config.grey and channels == 3):
        flat = (image[0] if channels == 1 else image.transpose(1, 2, 0) for image in pixels)
        pictured = (Image.fromarray(np.ascontiguousarray(image)) for image in flat)
        mode = "L" if config.grey or channels == 1 else "RGB"
        return torch.from_numpy(
            np.stack([pictures.fitted(picture.convert(mode), _size(config)) for picture in pictured])
        )
    return torch.from_numpy(np.ascontiguousarray(pixels))


def _numbers(path: Path, key: str, array: NDArray[Any] | None, num_points: int, most: int) -> Tensor | None:
    """Whole numbers from 0 on, one for each image."""
    if array is None:
        return None
    if len(array) != num_points:
        raise bad(path, f"holds {len(array)} `{key}` for {num_points} images", "each image has one", "make them match")
    worst = array.min() if array.min() < 0 else array.max()
    if not 0 <= worst <= most:
        raise bad(path, f"holds {worst} in `{key}`", f"they are numbered 0 to {most}", "renumber them")
    return torch.from_numpy(array.astype(np.int64))
