"""Images, as bytes, split once and for all into training and test."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from cfcl import rng
from cfcl.errors import CfclError

MIN_TEST = 2
"""Fewest test images: two have a distance."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split; labels serve the split among devices and the evaluation only."""

    name: str
    train_images: UInt8[Tensor, "train channels height width"]
    train_labels: Int[Tensor, " train"] | None
    test_images: UInt8[Tensor, "test channels height width"]
    test_labels: Int[Tensor, " test"] | None
    train_devices: Int[Tensor, " train"] | None = None
    """The device that holds each training image, where the data say so."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """Number of labels, 0 to this minus 1; 0 without labels."""
        known = [labels for labels in (self.train_labels, self.test_labels) if labels is not None and len(labels)]
        return max((int(labels.max()) + 1 for labels in known), default=0)

    @cached_property
    def digest(self) -> str:
        """Sixty-four hex digits of all images and labels and of who holds them, whatever the set is called.

        A tenth of a second for seventy thousand images of 28×28; taken once, so it does not see later changes.
        """
        found = hashlib.sha256()
        train, test = (self.train_images, self.train_labels), (self.test_images, self.test_labels)
        for tensor in (*train, *test, self.train_devices):
            found.update(f"{None if tensor is None else (tensor.dtype, *tensor.shape)}\n".encode())
            if tensor is not None:
                found.update(tensor.cpu().contiguous().numpy().data)
        return found.hexdigest()


def divide(
    name: str,
    images: UInt8[Tensor, "points channels height width"],
    labels: Int[Tensor, " points"] | None,
    devices: Int[Tensor, " points"] | None = None,
    *,
    fraction: float,
) -> Dataset:
    """A dataset whose test split is a share of each label, or of each device where there are no labels."""
    groups = labels if labels is not None else devices
    test = hold_out(torch.zeros(len(images), dtype=torch.int64) if groups is None else groups, fraction)
    if int(test.sum()) < MIN_TEST:  # labels too small to give any: a share of the whole
        test = hold_out(torch.zeros(len(images), dtype=torch.int64), fraction)
    if int(test.sum()) < MIN_TEST or int((~test).sum()) < MIN_TEST:
        raise CfclError(
            f"data.test_fraction={fraction:g} of the {len(images)} images of {name} leaves fewer than {MIN_TEST} for "
            "training or test: change data.test_fraction or give more images"
        )

    def both(values: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        return (None, None) if values is None else (values[~test], values[test])

    train_labels, test_labels = both(labels)
    return Dataset(name, images[~test], train_labels, images[test], test_labels, both(devices)[0])


def with_validation(dataset: Dataset, fraction: float) -> Dataset:
    """`dataset` with a share of its training images in the place of the test split, which is left alone.

    The share is one of each label (of each device or of the whole, where there are no labels), and drawn by a stream
    that depends on no seed: all runs on a dataset keep the same images back.
    """
    size = len(dataset.train_images)
    groups = next(
        (some for some in (dataset.train_labels, dataset.train_devices) if some is not None),
        torch.zeros(size, dtype=torch.int64),
    )
    order = torch.randperm(size, generator=rng.stream(0, "validation"))
    kept = torch.zeros(size, dtype=torch.bool)
    kept[order] = hold_out(groups[order], fraction)
    if min(int(kept.sum()), int((~kept).sum())) < MIN_TEST:
        raise CfclError(
            f"data.validation={fraction:g} of the {size} training images of {dataset.name} leaves fewer than "
            f"{MIN_TEST} for validation or training: change data.validation, or give more images"
        )
    labels, devices = dataset.train_labels, dataset.train_devices
    return Dataset(
        dataset.name,
        dataset.train_images[~kept],
        None if labels is None else labels[~kept],
        dataset.train_images[kept],
        None if labels is None else labels[kept],
        None if devices is None else devices[~kept],
    )


def hold_out(groups: Int[Tensor, " points"], fraction: float) -> Bool[Tensor, " points"]:
    """A mask of `fraction` of each group, evenly spread over its points: free of any random number."""
    mask = torch.zeros_like(groups, dtype=torch.bool)
    for group in torch.unique(groups):
        members = (groups == group).nonzero().squeeze(1)
        # After n points of a group, n * fraction of them are out, rounded: of a fifth, the third of every five.
        out = (torch.arange(len(members) + 1, dtype=torch.float64) * fraction + 0.5).floor()
        mask[members[out[1:] > out[:-1]]] = True
    return mask
