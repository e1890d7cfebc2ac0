"""The paper's objective: the triplet loss, regularised by pulled embeddings."""

from typing import final

import torch
from torch import Tensor

from cfcl.config import RegulariserConfig, TrainConfig
from cfcl.core import batches, importance, losses
from cfcl.objectives.base import Layout, Objective, Seen, Terms, regularised


@final
class Triplet(Objective):
    """Anchor, positive and negative, Eq. (1), and the regularised form, Eq. (23)."""

    separable = True

    def __init__(self, train: TrainConfig, regulariser: RegulariserConfig) -> None:
        self._train = train
        self._regulariser = regulariser

    def compose(self, stream: torch.Generator, *, num_local: int, num_pulled: int) -> Layout:
        """Anchors with a negative each, drawn apart or from among the anchors."""
        train, size = self._train, self._train.batch_size
        if train.negatives == "drawn":
            uniforms = torch.rand((4, size), dtype=torch.float64, generator=stream)
            anchor, negative = batches.compose(
                uniforms,
                num_local=num_local,
                num_pulled=num_pulled,
                composition=train.composition,
                remote_fraction=train.remote_fraction,
            )
            return Layout(anchor, negative, None)
        anchor, row = batches.compose_within(
            torch.randperm(num_local, generator=stream)[:size],
            torch.rand(size, dtype=torch.float64, generator=stream),
            num_local=num_local,
            num_pulled=num_pulled,
            remote_fraction=train.remote_fraction,
        )
        rows = torch.arange(size)
        return Layout(anchor, anchor[:0], torch.stack([rows, size + rows, row]))

    def terms(self, seen: Seen, *, received: Tensor, margin: float, weight: float) -> Terms:
        """The hinge of every triplet, and that of its anchor against what was received."""
        anchor, positive, negative = seen.embeddings.chunk(3) if seen.roles is None else seen.embeddings[seen.roles]
        triplet = losses.triplet_loss(anchor, positive, negative, margin=self._train.margin)
        reduction = self._regulariser.reduction
        return regularised(triplet, anchor, positive, received, margin=margin, weight=weight, reduction=reduction)

    def usefulness(self, reserve: Tensor, positives: Tensor, candidates: Tensor) -> Tensor:
        """Mean triplet loss of a candidate as negative of every reserve point, Eq. (10)."""
        return importance.expected_loss(reserve, positives, candidates, margin=self._train.margin)
