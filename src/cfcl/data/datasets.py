"""Images, as bytes, split once and for all into training and test."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from cfcl.config import DataConfig


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split; labels serve the split among devices and the evaluation only."""

    name: str
    train_images: UInt8[Tensor, "train channels height width"]
    train_labels: Int[Tensor, " train"] | None
    test_images: UInt8[Tensor, "test channels height width"]
    test_labels: Int[Tensor, " test"] | None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """Number of labels, 0 to this minus 1; 0 without labels."""
        return 0 if self.train_labels is None else int(self.train_labels.max()) + 1


def load(config: DataConfig) -> Dataset:
    """The dataset that `config` names."""
    match config.dataset:
        case "digits":
            return _digits()


def _digits() -> Dataset:
    # Slow to import, and only this dataset needs it.
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = torch.as_tensor(digits.images)  # 0..16
    images = (pixels * (255 / 16)).round().to(torch.uint8).unsqueeze(1)
    labels = torch.as_tensor(digits.target, dtype=torch.int64)
    test = _every_fifth(labels)
    return Dataset("digits", images[~test], labels[~test], images[test], labels[test])


def _every_fifth(labels: Int[Tensor, " points"]) -> Bool[Tensor, " points"]:
    """A mask of every fifth point of each label: a fifth of the data, free of any random number."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    for label in torch.unique(labels):
        mask[(labels == label).nonzero().squeeze(1)[2::5]] = True
    return mask
