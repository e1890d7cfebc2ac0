"""What devices minimise: which points meet in a batch, the terms of the loss, and how useful a candidate would be."""

from cfcl.config import Config
from cfcl.objectives.base import Layout, Objective, Seen, Terms
from cfcl.objectives.triplet import Triplet
from cfcl.objectives.views import Byol, Contrastive, Given, Loss, Vicreg

__all__ = ["Layout", "Loss", "Objective", "Seen", "Terms", "Triplet", "build"]


def build(config: Config, loss: Loss | None = None) -> Objective:
    """The objective of a run; a `loss` takes the place of the one that `config.train.objective` names."""
    if loss is not None:
        return Given(config, loss)
    if config.train.objective == "triplet":
        return Triplet(config.train, config.regulariser)
    if config.train.objective == "vicreg":
        return Vicreg(config)
    return Byol(config) if config.train.objective == "byol" else Contrastive(config)
