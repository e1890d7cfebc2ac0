"""The server's average, as a fold: models are added one by one, in an order that decides the bits; and its adoption."""

import torch
from jaxtyping import Float
from torch import Tensor


def accumulate(total: Float[Tensor, " params"], model: Float[Tensor, " params"], weight: float) -> None:
    """Add one model to the weighted sum of Eq. (5), in place and in float64."""
    total.add_(model.double(), alpha=weight)


def autoscaler(own: Float[Tensor, " params"], average: Float[Tensor, " params"], *, share: float) -> float:
    """The scaler with which `mixture` gives the own model this `share`; 0 if both models agree."""
    distance = float((average - own).norm())
    return share / distance if distance > 0 else 0.0


def mixture(
    own: Float[Tensor, " params"], average: Float[Tensor, " params"], *, scaler: float
) -> Float[Tensor, " params"]:
    """FedEMA: `mu own + (1 - mu) average` with `mu = min(scaler |average - own|, 1)`."""
    share = min(scaler * float((average - own).norm()), 1.0)
    return torch.lerp(average, own, share)
