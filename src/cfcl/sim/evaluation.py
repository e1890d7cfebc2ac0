"""How good the global encoder is: with labels by probe and neighbours, without them by its geometry."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import Config
from cfcl.core import losses, metrics
from cfcl.data.augment import augment
from cfcl.data.datasets import Dataset
from cfcl.models import Encoder, Weights, as_input

Row = dict[str, Any]


def judge(config: Config, encoder: Encoder, weights: Weights, dataset: Dataset) -> Row:
    """Accuracies (where there are labels) and label-free health of one model."""
    return {**accuracies(config, encoder, weights, dataset), **health(config, encoder, weights, dataset)}


def accuracies(config: Config, encoder: Encoder, weights: Weights, dataset: Dataset) -> Row:
    """Linear-probe and nearest-neighbour accuracy on the test split, trained on the training split."""
    if dataset.train_labels is None or dataset.test_labels is None:
        return {}
    settings = config.evaluation
    known = _positions(config, len(dataset.train_images), "probe", settings.max_train)
    train = encoder.embed(weights, dataset.train_images[known]).cpu()
    test = encoder.embed(weights, dataset.test_images).cpu()
    data = (train, dataset.train_labels[known], test, dataset.test_labels)
    if settings.probe == "lbfgs":
        probe = metrics.linear_probe(*data, num_classes=dataset.num_classes, ridge=settings.ridge)
    else:
        probe = metrics.linear_probe_sgd(*data, num_classes=dataset.num_classes)
    neighbours = metrics.knn_accuracy(*data, num_neighbours=settings.num_neighbours, num_classes=dataset.num_classes)
    return {"probe": probe, "knn": neighbours}


def health(config: Config, encoder: Encoder, weights: Weights, dataset: Dataset) -> Row:
    """Alignment, uniformity, effective rank and the mean triplet loss on a fixed sample of test images."""
    images = as_input(_sample(config, dataset), encoder.device)
    positives = augment(images, config.augment, rng.stream(config.seed, "health-augment"))
    embeddings, altered = encoder.embed(weights, images), encoder.embed(weights, positives)
    triplets = len(images) * (len(images) - 1)
    return {
        "alignment": metrics.alignment(embeddings, altered),
        "uniformity": metrics.uniformity(embeddings),
        "effective_rank": metrics.effective_rank(embeddings),
        "objective": float(losses.objective(embeddings, altered[None], margin=config.train.margin)) / triplets,
    }


def agreement(config: Config, encoder: Encoder, models: Sequence[Weights], dataset: Dataset) -> float:
    """Mean CKA between the local models of some devices, on the same sample."""
    size = min(len(models), config.evaluation.num_health_devices)
    chosen = torch.randperm(len(models), generator=rng.stream(config.seed, "health-devices"))[:size].tolist()
    images = _sample(config, dataset)
    return metrics.mean_pairwise_cka(torch.stack([encoder.embed(models[i], images) for i in sorted(chosen)]))


def label_map(config: Config, encoder: Encoder, weights: Weights, dataset: Dataset) -> Row:
    """Mean embedding distance between every pair of labels with two points or more, and how far they stand apart."""
    if dataset.test_labels is None:
        return {}
    chosen = _positions(config, len(dataset.test_images), "label-map", 2000)
    shown = (dataset.test_labels[chosen].bincount() >= 2).nonzero().squeeze(1)
    chosen = chosen[torch.isin(dataset.test_labels[chosen], shown)]
    if len(chosen) == 0:
        return {}
    embeddings = encoder.embed(weights, dataset.test_images[chosen]).cpu()
    ranks = torch.searchsorted(shown, dataset.test_labels[chosen])
    distances = metrics.label_distances(embeddings, ranks, len(shown))
    return {
        "labels": shown.tolist(),
        "label_distances": distances.tolist(),
        "separation": metrics.separation(distances),
    }


def _sample(config: Config, dataset: Dataset) -> Tensor:
    return dataset.test_images[_positions(config, len(dataset.test_images), "health", config.evaluation.num_health)]


def _positions(config: Config, size: int, name: str, most: int) -> Tensor:
    return torch.randperm(size, generator=rng.stream(config.seed, name))[:most].sort().values
