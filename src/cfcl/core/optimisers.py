"""The local update and the server's: from a gradient to new parameters."""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square, and the number of updates in them."""

    first: Tensor
    second: Tensor
    updates: int


def learning_rate(
    step: int, *, peak: float, num_steps: int, schedule: Literal["constant", "cosine"], warmup: int
) -> float:
    """The step size at `step`: a straight line up to `peak`, then the same, or half a cosine that ends in 0 at T."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    return peak * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup))) / 2


def decay_weights(
    params: Float[Tensor, " params"], *, learning_rate: float, weight_decay: float
) -> Float[Tensor, " params"]:
    """The parameters less a share of them: weight decay apart from the gradient, as in AdamW."""
    return params * (1 - learning_rate * weight_decay)


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


def momentum_update(
    params: Float[Tensor, " params"],
    gradient: Float[Tensor, " params"],
    moments: Moments,
    *,
    learning_rate: float,
    momentum: float,
) -> tuple[Float[Tensor, " params"], Moments]:
    """One update with momentum, and the new moments: the first is `momentum` times the old one plus the gradient."""
    first = momentum * moments.first + gradient
    return params - learning_rate * first, Moments(first, moments.second, moments.updates + 1)
