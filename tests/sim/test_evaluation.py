import torch

from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.models import Encoder
from cfcl.sim import evaluation


def judged(labels: list[int]) -> evaluation.Row:
    """The label map of a fresh encoder on images of one grey each, dark for label 3 and bright for others."""
    known = torch.tensor(labels)
    shades = torch.where(known == 3, 10, 200).to(torch.uint8)
    images = shades.view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    config = Config()
    encoder = Encoder(config.model, (1, 8, 8), seed=0)
    dataset = Dataset("shades", images, known, images, known)
    embeddings = encoder.embed(encoder.initial, evaluation.map_images(config, dataset))
    return evaluation.label_map(config, dataset, embeddings)


def test_the_label_map_leaves_out_labels_with_a_single_point() -> None:
    found = judged([3, 7, 3, 5, 7, 9, 3])
    assert found["labels"] == [3, 7]  # 5 and 9 occur once
    within, between = found["label_distances"][0]
    assert within == 0.0  # equal images
    assert between > 0.0
    assert found["label_distances"][1] == [between, 0.0]


def test_a_sample_of_single_points_has_no_label_map() -> None:
    assert judged([1, 2, 3]) == {}
