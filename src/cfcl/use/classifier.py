"""A few labels made into predictions for all images, with how far to trust them and what to label next."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from cfcl.core import coverage, metrics
from cfcl.sim.evaluation import FEW_RIDGE
from cfcl.use.labels import Labels

MOST_FOLDS = 5
LOOKED_AT = 5000
"""Images among which the next to label are sought; of more, so many evenly spread ones."""
TEMPERATURES = torch.logspace(-1.5, 1.5, 121, dtype=torch.float64)


@dataclass(frozen=True)
class Fitted:
    """What a few labels say of all images."""

    probabilities: Float[Tensor, "images classes"]
    """Calibrated."""
    accuracy: float
    """Cross-validated, on the labelled images."""
    interval: tuple[float, float]
    """Of 95 %, by the number of labelled images."""
    num_folds: int
    temperature: float
    """What logits are divided by: above 1 where the probe was too sure of itself."""


def fit(vectors: Float[Tensor, "images dim"], labels: Labels) -> Fitted:
    """A linear probe on the labelled images, whose confidence is calibrated on labels that it did not see.

    Vectors are standardised by all images, as only labels are few.
    """
    points = metrics.standardise(vectors, *metrics.moments(vectors)).float()
    places, numbers = torch.tensor(labels.positions), torch.tensor(labels.numbers)
    few, size = points[places], len(labels.classes)
    folds = _folds(numbers, min(MOST_FOLDS, *labels.counts()))
    unseen = _unseen(few, numbers, folds, size)
    temperature = _temperature(unseen, numbers)
    hits = int((unseen.argmax(dim=1) == numbers).sum())
    logits = _logits(points, _weights(few, numbers, size))
    return Fitted(
        probabilities=(logits.double() / temperature).softmax(dim=1),
        accuracy=hits / len(numbers),
        interval=wilson(hits, len(numbers)),
        num_folds=int(folds.max()) + 1,
        temperature=temperature,
    )


def next_to_label(vectors: Float[Tensor, "images dim"], labelled: tuple[int, ...], number: int) -> list[int]:
    """The images that, labelled next, cover most of what the labelled ones do not; directions count, not lengths."""
    others = sorted(set(range(len(vectors))) - set(labelled))
    step = max(1, math.ceil(len(others) / max(1, LOOKED_AT - len(labelled))))
    seen = [*labelled[:LOOKED_AT], *others[::step]]
    points = functional.normalize(vectors[seen].float(), dim=1)
    held = torch.arange(min(len(labelled), LOOKED_AT))
    return [seen[place] for place in coverage.cover(points, number, held).tolist()]


def wilson(hits: int, size: int, quantile: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval of a share."""
    share, square = hits / size, quantile**2 / size
    middle = (share + square / 2) / (1 + square)
    half = quantile / (1 + square) * math.sqrt(share * (1 - share) / size + square / (4 * size))
    return max(0.0, middle - half), min(1.0, middle + half)


def _folds(numbers: Int[Tensor, " labelled"], size: int) -> Int[Tensor, " labelled"]:
    """A fold for each labelled image; every class is spread evenly, and begins with another fold."""
    found = torch.zeros_like(numbers)
    for number in set(numbers.tolist()):
        members = (numbers == number).nonzero().squeeze(1)
        found[members] = (torch.arange(len(members)) + number) % size
    return found


def _unseen(few: Tensor, numbers: Tensor, folds: Tensor, size: int) -> Float[Tensor, "labelled classes"]:
    """Logits of the labelled images by probes that did not see their labels."""
    found = few.new_zeros(len(few), size)
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        found[out] = _logits(few[out], _weights(few[~out], numbers[~out], size))
    return found


def _weights(few: Tensor, numbers: Tensor, size: int) -> Float[Tensor, "classes dim+1"]:
    return metrics.few_label_weights(few, numbers, num_classes=size, ridge=FEW_RIDGE)


def _logits(points: Tensor, weights: Tensor) -> Float[Tensor, "images classes"]:
    return points @ weights[:, :-1].mT + weights[:, -1]


def _temperature(logits: Float[Tensor, "labelled classes"], numbers: Int[Tensor, " labelled"]) -> float:
    """The one of `TEMPERATURES` that makes the labels most likely."""
    losses = [functional.cross_entropy(logits.double() / value, numbers) for value in TEMPERATURES]
    return float(TEMPERATURES[torch.stack(losses).argmin()])
