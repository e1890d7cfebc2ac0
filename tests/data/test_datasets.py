from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits

from cfcl.config import DataConfig
from cfcl.data import datasets
from cfcl.data.datasets import Dataset


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
