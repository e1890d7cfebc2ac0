"""Images, as bytes, split once and for all into training and test."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from cfcl import rng
from cfcl.errors import CfclError

MIN_SPLIT = 2
"""Fewest images of a split: two have a distance."""
MAX_LABEL = 9_999
"""Labels are numbered; what counts them takes memory for the largest."""


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
    classes: tuple[str, ...] = ()
    """What the labels stand for, where they have names."""

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
    test = mask_for_test(len(images), labels, devices, fraction)
    if int(test.sum()) < MIN_SPLIT or int((~test).sum()) < MIN_SPLIT:
        raise CfclError(
            f"data.test_fraction={fraction:g} of the {len(images)} images of {name} leaves fewer than {MIN_SPLIT} for "
            "training or test: change data.test_fraction or give more images"
        )

    def both(values: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        return (None, None) if values is None else (values[~test], values[test])

    train_labels, test_labels = both(labels)
    return Dataset(name, images[~test], train_labels, images[test], test_labels, both(devices)[0])


def joined(
    name: str,
    train: tuple[Tensor, Tensor | None],
    test: tuple[Tensor, Tensor | None],
    devices: Int[Tensor, " train"] | None = None,
) -> Dataset:
    """A dataset of two splits, each images and labels, that were made elsewhere."""
    for what, (images, _) in (("training", train), ("test", test)):
        if len(images) < MIN_SPLIT:
            raise CfclError(
                f"{name} has {len(images)} {what} image, but a split needs at least {MIN_SPLIT}: give more, or leave "
                "out the test split, and a share of the training images takes its place"
            )
    if train[0].shape[1:] != test[0].shape[1:]:
        forms = ["×".join(map(str, images.shape[1:])) for images, _ in (train, test)]
        raise CfclError(
            f"{name}: training images are {forms[0]} and test images {forms[1]}, but an encoder takes images of one "
            "shape: resize them, or set data.image_size or data.grey for a file"
        )
    return Dataset(name, *train, *test, devices)


def mask_for_test(
    num_points: int,
    labels: Int[Tensor, " points"] | None,
    devices: Int[Tensor, " points"] | None,
    fraction: float,
) -> Bool[Tensor, " points"]:
    """Which points are for the test: a share of each label, else of each device, else of all."""
    whole = torch.zeros(num_points, dtype=torch.int64)
    mask = hold_out(next((groups for groups in (labels, devices) if groups is not None), whole), fraction)
    # Where groups are too small to give any: a share of the whole.
    return mask if int(mask.sum()) >= MIN_SPLIT else hold_out(whole, fraction)


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
    if min(int(kept.sum()), int((~kept).sum())) < MIN_SPLIT:
        raise CfclError(
            f"data.validation={fraction:g} of the {size} training images of {dataset.name} leaves fewer than "
            f"{MIN_SPLIT} for validation or training: change data.validation, or give more images"
        )
    labels, devices = dataset.train_labels, dataset.train_devices
    return Dataset(
        dataset.name,
        dataset.train_images[~kept],
        None if labels is None else labels[~kept],
        dataset.train_images[kept],
        None if labels is None else labels[kept],
        None if devices is None else devices[~kept],
        dataset.classes,
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
