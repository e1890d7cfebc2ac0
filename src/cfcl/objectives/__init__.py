"""What devices minimise: which points meet in a batch, the terms of the loss, and how useful a candidate would be."""

from cfcl.config import Config
from cfcl.objectives.base import Layout, Objective, Terms
from cfcl.objectives.triplet import Triplet

__all__ = ["Layout", "Objective", "Terms", "Triplet", "build"]


def build(config: Config) -> Objective:
    """The objective of a run."""
    return Triplet(config.train, config.regulariser)
