"""Objectives over two augmented views of each point. Pulled datapoints are points of the batch like others."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import final

import torch
from torch import Tensor, nn

from cfcl.config import Config
from cfcl.core import batches, importance, losses
from cfcl.errors import CfclError
from cfcl.objectives.base import Layout, Objective, Seen, Terms, regularised

Loss = Callable[[Tensor, Tensor], Tensor]
"""One number from the embeddings of the first views and those of the second."""

WIDENING = 4
"""Times the length of an embedding: the hidden layer of BYOL's predictor."""


class TwoViews(Objective):
    """Distinct points in two views; what a candidate is worth is what it is to the triplet loss."""

    two_views = True

    def __init__(self, config: Config) -> None:
        self._config = config

    @final
    def compose(self, stream: torch.Generator, *, num_local: int, num_pulled: int) -> Layout:
        """Local points, and a share of pulled ones if there are any."""
        train = self._config.train
        anchors = batches.compose_views(
            torch.randperm(num_local, generator=stream)[: train.batch_size],
            torch.randperm(num_pulled, generator=stream),
            num_local=num_local,
            remote_fraction=train.remote_fraction,
        )
        return Layout(anchors, anchors[:0], None)

    @final
    def usefulness(self, reserve: Tensor, positives: Tensor, candidates: Tensor) -> Tensor:
        """Mean triplet loss of a candidate as negative of every reserve point, Eq. (10)."""
        return importance.expected_loss(reserve, positives, candidates, margin=self._config.train.margin)


@final
class Contrastive(TwoViews):
    """InfoNCE (NT-Xent) or its decoupled form. Pulled embeddings are further negatives of weight W_t."""

    def terms(self, seen: Seen, *, received: Tensor, margin: float, weight: float) -> Terms:
        """The loss of every view; what is received lengthens the sum of its denominator."""
        train = self._config.train
        loss = losses.nt_xent_loss if train.objective == "infonce" else losses.decoupled_loss
        positive, negatives = losses.view_similarities(seen.embeddings, temperature=train.temperature)
        own = loss(positive, negatives)
        if weight == 0:
            return Terms(own, torch.zeros_like(own), own)
        more = losses.received_similarities(
            seen.embeddings, received, temperature=train.temperature, weight=weight, margin=margin
        )
        total = loss(positive, torch.cat([negatives, more], dim=1))
        return Terms(own, (total - own) / weight, total)


class _Regularised(TwoViews):
    """A loss of its own, and Eq. (23) for pulled embeddings."""

    @abstractmethod
    def own(self, seen: Seen) -> Tensor:
        """The loss of every point, from the batch alone."""

    @final
    def terms(self, seen: Seen, *, received: Tensor, margin: float, weight: float) -> Terms:
        """The loss of every point, and the hinge of its first view against what was received."""
        reduction = self._config.regulariser.reduction
        first, second = seen.embeddings.chunk(2)
        return regularised(self.own(seen), first, second, received, margin=margin, weight=weight, reduction=reduction)


@final
class Vicreg(_Regularised):
    """Views alike, dimensions spread and uncorrelated."""

    def own(self, seen: Seen) -> Tensor:
        """The loss of every point."""
        train = self._config.train
        # A deviation of 1 in every dimension needs entries of about 1: those of a unit vector are smaller.
        scale = math.sqrt(seen.embeddings.shape[1]) if self._config.model.normalise else 1.0
        return losses.vicreg_loss(
            *(scale * seen.embeddings).chunk(2),
            invariance=train.invariance,
            variance=train.variance,
            covariance=train.covariance,
        )


@final
class Byol(_Regularised):
    """The model predicts what its own moving average makes of the other view."""

    def own(self, seen: Seen) -> Tensor:
        """The loss of every point, both ways round."""
        assert seen.predictions is not None
        assert seen.targets is not None
        first, second = seen.predictions.chunk(2)
        of_first, of_second = seen.targets.chunk(2)
        return losses.byol_loss(first, of_second) + losses.byol_loss(second, of_first)

    def tail(self, dim: int) -> nn.Module:
        """The predictor."""
        return nn.Sequential(nn.Linear(dim, WIDENING * dim), nn.ReLU(), nn.Linear(WIDENING * dim, dim))

    def extras(self, params: Tensor) -> Mapping[str, Tensor]:
        """The target, which starts as the model."""
        return {"target": params}

    def follow(self, extras: Mapping[str, Tensor], params: Tensor) -> Mapping[str, Tensor]:
        """The target, a step nearer to the model."""
        return {"target": torch.lerp(params, extras["target"], self._config.train.momentum)}

    def target(self, extras: Mapping[str, Tensor]) -> Tensor:
        """The target's parameters."""
        return extras["target"]


@final
class Given(_Regularised):
    """A loss that somebody handed over: every point has the same share of it."""

    def __init__(self, config: Config, loss: Loss) -> None:
        super().__init__(config)
        if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
            raise CfclError(
                f"the loss {type(loss).__name__} has parameters, but they would be neither trained nor averaged: give "
                "one without, or put them at the end of a module of your own"
            )
        self._loss = loss

    @property
    def name(self) -> str:
        """What its author calls it."""
        return getattr(self._loss, "__qualname__", type(self._loss).__name__)

    def own(self, seen: Seen) -> Tensor:
        """The loss, once for every point."""
        first, second = seen.embeddings.chunk(2)
        value = self._loss(first, second)
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise CfclError(f"the loss gave {shape}, but one number is needed: let it return a mean over the batch")
        return value.reshape(()).expand(len(first))
