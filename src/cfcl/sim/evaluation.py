"""How good the global encoder is: with labels by probe and neighbours, without them by its geometry.

Which images are embedded is one question and what the embeddings say another, so that an engine may embed as it likes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from cfcl import rng
from cfcl.config import Config
from cfcl.core import losses, metrics
from cfcl.data.augment import augment
from cfcl.data.datasets import Dataset
from cfcl.models import as_input, portions
from cfcl.records import Final

Figures = dict[str, float]

MAP_POINTS = 2000
"""Test images behind the distances between labels."""
NUM_DRAWS = 5
"""How often few labels are drawn; an accuracy is the mean."""
FEW_RIDGE = 0.02
"""L2 penalty of the probe on few labels: on raw pixels and principal components more or less of it is worse."""


class Labelled(NamedTuple):
    """What a probe takes: embeddings of known training points and of the test split, with their labels."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def images(config: Config, dataset: Dataset) -> dict[str, Tensor]:
    """What `judge` needs embedded, by name."""
    sample = as_input(health_images(config, dataset), torch.device("cpu"))
    found = {"sample": sample, "altered": augment(sample, config.augment, rng.stream(config.seed, "health-augment"))}
    if dataset.train_labels is None or dataset.test_labels is None:
        return found
    return {**found, "train": dataset.train_images[known(config, dataset)], "test": dataset.test_images}


def judge(
    config: Config,
    dataset: Dataset,
    embeddings: Mapping[str, Tensor],
    features: Mapping[str, Tensor] | None = None,
    parts: Sequence[Tensor] = (),
) -> dict[str, Any]:
    """Accuracies (where there are labels) and label-free health of the model behind `embeddings`, as in its record.

    `parts` are the points of devices, for the worst of them.
    """
    found: dict[str, Any] = health(config, embeddings["sample"], embeddings["altered"])
    if "test" in embeddings:
        found |= accuracies(config, dataset, embeddings["train"], embeddings["test"])
        if config.evaluation.labels_per_class:
            data = labelled(config, dataset, embeddings["train"], embeddings["test"])
            hits = few_hits(config, dataset, standardised(data))
            found["few"] = _means(hits)
            if config.evaluation.worst:
                found |= worst(next(iter(hits.values())), dataset, parts)
    if features is not None:
        found |= {f"features_{name}": figure for name, figure in judge_features(config, dataset, features).items()}
    return found


def judge_features(config: Config, dataset: Dataset, features: Mapping[str, Tensor]) -> dict[str, Any]:
    """The same of features, as far as it makes sense for them."""
    sample, altered = (functional.normalize(features[name], dim=-1) for name in ("sample", "altered"))
    found: dict[str, Any] = _geometry(sample, altered)
    if "test" not in features:
        return found
    data = labelled(config, dataset, features["train"], features["test"])
    found["knn"] = _neighbours(config, dataset, data)
    data = standardised(data)
    hits = metrics.quick_hits(*data, num_classes=dataset.num_classes, ridge=config.evaluation.ridge)
    found["probe"] = hits.double().mean().item()
    if config.evaluation.labels_per_class:
        found["few"] = _means(few_hits(config, dataset, data))
    return found


def accuracies(config: Config, dataset: Dataset, train: Tensor, test: Tensor) -> Figures:
    """Linear-probe and nearest-neighbour accuracy on the test split, trained on the training split."""
    data = labelled(config, dataset, train, test)
    if config.evaluation.probe == "lbfgs":
        probe = metrics.linear_probe(*data, num_classes=dataset.num_classes, ridge=config.evaluation.ridge)
    else:
        probe = metrics.linear_probe_sgd(*data, num_classes=dataset.num_classes)
    return {"probe": probe, "knn": _neighbours(config, dataset, data)}


def few_hits(config: Config, dataset: Dataset, data: Labelled) -> dict[str, Tensor]:
    """Which test points a probe gets right in which draw, by the number of labels per class; `data` is standardised."""
    found = {}
    for number in config.evaluation.labels_per_class:
        chosen = few_labels(data.train_labels, number, seed=config.seed)
        found[str(number)] = metrics.few_label_hits(*data, chosen, num_classes=dataset.num_classes, ridge=FEW_RIDGE)
    return found


def worst(hits: Tensor, dataset: Dataset, parts: Sequence[Tensor]) -> Figures:
    """The least accuracy on a label, and that of a device, whose labels count by its points: as far as labels are
    tested.
    """
    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    number = dataset.num_classes
    tested = dataset.test_labels.bincount(minlength=number).double()
    right = hits.double().mean(dim=0)
    accuracies = torch.zeros(number, dtype=torch.float64).index_add(0, dataset.test_labels, right) / tested.clamp_min(1)
    found = {"worst_label": accuracies[tested > 0].min().item()}
    held = torch.stack([dataset.train_labels[part].bincount(minlength=number) for part in parts]).double()
    known = held[:, tested > 0].sum(dim=1)
    devices = (held @ accuracies / known)[known > 0]
    return found | ({"worst_device": devices.min().item()} if len(devices) else {})


def _means(hits: Mapping[str, Tensor]) -> Figures:
    return {number: found.double().mean().item() for number, found in hits.items()}


def standardised(data: Labelled) -> Labelled:
    """The same with mean 0 and deviation 1 over the training points, in single precision."""
    found = metrics.moments(data.train)
    train, test = (
        torch.cat([metrics.standardise(part, *found).float() for part in portions(some)])
        for some in (data.train, data.test)
    )
    return data._replace(train=train, test=test)


def few_labels(labels: Int[Tensor, " points"], number: int, *, seed: int) -> Int[Tensor, "draws few"]:
    """Places of `number` points of each label (all, where there are fewer), drawn several times.

    Draws of a seed are the same for whoever asks, and those of a smaller number are part of those of a larger one.
    """
    found = []
    for draw in range(NUM_DRAWS):
        order = torch.randperm(len(labels), generator=rng.stream(seed, "few-labels", draw))
        grouped = order[labels[order].argsort(stable=True)]
        sizes = labels.bincount()
        rank = torch.arange(len(labels)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        found.append(grouped[rank < number].sort().values)
    return torch.stack(found)


def health(config: Config, embeddings: Tensor, altered: Tensor) -> Figures:
    """Alignment, uniformity, effective rank and the mean triplet loss on a fixed sample of test images."""
    triplets = len(embeddings) * (len(embeddings) - 1)
    return {
        **_geometry(embeddings, altered),
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


def _geometry(embeddings: Tensor, altered: Tensor) -> Figures:
    return {
        "alignment": metrics.alignment(embeddings, altered),
        "uniformity": metrics.uniformity(embeddings),
        "effective_rank": metrics.effective_rank(embeddings),
    }


def labelled(config: Config, dataset: Dataset, train: Tensor, test: Tensor) -> Labelled:
    """Embeddings of the known training points and of the test split with their labels."""
    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    return Labelled(train.cpu(), dataset.train_labels[known(config, dataset)], test.cpu(), dataset.test_labels)


def _neighbours(config: Config, dataset: Dataset, data: Labelled) -> float:
    wanted = config.evaluation.num_neighbours
    return metrics.knn_accuracy(*data, num_neighbours=wanted, num_classes=dataset.num_classes)


def _mapped(config: Config, dataset: Dataset) -> Tensor:
    if dataset.test_labels is None:
        return torch.zeros(0, dtype=torch.int64)
    chosen = rng.places(len(dataset.test_images), MAP_POINTS, config.seed, "label-map")
    labels = dataset.test_labels[chosen]
    return chosen[torch.isin(labels, (labels.bincount() >= 2).nonzero().squeeze(1))]


def known(config: Config, dataset: Dataset) -> Tensor:
    """Places of the training points that probe and neighbours learn from."""
    return rng.places(len(dataset.train_images), config.evaluation.max_train, config.seed, "probe")
