import math

import pytest
import torch

from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.models import Encoder
from cfcl.records import Final
from cfcl.sim import evaluation
from tests.conftest import small


def judged(labels: list[int]) -> Final:
    """The label map of a fresh encoder on images of one grey each, dark for label 3 and bright for others."""
    known = torch.tensor(labels)
    shades = torch.where(known == 3, 10, 200).to(torch.uint8)
    images = shades.view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    config = Config()
    encoder = Encoder(config.model, (1, 8, 8), seed=0)
    dataset = Dataset("shades", images, known, images, known)
    embeddings = encoder.embed(encoder.initial, evaluation.map_images(config, dataset))
    return evaluation.label_map(config, dataset, embeddings, 7)


def test_the_label_map_leaves_out_labels_with_a_single_point() -> None:
    found = judged([3, 7, 3, 5, 7, 9, 3])
    assert (found.step, found.labels) == (7, (3, 7))  # 5 and 9 occur once
    assert found.label_distances is not None
    within, between = found.label_distances[0]
    assert within == 0.0  # equal images
    assert between > 0.0
    assert found.label_distances[1] == (between, 0.0)


def test_a_sample_of_single_points_has_no_label_map() -> None:
    assert judged([1, 2, 3]) == Final(7)


def test_health_by_hand() -> None:
    config = small("train.margin=2.0")
    embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    altered = torch.tensor([[0.0, 1.0], [1.0, 0.0], [3.0, 2.0]])

    found = evaluation.health(config, embeddings, altered)

    # squared shifts 1, 0, 4
    assert found["alignment"] == pytest.approx(5 / 3)
    # squared distances 1, 9, 4, each twice: log of the mean of e^-2, e^-18, e^-8
    assert found["uniformity"] == pytest.approx(math.log((math.exp(-2) + math.exp(-18) + math.exp(-8)) / 3))
    # on a line: one direction
    assert found["effective_rank"] == pytest.approx(1.0)
    # anchor 0: 1-1+2 = 2, 1-9+2 < 0; anchor 1: 0-1+2 = 1, 0-4+2 < 0; anchor 3: 4-9+2 < 0, 4-4+2 = 2; six triplets
    assert found["objective"] == pytest.approx(5 / 6)


def test_health_is_that_of_a_fixed_sample_of_test_images() -> None:
    images = torch.arange(40).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    dataset = Dataset("counted", images[:3], None, images, None)
    shown = evaluation.health_images(small("evaluation.num_health=10"), dataset)[:, 0, 0, 0].tolist()
    assert len(set(shown)) == 10
    assert shown == sorted(shown)
    assert shown != evaluation.health_images(small("evaluation.num_health=10", "seed=1"), dataset)[:, 0, 0, 0].tolist()
    needed = evaluation.images(small("evaluation.num_health=10"), dataset)
    assert needed.keys() == {"sample", "altered"}  # no accuracy without labels
    assert (needed["sample"][:, 0, 0, 0] * 255).round().int().tolist() == shown


def test_agreement_compares_the_drawn_devices() -> None:
    assert evaluation.compared_devices(small("evaluation.num_health_devices=4")) == [0, 1, 2, 3]
    drawn = [
        tuple(evaluation.compared_devices(small("evaluation.num_health_devices=2", f"seed={n}"))) for n in range(9)
    ]
    assert all(len(pair) == 2 and pair == tuple(sorted(pair)) for pair in drawn)
    assert len(set(drawn)) > 1
    one, other = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [0.0], [1.0]])
    # a line and its mirror image agree; the two curves have no linear part in common: (1 + 0 + 0) / 3
    assert evaluation.agreement([one, -one, other])["cka"] == pytest.approx(1 / 3)
