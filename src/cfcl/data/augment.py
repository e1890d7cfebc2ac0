"""The random function that turns anchors into positives: one warp per image, then blur, then noise."""

import math
from functools import reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from torch import Tensor

from cfcl.config import AugmentConfig

Images = Float[Tensor, "batch channels height width"]
Matrices = Float[Tensor, "batch 3 3"]
"""Homographies from output to input coordinates; both axes run from -1 to 1, border to border."""

LOG_ASPECT = math.log(4 / 3)
MIN_SIGMA = 0.1
CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
# Columns: the first three corners in homogeneous coordinates, times -1, 1, -1, over 64, so that no shift is the identity.
FROM_BASIS = ((1 / 64, 1 / 64, -1 / 64), (1 / 64, -1 / 64, -1 / 64), (-1 / 64, 1 / 64, -1 / 64))


class Draws(NamedTuple):
    """The random numbers behind one batch, image by image."""

    uniforms: Float[Tensor, "batch numbers"]
    noise: Images | None


def augment(images: Images, config: AugmentConfig, generator: torch.Generator) -> Images:
    """`images`, with values in 0..1, each changed by its own draw; the very same images if every step is off."""
    return apply(images, config, draw(images.shape, config, generator))


def draw(shape: torch.Size, config: AugmentConfig, generator: torch.Generator) -> Draws:
    """What `apply` needs for images of `shape`, drawn where `generator` lives; steps that are off draw nothing."""
    uniforms = torch.rand(
        shape[0], sum(_num_uniforms(config).values()), generator=generator, dtype=torch.float32, device=generator.device
    )
    if not config.noise:
        return Draws(uniforms, None)
    return Draws(uniforms, torch.randn(shape, generator=generator, dtype=torch.float32, device=generator.device))


def apply(images: Images, config: AugmentConfig, draws: Draws) -> Images:
    """`images` changed by `draws`; the draws of several batches may be concatenated, just as their images."""
    counts = _num_uniforms(config)
    uniforms = dict(zip(counts, draws.uniforms.split(list(counts.values()), dim=1), strict=True))
    if not uniforms and draws.noise is None:
        return images
    images = _move(images, config, uniforms)
    if "blur" in uniforms:
        images = _blur(images, _sigmas(uniforms["blur"], config.blur))
    if draws.noise is not None:
        images = images + config.noise * draws.noise.to(images)
    return images.clamp(0, 1)


def _num_uniforms(config: AugmentConfig) -> dict[str, int]:
    """Uniform numbers per image that each step takes; steps that are off are left out."""
    numbers = {
        "crop": 4 * (config.crop < 1),
        "flip": 1 * (config.flip > 0),
        "rotation": 1 * (config.rotation > 0),
        "perspective": 8 * (config.perspective > 0),
        "blur": 1 * (config.blur > 0),
    }
    return {step: number for step, number in numbers.items() if number}


def _move(images: Images, config: AugmentConfig, uniforms: dict[str, Tensor]) -> Images:
    """Crop, flip, rotation and perspective of `images`."""
    if not uniforms.keys() & {"crop", "rotation", "perspective"}:
        return _mirror(images, uniforms["flip"] < config.flip) if "flip" in uniforms else images
    matrices = _homographies(uniforms, config, images.shape[3] / images.shape[2])
    # A crop stays inside the image and must not darken its border; what a rotation or a perspective
    # uncovers was never seen, so it is black, as in torchvision.
    padding = "zeros" if config.rotation or config.perspective else "border"
    return _warp(images, matrices if config.perspective else matrices[:, :2], padding)


def _mirror(images: Images, mirrored: Bool[Tensor, "batch 1"]) -> Images:
    """A flip alone moves whole pixels: no interpolation, exact to the bit."""
    return torch.where(mirrored.to(images.device)[:, :, None, None], images.flip(3), images)


def _homographies(uniforms: dict[str, Tensor], config: AugmentConfig, aspect: float) -> Matrices:
    """Resized crop, then flip, then rotation, then perspective, each image by its own numbers."""
    steps: list[Tensor] = []
    if "crop" in uniforms:
        steps.append(_crop(*_crop_boxes(uniforms["crop"], config.crop)))
    if "flip" in uniforms:
        steps.append(_flip(uniforms["flip"].squeeze(1) < config.flip))
    if "rotation" in uniforms:
        share = 2 * uniforms["rotation"].squeeze(1) - 1
        steps.append(_rotation(share * math.radians(config.rotation), aspect))
    if "perspective" in uniforms:
        steps.append(_perspective(config.perspective * uniforms["perspective"].view(-1, 4, 2)))
    # The last step is the first that an output coordinate goes back through, so it stands on the right.
    return reduce(torch.matmul, steps)


def _crop_boxes(
    uniforms: Float[Tensor, "batch 4"], smallest: float
) -> tuple[Float[Tensor, "batch 2"], Float[Tensor, "batch 2"]]:
    """Centres and sizes (x, y) of boxes inside the image: area uniform in `smallest`..1, log aspect uniform.

    Sizes are shares of the image, and so is the aspect: 3/4 to 4/3 of the image's own, as far as the box fits.
    """
    log_area = (smallest + (1 - smallest) * uniforms[:, 0]).log()
    signed = 2 * uniforms - 1
    # The longer side is exp((log_area + |log_aspect|) / 2), at most 1.
    log_aspect = signed[:, 1] * (-log_area).clamp_max(LOG_ASPECT)
    sizes = (0.5 * torch.stack([log_area + log_aspect, log_area - log_aspect], dim=1)).exp()
    return (1 - sizes) * signed[:, 2:], sizes


def _crop(centres: Float[Tensor, "batch 2"], sizes: Float[Tensor, "batch 2"]) -> Matrices:
    """The whole output shows the box around `centres`, `sizes` times the image."""
    matrices = F.pad(sizes, (0, 1), value=1.0).diag_embed()
    matrices[:, :2, 2] = centres
    return matrices


def _flip(mirrored: Bool[Tensor, " batch"]) -> Matrices:
    """Left and right change places where `mirrored`."""
    return F.pad(1.0 - 2.0 * mirrored[:, None], (0, 2), value=1.0).diag_embed()


def _rotation(angles: Float[Tensor, " batch"], aspect: float) -> Matrices:
    """Counter-clockwise turns by `angles`, in radians, of an image `aspect` times as wide as high."""
    cos, sin = angles.cos(), angles.sin()
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    rows = [cos, -sin / aspect, zero, sin * aspect, cos, zero, zero, zero, one]
    return torch.stack(rows, dim=1).view(-1, 3, 3)


def _perspective(shifts: Float[Tensor, "batch 4 2"]) -> Matrices:
    """The image's corners land `shifts` further in, clockwise from the top left; scaled so that w > 0 inside."""
    corners = F.pad(shifts.new_tensor(CORNERS) * (1 - shifts), (0, 1), value=1.0)
    # Homographies from four points: in the basis of the first three, the fourth has coordinates `weights`
    # (Cramer), and dividing by them is multiplying by the other two. No division, so nothing to blow up.
    three = corners[:, :3]
    normals = torch.linalg.cross(three.roll(-1, dims=1), three.roll(-2, dims=1))
    weights = normals @ corners[:, 3, :, None]
    to_basis = weights.roll(-1, dims=1) * weights.roll(-2, dims=1) * normals
    return shifts.new_tensor(FROM_BASIS) @ to_basis


def _warp(images: Images, matrices: Float[Tensor, "batch rows 3"], padding: str) -> Images:
    """Bilinear samples of `images` where `matrices` send the output's pixel centres; two rows are affine."""
    height, width = images.shape[2:]
    columns, rows, offsets = matrices.to(images).unsqueeze(-1).unbind(dim=2)
    across = columns * _centres(width, images)
    down = rows * _centres(height, images) + offsets
    places = across[:, :, None, :] + down[:, :, :, None]
    if matrices.shape[1] == 3:
        # Where w <= 0 the output looks away from the image: a tiny w sends it far outside.
        places = places[:, :2] / places[:, 2:].clamp_min(1e-12)
    return F.grid_sample(images, places.permute(0, 2, 3, 1), padding_mode=padding, align_corners=False)


def _centres(size: int, like: Tensor) -> Float[Tensor, " size"]:
    """Pixel centres along one axis that runs from -1 to 1."""
    return torch.linspace(1 / size - 1, 1 - 1 / size, size, dtype=like.dtype, device=like.device)


def _sigmas(uniforms: Float[Tensor, "batch 1"], largest: float) -> Float[Tensor, " batch"]:
    """Blur widths in pixels, uniform up to `largest`."""
    low = min(MIN_SIGMA, largest)
    return low + (largest - low) * uniforms.squeeze(1)


def _blur(images: Images, sigmas: Float[Tensor, " batch"]) -> Images:
    """Gaussian means over the pixels that exist, each image with its own sigma."""
    height, width = images.shape[2:]
    down = _smoothers(height, sigmas.to(images))
    across = down if width == height else _smoothers(width, sigmas.to(images))
    return down @ images @ across.mT


def _smoothers(size: int, sigmas: Float[Tensor, " batch"]) -> Float[Tensor, "batch 1 size size"]:
    """Matrices whose row i holds the normalised Gaussian around pixel i."""
    # At some 32 pixels two matrix products are faster than a convolution with one kernel per image, and
    # they neither truncate the Gaussian nor invent pixels beyond the border.
    pixels = torch.arange(size, dtype=sigmas.dtype, device=sigmas.device)
    halved = -0.5 * (pixels[:, None] - pixels).square()
    # Below a thousandth of a pixel the matrix is the identity anyway, and 1 / sigma^2 could overflow.
    precisions = sigmas.clamp_min(1e-3).pow(-2)
    return (halved * precisions[:, None, None, None]).softmax(dim=-1)
