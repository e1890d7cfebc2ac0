"""How alike images are to the ones that they were made from, and how well a score tells two groups apart."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

WINDOW = 7
"""Side of the squares over which structure is compared."""


def squared_error(made: Float[Tensor, "images ..."], images: Float[Tensor, "images ..."]) -> Float[Tensor, " images"]:
    """Mean squared difference of pixels, image by image."""
    return (made - images).flatten(1).square().mean(dim=1)


def ssim(made: Float[Tensor, "images c h w"], images: Float[Tensor, "images c h w"]) -> Float[Tensor, " images"]:
    """Structural similarity of pixels in 0..1, by means over squares of 7×7: 1 is the same, 0 has nothing in common."""
    side = min(WINDOW, *images.shape[2:])
    parts = [made, images, made * made, images * images, made * images]
    x, y, xx, yy, xy = (functional.avg_pool2d(part, side, stride=1) for part in parts)
    small, smaller = 0.01**2, 0.03**2
    luminance = (2 * x * y + small) / (x * x + y * y + small)
    structure = (2 * (xy - x * y) + smaller) / (xx - x * x + yy - y * y + smaller)
    return (luminance * structure).flatten(1).mean(dim=1)


def nearest(rows: Float[Tensor, "rows dim"], among: Float[Tensor, "others dim"]) -> Int[Tensor, " rows"]:
    """For each row the place of the one nearest to it, the first of several."""
    norms = among.square().sum(dim=1)
    return torch.cat([torch.addmm(norms, part, among.T, alpha=-2).argmin(dim=1) for part in torch.split(rows, 1024)])


def matched(made: Float[Tensor, "images ..."], images: Float[Tensor, "images ..."]) -> Bool[Tensor, " images"]:
    """Whether each made image is nearer to its own original than to any other of the `images`."""
    return nearest(made.flatten(1), images.flatten(1)) == torch.arange(len(images), device=images.device)


def auc(positive: Float[Tensor, " positive"], negative: Float[Tensor, " negative"]) -> float:
    """The probability that a positive has a higher score than a negative; a tie counts half."""
    ordered = negative.sort().values
    below = torch.searchsorted(ordered, positive)
    ties = torch.searchsorted(ordered, positive, right=True) - below
    return ((below.double() + 0.5 * ties.double()) / len(negative)).mean().item()
