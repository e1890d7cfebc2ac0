"""The server's average, as a fold: models are added one by one, in an order that decides the bits."""

from jaxtyping import Float
from torch import Tensor


def accumulate(total: Float[Tensor, " params"], model: Float[Tensor, " params"], weight: float) -> None:
    """Add one model to the weighted sum of Eq. (5), in place and in float64."""
    total.add_(model.double(), alpha=weight)
