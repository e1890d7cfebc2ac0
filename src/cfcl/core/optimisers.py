"""The local update: from a gradient to new parameters."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square, and the number of updates in them."""

    first: Tensor
    second: Tensor
    updates: int


def sgd_update(
    params: Float[Tensor, " params"], gradient: Float[Tensor, " params"], *, learning_rate: float
) -> Float[Tensor, " params"]:
    """One mini-batch update, Eq. (4), from the gradient of the batch mean."""
    return params - learning_rate * gradient


def adam_update(
    params: Float[Tensor, " params"],
    gradient: Float[Tensor, " params"],
    moments: Moments,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Float[Tensor, " params"], Moments]:
    """One mini-batch update with Adam's preconditioner in Eq. (4), and the new moments."""
    count = moments.updates + 1
    first = torch.lerp(moments.first, gradient, 1 - betas[0])
    second = (moments.second * betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    scale = (second / (1 - betas[1] ** count)).sqrt_().add_(eps)
    return torch.addcdiv(params, first, scale, value=-learning_rate / (1 - betas[0] ** count)), Moments(
        first, second, count
    )
