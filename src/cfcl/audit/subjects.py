"""Whose images are attacked, and what the attacker has."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import AugmentConfig, DataConfig
from cfcl.data import datasets
from cfcl.data.augment import augment
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.use import intake

MOST = 2500
"""Images that the attacker learns from: what layers make of more takes gigabytes."""
SMALLEST = 4
"""Side of an image."""
FEWEST = 20
"""Images of the test split, below which nothing can be learned from half of them."""


@dataclass(frozen=True, eq=False)
class Subjects:
    """Images by what they are to the attack; pixels as uint8."""

    private: Tensor
    """Training images of devices, which might have been sent."""
    labels: Tensor | None
    public: Tensor
    """Half of the test split, or so many images of it as an attacker can use."""
    outside: Tensor
    """The other half, which nobody learned from."""
    known: Tensor
    """Other training images, from which the judge of reconstructions learns."""
    known_labels: Tensor | None


def draw(dataset: Dataset, parts: Sequence[Tensor], number: int) -> Subjects:
    """At most `number` images that devices hold, and all others by their part; the same ones for every run."""
    test = len(dataset.test_images)
    if test < FEWEST:
        raise CfclError(
            f"the test split of {dataset.name} has {test} images, and half of them teach an attacker nothing: audit a "
            f"run on data with {FEWEST} or more"
        )
    if min(dataset.image_shape[1:]) < SMALLEST:
        raise CfclError(
            f"images of {dataset.image_shape[1]}×{dataset.image_shape[2]} are below {SMALLEST}×{SMALLEST}, and nobody "
            "could recognise them: audit a run on larger ones"
        )
    held = torch.unique(torch.cat(list(parts)))
    order = held[torch.randperm(len(held), generator=rng.stream(0, "audit-private"))]
    chosen, rest = order[:number], order[number:] if len(order) > number + FEWEST else order
    halves = torch.randperm(test, generator=rng.stream(0, "audit-public"))
    labels = dataset.train_labels
    return Subjects(
        private=dataset.train_images[chosen],
        labels=None if labels is None else labels[chosen],
        public=dataset.test_images[halves[: test // 2][:MOST]],
        outside=dataset.test_images[halves[test // 2 :]],
        known=dataset.train_images[rest],
        known_labels=None if labels is None else labels[rest],
    )


def altered(images: Tensor, config: AugmentConfig, *names: str | int) -> Tensor:
    """Images as devices alter them in training, by the stream of this name; pixels stay in 0..1."""
    return augment(images, config, rng.stream(0, *names)).clamp(0.0, 1.0)  # sums of blur may be off by a last digit


def other(name: str, config: DataConfig, shape: tuple[int, int, int]) -> Tensor:
    """The training images of another set, resized and with the channels that the encoder takes."""
    if name == config.dataset:
        raise CfclError(
            f"--other {name} is the set that the devices hold, so the attacker would have the private images: choose "
            "another set, or none"
        )
    found = datasets.load(DataConfig.model_validate({"dataset": name, "dir": config.dir}))
    most = torch.randperm(len(found.train_images), generator=rng.stream(0, "audit-other"))[:MOST]
    return intake.batch(found.train_images[most], shape)
