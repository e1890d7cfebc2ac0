"""What a caller of the API hands over, checked before anything begins."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cfcl.config import Config
from cfcl.data.splits import MAX_LABEL, MIN_SPLIT, Dataset
from cfcl.errors import CfclError

NOTHING = type(None)
TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "config": ((Config,), "a config, such as cfcl.load_config('digits')"),
    "dataset": ((Dataset, NOTHING), "a dataset, such as cfcl.data.datasets.from_torch(yours)"),
    "module": ((nn.Module, NOTHING), "a torch.nn.Module that turns images into embeddings"),
    "out": ((str, Path, NOTHING), "the path of a folder"),
    "device": ((str,), "a word such as 'cpu'"),
    "workers": ((int, NOTHING), "a whole number"),
    "trace": ((str, Path, NOTHING), "the path of a file"),
}


def check(*, engine: Any, **arguments: Any) -> None:
    """Refuse arguments of a run that are not what their names say."""
    for name, value in arguments.items():
        types, wanted = TYPES[name]
        if not isinstance(value, types) or isinstance(value, bool):
            raise CfclError(f"{name} is of type {type(value).__name__}: give {wanted}")
        if isinstance(value, str | Path) and "\0" in str(value):
            raise CfclError(f"{name}={str(value)!r:.60} has a null character: give {wanted}")
    if engine not in ("sharded", "loop"):
        raise CfclError(f"engine={engine!r:.60} is not an option: choose 'sharded' or 'loop'")
    if (workers := arguments["workers"]) is not None and workers < 1:
        raise CfclError(f"workers={workers} is below 1, but somebody has to do the work: give a number from 1 on")
    if arguments["dataset"] is not None:
        check_dataset(arguments["dataset"])
    if (module := arguments["module"]) is not None and not any(True for _ in module.parameters()):
        raise CfclError(f"module is a {type(module).__name__} without parameters: give one that can be trained")


def check_dataset(dataset: Dataset) -> None:
    """Refuse a dataset put together by hand whose parts do not fit."""
    remedy = "make the dataset by cfcl.data.datasets.from_torch"
    for split in ("train", "test"):
        images = getattr(dataset, f"{split}_images")
        fits = _is(images, torch.uint8, 4) and len(images) >= MIN_SPLIT and images[0].numel() > 0
        if not fits or images.shape[1:] != dataset.train_images.shape[1:]:
            raise CfclError(
                f"dataset.{split}_images is not a tensor of uint8 [images, channels, height, width] of {MIN_SPLIT} "
                f"images or more, all of one shape: {remedy}"
            )
    for name, images in (
        ("train_labels", dataset.train_images),
        ("test_labels", dataset.test_images),
        ("train_devices", dataset.train_images),
    ):
        found = getattr(dataset, name)
        if found is not None and not (_is(found, torch.int64, 1) and len(found) == len(images) and _are_labels(found)):
            raise CfclError(
                f"dataset.{name} is neither None nor a tensor of {len(images)} whole numbers (int64) from 0 to "
                f"{MAX_LABEL}: {remedy}"
            )


def _are_labels(found: Tensor) -> bool:
    return bool(((found >= 0) & (found <= MAX_LABEL)).all())


def _is(value: Any, dtype: torch.dtype, dimensions: int) -> bool:
    return isinstance(value, Tensor) and value.dtype == dtype and value.ndim == dimensions
