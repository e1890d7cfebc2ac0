"""What one would use instead of a trained encoder: pixels, principal components, an untrained network.

Judged as the encoder is: by the same probe, on the same images and the same draws of few labels.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from cfcl import rng
from cfcl.config import Config
from cfcl.core import metrics, resampling
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.models import Encoder, as_input, portions
from cfcl.records import Interval, Yardstick
from cfcl.sim import evaluation
from cfcl.sim.evaluation import Labelled
from cfcl.sim.world import single_thread

LABELS = (1, 10, 100)
"""Labels per class where the settings name none."""
WIDEST = 4096
"""More numbers per image than these are averaged to fewer."""
ROUNDS = 1000

View = Callable[[Tensor], Tensor]
"""What is made of uint8 images."""
Watch = Callable[[str], None]


def compute(
    config: Config,
    dataset: Dataset,
    *,
    more: Iterable[tuple[str, View]] = (),
    watch: Watch = lambda name: None,
) -> tuple[Yardstick, ...]:
    """Every yardstick for the data and the encoder of `config`, and `more`; `watch` hears of each before its turn."""
    if dataset.train_labels is None or dataset.test_labels is None:
        raise CfclError(
            f"{dataset.name} has no labels, and without them no accuracy can be measured: give labelled data"
        )
    size, draws = len(dataset.test_images), evaluation.NUM_DRAWS
    stream = rng.stream(config.seed, "bootstrap")
    with single_thread():
        resampled = resampling.resample(size, draws, rounds=ROUNDS, generator=stream)
        found = []
        for name, view in (*views(config, dataset), *more):
            watch(name)
            data, note = seen(config, dataset, view)
            right = hits(config, dataset, evaluation.standardised(data))
            accuracies = {labels: Interval(*resampling.bootstrap(some, *resampled)) for labels, some in right.items()}
            found.append(Yardstick(name, data.train.shape[1], accuracies, note or None))
    return tuple(found)


def views(config: Config, dataset: Dataset) -> Iterator[tuple[str, View]]:
    """What there is to compare with, by name."""
    yield "raw pixels", lambda images: as_input(images, torch.device("cpu"))
    project = _principal(config, dataset)
    yield f"{project.shape[1]} principal components", lambda images: images.flatten(1).double().div(255) @ project
    encoder = Encoder(config.model, dataset.image_shape, seed=config.seed)
    for stage in encoder.stages:
        yield f"untrained, {stage}", partial(encoder.activations, encoder.initial, stage=stage)


def _principal(config: Config, dataset: Dataset) -> Tensor:
    """[pixels, dim]: the strongest directions among the known training images, as many as an embedding has entries."""
    known = dataset.train_images[evaluation.known(config, dataset)].flatten(1).double() / 255
    centred = known - known.mean(dim=0)
    directions: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    return directions.flip(1)[:, : config.model.embedding_dim]


def seen(config: Config, dataset: Dataset, view: View) -> tuple[Labelled, str]:
    """The view of all images with their labels, and what had to be done to it."""
    images = dataset.train_images[evaluation.known(config, dataset)], dataset.test_images
    (train, note), (test, _) = (_narrowed(some, view) for some in images)
    return evaluation.labelled(config, dataset, train, test), note


def _narrowed(images: Tensor, view: View) -> tuple[Tensor, str]:
    """The view of images as flat vectors, portion by portion: of all at once there may be gigabytes."""
    parts = [_narrow(view(part)) for part in portions(images)]
    return torch.cat([flat for flat, _ in parts]), parts[0][1]


def _narrow(values: Tensor) -> tuple[Tensor, str]:
    """Flat vectors of at most `WIDEST` numbers, by averaging neighbours; and how."""
    width = values[0].numel()
    if width <= WIDEST:
        return values.flatten(1).float(), ""
    if values.ndim == 2 or len(values[0]) > WIDEST:
        return functional.adaptive_avg_pool1d(values.flatten(1).float(), WIDEST), f"averaged to {WIDEST:,} numbers"
    side = next(side for side in range(2, width) if math.prod(functional.avg_pool2d(values[:1], side).shape) <= WIDEST)
    return functional.avg_pool2d(values, side).flatten(1), f"averaged over {side}×{side}"


def hits(config: Config, dataset: Dataset, data: Labelled) -> dict[str, Tensor]:
    """By the number of labels per class, which test images a probe gets right in each draw of them."""
    classes, settings = dataset.num_classes, config.evaluation
    found = {"all": metrics.quick_hits(*data, num_classes=classes, ridge=settings.ridge)[None]}
    for number in settings.labels_per_class or LABELS:
        chosen = evaluation.few_labels(data.train_labels, number, seed=config.seed)
        found[str(number)] = metrics.few_label_hits(*data, chosen, num_classes=classes, ridge=evaluation.FEW_RIDGE)
    return found
