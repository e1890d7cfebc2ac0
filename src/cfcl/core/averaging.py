"""The server's average."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def accumulate(total: Float[Tensor, " params"], model: Float[Tensor, " params"], weight: float) -> None:
    """Add one model to the weighted sum of Eq. (5), in place and in float64; the order of models decides the bits."""
    total.add_(model.double(), alpha=weight)


def weighted_average(models: Sequence[Float[Tensor, " params"]], weights: Sequence[float]) -> Float[Tensor, " params"]:
    """The models averaged by weight, Eq. (5), summed in the given order in float64."""
    total = torch.zeros_like(models[0], dtype=torch.float64)
    for model, weight in zip(models, weights, strict=True):
        accumulate(total, model, weight)
    return (total / sum(weights)).to(models[0].dtype)
