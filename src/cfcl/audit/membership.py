"""Whether an encoder gives away which images it learned from."""

import torch
from torch import Tensor
from torch.nn import functional

from cfcl import rng
from cfcl.audit.findings import Membership
from cfcl.audit.subjects import Subjects, altered
from cfcl.config import AugmentConfig
from cfcl.core import likeness
from cfcl.core.resampling import CONFIDENCE
from cfcl.models import Encoder, Weights, as_input
from cfcl.records import Interval
from cfcl.use import TrainedEncoder

VIEWS = 8
ROUNDS = 300
"""Of the bootstrap."""


def measure(trained: TrainedEncoder, encoder: Encoder, subjects: Subjects, config: AugmentConfig) -> Membership:
    """The AUC of how near altered views of an image are to each other: an encoder draws together what it learned from.

    The same under the weights with which training began says how the two groups differ by themselves.
    """
    number = min(len(subjects.private), len(subjects.outside))
    groups = (subjects.private[:number], subjects.outside[:number])
    views = [_views(images, config, place) for place, images in enumerate(groups)]
    learned = [_nearness(torch.stack([trained.embed(view) for view in some])) for some in views]
    initial = [_nearness(torch.stack([_embed(encoder, view) for view in some])) for some in views]
    draws = rng.stream(0, "audit-membership")
    places = [torch.randint(number, (2, number), generator=draws) for _ in range(ROUNDS)]
    pairs = torch.tensor(
        [[likeness.auc(group[0][some[0]], group[1][some[1]]) for group in (learned, initial)] for some in places],
        dtype=torch.float64,
    )
    first, second = likeness.auc(learned[0], learned[1]), likeness.auc(initial[0], initial[1])
    return Membership(
        _interval(first, pairs[:, 0]),
        _interval(second, pairs[:, 1]),
        _interval(first - second, pairs[:, 0] - pairs[:, 1]),
        number,
    )


def _embed(encoder: Encoder, images: Tensor) -> Tensor:
    initial: Weights = encoder.initial
    return encoder.embed(initial, images)


def _views(images: Tensor, config: AugmentConfig, group: int) -> list[Tensor]:
    plain = as_input(images, torch.device("cpu"))
    return [altered(plain, config, "audit-views", group, view) for view in range(VIEWS)]


def _nearness(embeddings: Tensor) -> Tensor:
    """[images]: the length of the mean of an image's views, each of length one; 1 if they coincide."""
    mean = functional.normalize(embeddings, dim=-1).mean(dim=0)
    return mean.square().sum(dim=-1).sqrt()


def _interval(mean: float, rounds: Tensor) -> Interval:
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=torch.float64)
    low, high = rounds.quantile(ends).tolist()
    return Interval(mean, low, high)
