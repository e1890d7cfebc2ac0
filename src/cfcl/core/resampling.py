"""How certain an accuracy is: the same test again and again, with images and draws taken anew."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

CONFIDENCE = 0.95


def resample(
    num_images: int, num_draws: int, *, rounds: int, generator: torch.Generator
) -> tuple[Float[Tensor, "rounds images"], Int[Tensor, "rounds draws"]]:
    """How often each image occurs in each round, and which draws do: as many as there are, with replacement."""
    images = [torch.randint(num_images, (num_images,), generator=generator) for _ in range(rounds)]
    counts = torch.stack([some.bincount(minlength=num_images) for some in images]).float()
    return counts, torch.randint(num_draws, (rounds, num_draws), generator=generator)


def bootstrap(
    hits: Bool[Tensor, "draws images"], counts: Float[Tensor, "rounds images"], draws: Int[Tensor, "rounds drawn"]
) -> tuple[float, float, float]:
    """The share of hits, and the ends of its 95 % interval over rounds of resampled images and draws."""
    shares = counts @ hits.float().T / hits.shape[1]
    found = shares.gather(1, draws % hits.shape[0]).mean(dim=1).double()
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=torch.float64)
    low, high = found.quantile(ends).tolist()
    return hits.double().mean().item(), low, high
