"""What makes a vector say less of the image behind it: a bound on its length, and Gaussian noise."""

import torch
from jaxtyping import Float
from torch import Tensor


def clipped(vectors: Float[Tensor, "vectors ..."], bound: float) -> Float[Tensor, "vectors ..."]:
    """Every vector, shortened to length `bound` if it is longer; what has several axes is one vector."""
    lengths = vectors.flatten(1).norm(dim=1).clamp_min(torch.finfo(vectors.dtype).tiny)
    factors: Tensor = (bound / lengths).clamp_max(1.0)
    shortened: Tensor = vectors * factors.view(-1, *(1,) * (vectors.ndim - 1))
    return shortened


def noised(
    vectors: Float[Tensor, "vectors ..."], deviation: float, generator: torch.Generator
) -> Float[Tensor, "vectors ..."]:
    """The vectors with Gaussian noise of this standard deviation on every entry."""
    draws = torch.randn(vectors.shape, generator=generator, dtype=vectors.dtype)
    return vectors + deviation * draws.to(vectors.device)
