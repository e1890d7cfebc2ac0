"""How good the global encoder is: with labels by probe and neighbours, without them by its geometry.

Which images are embedded is one question and what the embeddings say another, so that an engine may embed as it likes.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import Config
from cfcl.core import losses, metrics
from cfcl.data.augment import augment
from cfcl.data.datasets import Dataset
from cfcl.models import as_input
from cfcl.records import Final

Figures = dict[str, float]

MAP_POINTS = 2000
"""Test images behind the distances between labels."""


def images(config: Config, dataset: Dataset) -> dict[str, Tensor]:
    """What `judge` needs embedded, by name."""
    sample = as_input(health_images(config, dataset), torch.device("cpu"))
    found = {"sample": sample, "altered": augment(sample, config.augment, rng.stream(config.seed, "health-augment"))}
    if dataset.train_labels is None or dataset.test_labels is None:
        return found
    return {**found, "train": dataset.train_images[_known(config, dataset)], "test": dataset.test_images}


def judge(config: Config, dataset: Dataset, embeddings: Mapping[str, Tensor]) -> Figures:
    """Accuracies (where there are labels) and label-free health of the model behind `embeddings`."""
    found = {} if "test" not in embeddings else accuracies(config, dataset, embeddings["train"], embeddings["test"])
    return {**found, **health(config, embeddings["sample"], embeddings["altered"])}


def accuracies(config: Config, dataset: Dataset, train: Tensor, test: Tensor) -> Figures:
    """Linear-probe and nearest-neighbour accuracy on the test split, trained on the training split."""
    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    settings = config.evaluation
    data = (train.cpu(), dataset.train_labels[_known(config, dataset)], test.cpu(), dataset.test_labels)
    if settings.probe == "lbfgs":
        probe = metrics.linear_probe(*data, num_classes=dataset.num_classes, ridge=settings.ridge)
    else:
        probe = metrics.linear_probe_sgd(*data, num_classes=dataset.num_classes)
    neighbours = metrics.knn_accuracy(*data, num_neighbours=settings.num_neighbours, num_classes=dataset.num_classes)
    return {"probe": probe, "knn": neighbours}


def health(config: Config, embeddings: Tensor, altered: Tensor) -> Figures:
    """Alignment, uniformity, effective rank and the mean triplet loss on a fixed sample of test images."""
    triplets = len(embeddings) * (len(embeddings) - 1)
    return {
        "alignment": metrics.alignment(embeddings, altered),
        "uniformity": metrics.uniformity(embeddings),
        "effective_rank": metrics.effective_rank(embeddings),
        "objective": float(losses.objective(embeddings, altered[None], margin=config.train.margin)) / triplets,
    }


def health_images(config: Config, dataset: Dataset) -> Tensor:
    """The sample of test images behind health and agreement."""
    most = config.evaluation.num_health
    return dataset.test_images[rng.places(len(dataset.test_images), most, config.seed, "health")]


def compared_devices(config: Config) -> list[int]:
    """The devices whose local models are compared, in order."""
    most = config.evaluation.num_health_devices
    found: list[int] = rng.places(config.partition.num_devices, most, config.seed, "health-devices").tolist()
    return found


def agreement(embeddings: Sequence[Tensor]) -> Figures:
    """Mean CKA between local models, from their embeddings of the same images."""
    return {"cka": metrics.mean_pairwise_cka(torch.stack(list(embeddings)))}


def map_images(config: Config, dataset: Dataset) -> Tensor:
    """The test images behind `label_map`; none without labels."""
    return dataset.test_images[_mapped(config, dataset)]


def label_map(config: Config, dataset: Dataset, embeddings: Tensor, step: int) -> Final:
    """Mean embedding distance between every pair of labels with two points or more, and how far they stand apart."""
    if len(embeddings) == 0:
        return Final(step)
    assert dataset.test_labels is not None
    labels = dataset.test_labels[_mapped(config, dataset)]
    shown = torch.unique(labels)
    distances = metrics.label_distances(embeddings.cpu(), torch.searchsorted(shown, labels), len(shown))
    rows = tuple(tuple(row) for row in distances.tolist())
    return Final(step, tuple(shown.tolist()), rows, metrics.separation(distances))


def _mapped(config: Config, dataset: Dataset) -> Tensor:
    if dataset.test_labels is None:
        return torch.zeros(0, dtype=torch.int64)
    chosen = rng.places(len(dataset.test_images), MAP_POINTS, config.seed, "label-map")
    labels = dataset.test_labels[chosen]
    return chosen[torch.isin(labels, (labels.bincount() >= 2).nonzero().squeeze(1))]


def _known(config: Config, dataset: Dataset) -> Tensor:
    return rng.places(len(dataset.train_images), config.evaluation.max_train, config.seed, "probe")
