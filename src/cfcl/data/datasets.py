"""The dataset that a config names."""

from typing import assert_never

import torch

from cfcl import reading
from cfcl.config import DataConfig
from cfcl.data.splits import Dataset as Dataset
from cfcl.data.splits import divide
from cfcl.data.wrapped import from_torch as from_torch


def load(config: DataConfig) -> Dataset:
    """The dataset that `config` names."""
    match config.dataset:
        case "digits":
            return _digits(config.test_fraction)
        case "fashion-mnist" | "usps" | "svhn":
            return _published(config)
        case "folder" | "npz":
            # Slow to import, and only images of your own need it.
            from cfcl.data import own

            return own.load(config)
        case _:
            assert_never(config.dataset)


def _digits(test_fraction: float) -> Dataset:
    # Slow to import, and only this dataset needs it.
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = torch.as_tensor(digits.images)  # 0..16
    images = (pixels * (255 / 16)).round().to(torch.uint8).unsqueeze(1)
    return divide("digits", images, torch.as_tensor(digits.target, dtype=torch.int64), fraction=test_fraction)


def _published(config: DataConfig) -> Dataset:
    from cfcl.data import catalogue

    data_dir = None if config.dir is None else reading.expanded(config.dir)
    published = catalogue.find_set(config.dataset)
    arrays = catalogue.load(published, data_dir)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Dataset(
        config.dataset,
        tensors["train_images"],
        tensors["train_labels"].long(),
        tensors["test_images"],
        tensors["test_labels"].long(),
        classes=published.classes,
    )
