"""The server's average, as a fold: models are added one by one, in an order that decides the bits; and its adoption."""

import torch
from jaxtyping import Float
from torch import Tensor


def accumulate(total: Float[Tensor, " params"], model: Float[Tensor, " params"], weight: float) -> None:
    """Add one model to the weighted sum of Eq. (5), in place and in float64."""
    total.add_(model.double(), alpha=weight)


def trimmed_mean(models: Float[Tensor, "models params"], share: float) -> Float[Tensor, " params"]:
    """For each parameter, the mean of its values without the `share` of smallest and that of largest, in float64.

    What is cut is rounded down, and the middle always stays: a share of one half gives the median, which is the mean of
    both middle values where the number of models is even.
    """
    number = len(models)
    # The share of a decimal fraction may be a bit below a whole number: 0.29 of 100 is 28.999999999999996.
    cut = min(int(round(share * number, 6)), (number - 1) // 2)
    total = torch.zeros(models.shape[1], dtype=torch.float64, device=models.device)
    for values in models.sort(dim=0).values[cut : number - cut]:
        accumulate(total, values, 1.0)  # one by one: a sum over rows takes another order for another number of columns
    return total / (number - 2 * cut)


def drawn_back(
    models: Float[Tensor, "models params"],
    centre: Float[Tensor, " params"],
    distances: Float[Tensor, " models"],
    *,
    most: float,
) -> Float[Tensor, "models params"]:
    """The models, but those whose distance from the centre is above `most` moved straight towards it, to that distance.

    Those within it are what they were, to the bit.
    """
    moved = torch.lerp(centre.double(), models.double(), (most / distances).unsqueeze(-1))
    return torch.where((distances > most).unsqueeze(-1), moved.to(models), models)


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
