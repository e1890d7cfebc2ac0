"""Images of your own: a folder of pictures, or arrays in an .npz file."""

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from cfcl.config import DataConfig
from cfcl.data.notes import note
from cfcl.data.splits import Dataset, divide
from cfcl.errors import CfclError

Pixels = NDArray[np.uint8]

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
KEYS = ("images", "labels", "devices", "test_images", "test_labels")
MAX_LABEL = 9_999


def from_folder(config: DataConfig) -> Dataset:
    """The pictures below `config.path`, in order of their names; sub-folders are classes or devices, by layout."""
    root = _path(config)
    if not root.is_dir():
        raise CfclError(f"data.path={str(root)!r} is not a folder of images: give one that is")
    groups = [root] if config.layout == "flat" else _sub_folders(root, config.layout)
    files = [_image_files(folder, config.layout) for folder in groups]
    images = _stack([path for group in files for path in group], config)
    owners = torch.repeat_interleave(torch.tensor([len(group) for group in files]))
    labels = owners if config.layout == "classes" else None
    devices = owners if config.layout == "devices" else None
    return divide(root.name or "folder", images, labels, devices, fraction=config.test_fraction)


def from_npz(config: DataConfig) -> Dataset:
    """The arrays in the file `config.path`."""
    path = _path(config)
    arrays = _read_npz(path)
    images = _as_images(path, "images", arrays["images"], config)
    labels = _numbers(path, "labels", arrays.get("labels"), len(images), MAX_LABEL)
    devices = _numbers(path, "devices", arrays.get("devices"), len(images), None)
    if "test_images" not in arrays:
        if "test_labels" in arrays:
            raise _bad(path, "has `test_labels` without `test_images`", "labels belong to images", "add `test_images`")
        return divide(path.stem, images, labels, devices, fraction=config.test_fraction)
    test = _as_images(path, "test_images", arrays["test_images"], config)
    if test.shape[1:] != images.shape[1:]:
        raise _bad(
            path,
            f"has `images` of {_form(images.shape)} and `test_images` of {_form(test.shape)}",
            "an encoder takes images of one shape",
            "set data.image_size or data.grey",
        )
    test_labels = _numbers(path, "test_labels", arrays.get("test_labels"), len(test), MAX_LABEL)
    return Dataset(path.stem, images, labels, test, test_labels, devices)


def _path(config: DataConfig) -> Path:
    assert config.path is not None  # checked by the config
    return config.path.expanduser()


def _bad(path: Path, found: str, rule: str, remedy: str) -> CfclError:
    return CfclError(f"{path} {found}, but {rule}: {remedy}")


def _form(shape: Sequence[int]) -> str:
    channels, height, width = shape[-3:]
    return f"{channels}×{height}×{width}"


def _sub_folders(root: Path, layout: str) -> list[Path]:
    found = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise CfclError(
            f"{root} has no sub-folder, but data.layout={layout!r} needs one for each of its {layout}: make them, or "
            "set data.layout='flat'"
        )
    _mention_rest(root, [path for path in root.iterdir() if not path.is_dir()])
    return found


def _image_files(folder: Path, layout: str) -> list[Path]:
    entries = sorted(folder.iterdir())
    found = [path for path in entries if path.is_file() and path.suffix.lower() in SUFFIXES]
    found = [path for path in found if not path.name.startswith(".")]
    if not found:
        below = any(path.is_dir() for path in entries)
        remedy = "set data.layout='classes' or 'devices'" if layout == "flat" and below else "put some there"
        raise CfclError(f"{folder} holds no image ({', '.join(sorted(SUFFIXES))}), but needs some: {remedy}")
    _mention_rest(folder, [path for path in entries if path not in set(found)])
    return found


def _mention_rest(folder: Path, entries: list[Path]) -> None:
    rest = sorted(path.name for path in entries if not path.name.startswith("."))
    if rest:
        more = f" and {len(rest) - 3} more" if len(rest) > 3 else ""
        note(f"left out of {folder}, for they are no images by their names: {', '.join(rest[:3])}{more}")


def _stack(paths: Sequence[Path], config: DataConfig) -> Tensor:
    first = _open(paths[0], config)
    images = np.empty((len(paths), *first.shape), dtype=np.uint8)
    for position, path in enumerate(paths):
        image = _open(path, config)
        if image.shape != first.shape:
            raise _bad(
                path,
                f"is {_form(image.shape)} and {paths[0].name} is {_form(first.shape)}",
                "all images must be of one size",
                "set data.image_size, such as 32",
            )
        images[position] = image
    return torch.from_numpy(images)


def _open(path: Path, config: DataConfig) -> Pixels:
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            image.load()
    except Exception as error:  # its decoders fail in many ways on damaged bytes
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CfclError(f"{path} is not a readable image ({reason}): replace or remove it") from None
    if image.mode.startswith(("I", "F")):
        raise _bad(path, f"has pixels of mode {image.mode}", "pixels are bytes", "save it with 8 bits a channel")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return _fitted(image.convert("L" if config.grey else "RGB"), config)


def _fitted(image: Image.Image, config: DataConfig) -> Pixels:
    """An image [channels, height, width], of the requested size."""
    if config.image_size is not None:
        # Pillow widens the filter when it shrinks an image: antialiased.
        image = image.resize((config.image_size, config.image_size), Image.Resampling.BILINEAR)
    pixels: Pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise _bad(path, "holds a single array", "arrays need names", "save it with numpy.savez(images=...)")
            arrays = {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise CfclError(f"data.path={str(path)!r} does not exist: give an .npz file") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CfclError(
            f"{path} is not an .npz file of plain arrays ({reason}): save it with numpy.savez, without objects"
        ) from None
    if "images" not in arrays:
        raise _bad(path, f"holds {', '.join(arrays) or 'nothing'}", "needs an array `images`", "add it")
    for key in arrays:
        if key not in KEYS:
            raise _bad(path, f"holds {key!r}", f"the names are {', '.join(KEYS)}", "rename or remove it")
    return arrays


def _as_images(path: Path, key: str, array: NDArray[Any], config: DataConfig) -> Tensor:
    """[points, channels, height, width], grey and resized as requested."""
    if array.dtype != np.uint8:
        raise _bad(path, f"holds `{key}` of type {array.dtype}", "pixels are uint8", "convert them to 0..255")
    if array.ndim == 3:
        array = array[..., None]
    first, last = (array.ndim == 4 and array.shape[axis] in (1, 3) for axis in (1, 3))
    if first == last or math.prod(array.shape) == 0:
        raise _bad(
            path,
            f"holds `{key}` of shape {array.shape}",
            "it must be [points, height, width], with 1 or 3 channels either last or second",
            "reshape it",
        )
    pixels = array.transpose(0, 2, 3, 1) if first else array
    if config.image_size is not None or (config.grey and pixels.shape[3] == 3):
        pictures = (Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image) for image in pixels)
        mode = "L" if config.grey or pixels.shape[3] == 1 else "RGB"
        return torch.from_numpy(np.stack([_fitted(picture.convert(mode), config) for picture in pictures]))
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def _numbers(path: Path, key: str, array: NDArray[Any] | None, num_points: int, most: int | None) -> Tensor | None:
    """Whole numbers from 0 on, one for each image."""
    if array is None:
        return None
    if array.dtype.kind not in "ui" or array.ndim != 1:
        raise _bad(
            path, f"holds `{key}` of type {array.dtype} and shape {array.shape}", "they are whole numbers in a row",
            "convert them",
        )  # fmt: skip
    if len(array) != num_points:
        raise _bad(path, f"holds {len(array)} `{key}` for {num_points} images", "each image has one", "make them match")
    if array.min() < 0 or (most is not None and array.max() > most):
        limit = "0 or more" if most is None else f"0 to {most}"
        worst = array.min() if array.min() < 0 else array.max()
        raise _bad(path, f"holds {worst} in `{key}`", f"they are numbered {limit}", "renumber them")
    return torch.from_numpy(array.astype(np.int64))
