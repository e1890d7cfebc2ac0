"""What a caller hands over is checked first."""

from typing import Any

import pytest
import torch
from torch import nn

import cfcl
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.models import Encoder, Weights
from tests.conftest import small

IMAGES, LABELS = torch.zeros(40, 1, 8, 8, dtype=torch.uint8), torch.arange(40) % 4


def dataset(**parts: Any) -> Dataset:
    whole = {"train_images": IMAGES, "train_labels": LABELS, "test_images": IMAGES, "test_labels": LABELS}
    return Dataset("made", **{**whole, **parts})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"config": "digits"}, r"config is of type str: give a config, such as cfcl\.load_config\('digits'\)"),
    ({"config": None}, "config is of type NoneType: give a config"),
    ({"dataset": [1, 2]}, "dataset is of type list: give a dataset, such as"),
    ({"dataset": torch.utils.data.TensorDataset(IMAGES)}, "dataset is of type TensorDataset: give a dataset"),
    ({"dataset": dataset(train_images=IMAGES.float())}, "train_images is not a tensor of uint8"),
    ({"dataset": dataset(train_images=IMAGES[0])}, "train_images is not a tensor of uint8"),
    ({"dataset": dataset(train_images=[IMAGES])}, "train_images is not a tensor of uint8"),
    ({"dataset": dataset(test_images=IMAGES[:, :, :4])}, "test_images is not a tensor .*, all of one shape"),
    ({"dataset": dataset(test_images=IMAGES[:1], test_labels=LABELS[:1])}, "test_images is not .* of 2 images or more"),
    ({"dataset": dataset(train_images=IMAGES[:, :, :0], test_images=IMAGES[:, :, :0])}, "train_images is not"),
    ({"dataset": dataset(train_labels=LABELS[:3])}, "train_labels is neither None nor a tensor of 40 whole numbers"),
    ({"dataset": dataset(train_labels=LABELS.float())}, "train_labels is neither None nor"),
    ({"dataset": dataset(test_labels=LABELS - 1)}, "test_labels is neither None nor"),
    ({"dataset": dataset(test_labels=LABELS + 10**12)}, "test_labels is neither .* from 0 to 9999"),
    ({"dataset": dataset(train_devices=LABELS.tolist())}, "train_devices is neither None nor"),
    ({"module": 3}, "module is of type int: give a torch.nn.Module"),
    ({"module": nn.Flatten()}, "module is a Flatten without parameters: give one that can be trained"),
    ({"engine": "fast"}, "engine='fast' is not an option: choose 'sharded' or 'loop'"),
    ({"workers": "2"}, "workers is of type str: give a whole number"),
    ({"workers": True}, "workers is of type bool: give a whole number"),
    ({"workers": 0}, "workers=0 is below 1"),
    ({"device": 3}, "device is of type int: give a word such as 'cpu'"),
    ({"device": "meta"}, "device 'meta' cannot be used: .*; choose cpu"),
    ({"device": "hpu"}, "device 'hpu' cannot be used: .*; choose cpu"),
    ({"out": 3}, "out is of type int: give the path of a folder"),
    ({"out": "a\0b"}, r"out='a\\x00b' has a null character: give the path of a folder"),
    ({"trace": 3}, "trace is of type int: give the path of a file"),
]


@pytest.mark.parametrize(("arguments", "complaint"), BAD, ids=[row[1] for row in BAD])
def test_what_is_not_what_its_name_says_is_refused(arguments: dict[str, Any], complaint: str) -> None:
    config = arguments.pop("config", small())
    with pytest.raises(CfclError, match=complaint) as refused:
        cfcl.run(config, **arguments)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_training_that_diverges_ends_in_one_line(mode: str) -> None:
    with pytest.raises(
        CfclError, match=r"the loss of device . is nan at step 1: training has diverged; lower train\.l"
    ):
        cfcl.run(small("train.learning_rate=1e12", f"exchange.mode={mode}"), workers=1)


def test_an_embedding_that_is_no_number_is_refused() -> None:
    encoder = Encoder(small().model, (1, 8, 8), seed=0)
    weights = Weights(encoder.initial.params * float("nan"), encoder.initial.buffers)
    with pytest.raises(
        CfclError, match=r"an embedding is not finite: training has diverged, .*; lower train\.learning_r"
    ):
        encoder.embed(weights, IMAGES)
