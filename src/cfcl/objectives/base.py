"""What every objective offers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cfcl.core import losses


class Layout(NamedTuple):
    """Which points a batch is made of. Positions count a device's own points first, pulled ones after them."""

    anchors: Tensor
    """Positions of the points that are augmented."""
    others: Tensor
    """Positions of further points, which are not."""
    roles: Tensor | None
    """[roles, rows]: which images of the batch play which role; None: its images are the roles, one after another."""

    @property
    def used(self) -> Tensor:
        """Positions of the anchors and of what stands against them."""
        if self.roles is None:
            return torch.cat([self.anchors, self.others])
        return torch.cat([self.anchors, self.anchors[self.roles[-1]]])


class Seen(NamedTuple):
    """What an objective sees of a batch."""

    embeddings: Float[Tensor, "images dim"]
    roles: Tensor | None = None
    """As in the layout."""
    predictions: Float[Tensor, "images dim"] | None = None
    """What the objective's own module makes of the embeddings."""
    targets: Float[Tensor, "images dim"] | None = None
    """Embeddings under the objective's target, without gradient, if it has one."""


class Terms(NamedTuple):
    """The loss of every anchor."""

    own: Float[Tensor, " rows"]
    """From the images of the batch."""
    regulariser: Float[Tensor, " rows"]
    """From pulled embeddings, without its weight."""
    total: Float[Tensor, " rows"]
    """What the update minimises the mean of."""


class Objective(ABC):
    """A loss over the embeddings of a batch."""

    two_views: bool = False
    """Whether a batch holds two augmented views of each anchor; else the anchor itself and one view."""
    separable: bool = False
    """Whether an anchor with no loss has no gradient either, so that it can be left out."""

    @property
    def name(self) -> str:
        """What it is called."""
        return type(self).__name__

    @abstractmethod
    def compose(self, stream: torch.Generator, *, num_local: int, num_pulled: int) -> Layout:
        """The points of one batch, drawn from `stream`."""

    @abstractmethod
    def terms(self, seen: Seen, *, received: Float[Tensor, "received dim"], margin: float, weight: float) -> Terms:
        """The terms of the loss; `received` are pulled embeddings, with their dynamic margin and weight."""

    @abstractmethod
    def usefulness(
        self,
        reserve: Float[Tensor, "links reserve dim"],
        positives: Float[Tensor, "links reserve dim"],
        candidates: Float[Tensor, "links candidates dim"],
    ) -> Float[Tensor, "links candidates"]:
        """How much loss each candidate would cause among the receiver's reserve points, Eq. (10)."""

    def tail(self, dim: int) -> nn.Module:
        """A module for embeddings of length `dim` that is trained and averaged with the encoder, and no part of it."""
        return nn.Identity()

    def extras(self, params: Float[Tensor, " params"]) -> Mapping[str, Tensor]:
        """State besides the model that is averaged with it, before the first step."""
        return {}

    def follow(self, extras: Mapping[str, Tensor], params: Float[Tensor, " params"]) -> Mapping[str, Tensor]:
        """That state after an update that has made `params` of the parameters."""
        return extras

    def target(self, extras: Mapping[str, Tensor]) -> Float[Tensor, " params"] | None:
        """The parameters under which the batch is also embedded, if the objective asks for that."""
        return None


def regularised(
    own: Float[Tensor, " rows"],
    anchor: Float[Tensor, "rows dim"],
    positive: Float[Tensor, "rows dim"],
    received: Float[Tensor, "received dim"],
    *,
    margin: float,
    weight: float,
    reduction: Literal["mean", "sum"],
) -> Terms:
    """A loss with the hinge of every anchor against what was received, Eq. (23)."""
    if weight == 0:
        return Terms(own, torch.zeros_like(own), own)
    extra = losses.regulariser(anchor, positive, received, margin=margin, reduction=reduction)
    return Terms(own, extra, losses.regularised_triplet_loss(own, extra, weight=weight))
