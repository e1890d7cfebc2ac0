from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from cfcl.config import DataConfig
from cfcl.data import datasets
from cfcl.data.datasets import Dataset
from cfcl.data.splits import with_validation
from cfcl.errors import CfclError


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.load(DataConfig(dataset="digits"))


def test_digits_have_the_promised_form(digits: Dataset) -> None:
    assert digits.name == "digits"
    assert digits.image_shape == (1, 8, 8)
    assert digits.num_classes == 10
    assert digits.train_images.dtype == digits.test_images.dtype == torch.uint8
    assert digits.train_labels is not None
    assert digits.test_labels is not None
    assert digits.train_labels.dtype == digits.test_labels.dtype == torch.int64
    assert len(digits.train_images) == len(digits.train_labels) == 1438
    assert len(digits.test_images) == len(digits.test_labels) == 359


def test_digits_values_fill_the_byte_range(digits: Dataset) -> None:
    # v of 0..16 becomes round(v * 15.9375); 8 is 127.5, to even 128
    values = [0, 16, 32, 48, 64, 80, 96, 112, 128, 143, 159, 175, 191, 207, 223, 239, 255]
    assert torch.unique(digits.train_images).tolist() == values


def test_first_digit_is_the_zero_that_scikit_learn_shows_first(digits: Dataset) -> None:
    # Its second row reads 0 0 13 15 10 15 5 0; the first point of each label is a training point.
    assert digits.train_images[0, 0, 1].tolist() == [0, 0, 207, 239, 159, 239, 80, 0]
    assert digits.train_labels is not None
    assert digits.train_labels[0] == 0


def test_every_label_gives_a_fifth_to_the_test(digits: Dataset) -> None:
    assert digits.train_labels is not None
    assert digits.test_labels is not None
    # labels 0..9 have 178 182 177 183 181 182 181 179 174 180 points; a fifth, rounded, goes to the test
    assert digits.test_labels.bincount().tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    assert digits.train_labels.bincount().tolist() == [142, 146, 142, 146, 145, 146, 145, 143, 139, 144]


def test_the_split_keeps_every_digit_exactly_once(digits: Dataset) -> None:
    original = [tuple(row) for row in (load_digits().images.reshape(1797, 64) * 15.9375).round().astype(int).tolist()]
    kept = torch.cat([digits.train_images, digits.test_images]).flatten(1).tolist()
    assert sorted(tuple(row) for row in kept) == sorted(original)


def test_the_split_depends_on_no_seed(digits: Dataset) -> None:
    torch.manual_seed(123)
    again = datasets.load(DataConfig())

    assert torch.equal(again.train_images, digits.train_images)
    assert torch.equal(again.test_images, digits.test_images)


def test_a_dataset_without_labels_has_no_classes() -> None:
    images = torch.zeros(3, 2, 5, 4, dtype=torch.uint8)
    dataset = Dataset("plain", images, None, images, None)

    assert dataset.num_classes == 0
    assert dataset.image_shape == (2, 5, 4)


def test_the_digest_is_of_all_that_was_read_and_of_nothing_else(digits: Dataset) -> None:
    # found once; another one means that runs on these images are no longer recognised
    assert digits.digest == "b9ece655be67224d2f6f84d0994d4484ff30fd6a98efccbf492255a028df4a6e"
    images, labels = torch.arange(12, dtype=torch.uint8).view(3, 1, 2, 2), torch.tensor([0, 1, 1])
    mine = Dataset("mine", images, labels, images[:2], labels[:2])
    assert replace(mine, name="yours").digest == mine.digest
    assert replace(mine, train_images=images.transpose(2, 3).contiguous().transpose(2, 3)).digest == mine.digest
    others = [
        replace(mine, train_images=images.clone().index_fill_(3, torch.tensor([0]), 7)),
        replace(mine, train_images=images.view(3, 1, 1, 4)),
        replace(mine, train_labels=torch.tensor([0, 1, 2])),
        replace(mine, train_labels=None),
        replace(mine, test_images=images[1:]),
        replace(mine, test_labels=labels[1:]),
        replace(mine, train_devices=labels),
    ]
    assert len({mine.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_validation_images_are_a_share_of_each_label_of_the_training_split(digits: Dataset) -> None:
    found = with_validation(digits, 0.1)

    assert digits.train_labels is not None
    assert found.train_labels is not None
    assert found.test_labels is not None
    # a tenth of 142 146 142 146 145 146 145 143 139 144, rounded
    assert found.test_labels.bincount().tolist() == [14, 15, 14, 15, 15, 15, 15, 14, 14, 14]
    assert (found.train_labels.bincount() + found.test_labels.bincount()).tolist() == (
        digits.train_labels.bincount().tolist()
    )
    both = [tuple(row) for row in torch.cat([found.train_images, found.test_images]).flatten(1).tolist()]
    assert sorted(both) == sorted(tuple(row) for row in digits.train_images.flatten(1).tolist())
    assert found.digest == with_validation(digits, 0.1).digest != digits.digest


def counted(number: int, labels: Tensor | None = None, devices: Tensor | None = None) -> Dataset:
    images = torch.arange(number, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    nothing = torch.zeros(0, 1, 2, 2, dtype=torch.uint8)
    return Dataset("counted", images, labels, nothing, None, devices)


def test_validation_images_are_drawn_and_labels_and_devices_go_with_them() -> None:
    numbers = torch.arange(200)

    found = with_validation(counted(200, labels=numbers % 2, devices=numbers % 5), 0.25)

    kept, left = found.test_images[:, 0, 0, 0].long(), found.train_images[:, 0, 0, 0].long()
    assert len(kept) == 50
    assert len(set((kept[1:] - kept[:-1]).tolist())) > 4  # not every fourth
    assert torch.equal(found.test_labels, kept % 2)  # type: ignore[arg-type]
    assert torch.equal(found.train_labels, left % 2)  # type: ignore[arg-type]
    assert torch.equal(found.train_devices, left % 5)  # type: ignore[arg-type]


def test_without_labels_every_device_gives_its_share_to_validation() -> None:
    devices = torch.tensor([0] * 40 + [1] * 20)
    found = with_validation(counted(60, devices=devices), 0.1)
    assert found.train_devices is not None
    assert found.train_devices.bincount().tolist() == [36, 18]
    assert len(with_validation(counted(60), 0.1).test_images) == 6


def test_too_few_images_for_validation_are_refused() -> None:
    with pytest.raises(CfclError, match=r"data\.validation=0\.1 of the 4 training images of counted .* change"):
        with_validation(counted(4), 0.1)
