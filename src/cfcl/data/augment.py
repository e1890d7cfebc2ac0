"""The random function that turns anchors into positives: one warp per image, then colour, blur and noise."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from cfcl.config import AugmentConfig

Images = Float[Tensor, "batch channels height width"]
Numbers = NDArray[np.float32]
Matrices = NDArray[np.float32]
"""[batch, 3, 3]: homographies from output to input; both axes run from -1 to 1, border to border."""

LOG_ASPECT = math.log(4 / 3)
MIN_SIGMA = 0.1
LUMA = (0.299, 0.587, 0.114)
"""How much red, green and blue count in grey (ITU-R BT.601); other channels count the same."""
CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float32)
# In columns the first three corners, weighted by the (1, -1, 1) that makes the fourth; -1/64 turns no shift into
# the identity.
FROM_BASIS = np.array([[-1, -1, 1], [-1, 1, 1], [1, -1, 1]], dtype=np.float32) / -64
NEXT, LAST = [1, 2, 0], [2, 0, 1]


class Draws(NamedTuple):
    """The random numbers behind one batch, image by image."""

    uniforms: Float[Tensor, "batch numbers"]
    """Uniform in -1..1."""
    noise: Images | None
    """Standard normal; `None` if noise is off."""


def augment(images: Images, config: AugmentConfig, generator: torch.Generator) -> Images:
    """`images`, with values in 0..1, each changed by its own draw; the very same images if every step is off."""
    return apply(images, config, draw(images.shape, config, generator))


def draw(shape: torch.Size, config: AugmentConfig, generator: torch.Generator) -> Draws:
    """What `apply` needs for images of `shape`; steps that are off draw nothing."""
    # One call for a whole batch, where the generator lives: every type of device gets the same numbers.
    num_uniforms = sum(_num_uniforms(config).values())
    uniforms = torch.empty(shape[0], num_uniforms, dtype=torch.float32, device=generator.device)
    uniforms.uniform_(-1, 1, generator=generator)
    if not config.noise:
        return Draws(uniforms, None)
    return Draws(uniforms, torch.randn(shape, generator=generator, dtype=torch.float32, device=generator.device))


def join(draws: Sequence[Draws]) -> Draws:
    """The draws of several batches, for their images one after another."""
    noise = [some.noise for some in draws if some.noise is not None]
    return Draws(torch.cat([some.uniforms for some in draws]), torch.cat(noise) if noise else None)


def apply(images: Images, config: AugmentConfig, draws: Draws) -> Images:
    """`images` changed by `draws`, each by its own."""
    counts = _num_uniforms(config)
    if not counts and draws.noise is None:
        return images
    parts = draws.uniforms.split_with_sizes(list(counts.values()), dim=1)
    uniforms: dict[str, Numbers] = {step: part.numpy(force=True) for step, part in zip(counts, parts, strict=True)}
    images = _recolour(_move(images, config, uniforms), config, uniforms)
    if "blur" in uniforms:
        sigmas = _between(min(MIN_SIGMA, config.blur), config.blur, uniforms["blur"][:, 0])
        images = _blur(images, torch.from_numpy(sigmas).to(images))
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
        "brightness": 1 * (config.brightness > 0),
        "contrast": 1 * (config.contrast > 0),
        "saturation": 1 * (config.saturation > 0),
        "greyscale": 1 * (config.greyscale > 0),
    }
    return {step: number for step, number in numbers.items() if number}


def _between(low: float, high: float, uniforms: Numbers) -> Numbers:
    """Numbers in -1..1 stretched to `low`..`high`."""
    return (high + low) / 2 + (high - low) / 2 * uniforms


def _move(images: Images, config: AugmentConfig, uniforms: dict[str, Numbers]) -> Images:
    """Crop, flip, rotation and perspective of `images`."""
    if not uniforms.keys() & {"crop", "rotation", "perspective"}:
        return _mirror(images, _flipped(uniforms, config)) if "flip" in uniforms else images
    matrices = torch.from_numpy(_homographies(uniforms, config, images.shape[3] / images.shape[2])).to(images)
    # A crop stays inside the image and must not darken its border; what a rotation or a perspective uncovers was
    # never seen, so it is black, as in torchvision.
    padding = "zeros" if config.rotation or config.perspective else "border"
    return _warp(images, matrices if config.perspective else matrices[:, :2], padding)


def _flipped(uniforms: dict[str, Numbers], config: AugmentConfig) -> NDArray[np.bool_]:
    return uniforms["flip"][:, 0] < 2 * config.flip - 1


def _mirror(images: Images, flipped: NDArray[np.bool_]) -> Images:
    """A flip alone moves whole pixels: no interpolation, exact to the bit."""
    chosen: Bool[Tensor, " batch"] = torch.from_numpy(flipped).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(3), images)


def _homographies(uniforms: dict[str, Numbers], config: AugmentConfig, aspect: float) -> Matrices:
    """Resized crop, then flip, then rotation, then perspective, each image by its own numbers."""
    # In numpy, whose operations on so few numbers take a third of the time of torch's.
    steps: list[Matrices] = []
    if "crop" in uniforms:
        steps.append(_crop(*_crop_boxes(uniforms["crop"], config.crop)))
    if "flip" in uniforms:
        steps.append(_flip(_flipped(uniforms, config)))
    if "rotation" in uniforms:
        steps.append(_rotation(uniforms["rotation"][:, 0] * math.radians(config.rotation), aspect))
    if "perspective" in uniforms:
        steps.append(_perspective(_between(0, config.perspective, uniforms["perspective"]).reshape(-1, 4, 2)))
    # The last step is the first that an output coordinate goes back through, so it stands on the right.
    return reduce(np.matmul, steps)


def _crop_boxes(uniforms: Numbers, smallest: float) -> tuple[Numbers, Numbers]:
    """Centres and sizes (x, y) of boxes inside the image: area uniform in `smallest`..1, log aspect uniform.

    Sizes are shares of the image, and so is the aspect: 3/4 to 4/3 of the image's own, as far as the box fits.
    """
    log_area = np.log(_between(smallest, 1, uniforms[:, 0]))
    # The longer side is exp((log_area + |log_aspect|) / 2), at most 1.
    log_aspect = uniforms[:, 1] * np.minimum(-log_area, LOG_ASPECT)
    sizes = np.exp(np.stack([log_area + log_aspect, log_area - log_aspect], axis=1) / 2)
    return (1 - sizes) * uniforms[:, 2:], sizes


def _crop(centres: Numbers, sizes: Numbers) -> Matrices:
    """The whole output shows the box around `centres`, `sizes` times the image."""
    matrices = _identities(len(sizes))
    matrices[:, [0, 1], [0, 1]] = sizes
    matrices[:, :2, 2] = centres
    return matrices


def _flip(flipped: NDArray[np.bool_]) -> Matrices:
    """Left and right change places where `flipped`."""
    matrices = _identities(len(flipped))
    matrices[flipped, 0, 0] = -1
    return matrices


def _rotation(angles: Numbers, aspect: float) -> Matrices:
    """Counter-clockwise turns by `angles`, in radians, of an image `aspect` times as wide as high."""
    matrices = _identities(len(angles))
    cos, sin = np.cos(angles), np.sin(angles)
    matrices[:, 0, 0] = matrices[:, 1, 1] = cos
    matrices[:, 0, 1] = -sin / aspect
    matrices[:, 1, 0] = sin * aspect
    return matrices


def _perspective(shifts: Numbers) -> Matrices:
    """The image's corners land `shifts` further in, clockwise from the top left; scaled so that w > 0 inside."""
    corners = np.ones((len(shifts), 4, 3), dtype=np.float32)
    corners[:, :, :2] = CORNERS * (1 - shifts)
    # A homography from four points: by Cramer, the fourth is `weights` in the basis of the first three, and
    # dividing by them is, up to scale, multiplying by the other two. No division, so nothing can blow up.
    after, before = corners[:, NEXT], corners[:, LAST]
    normals = after[:, :, NEXT] * before[:, :, LAST] - after[:, :, LAST] * before[:, :, NEXT]
    weights = normals @ corners[:, 3, :, None]
    to_basis = weights[:, NEXT] * weights[:, LAST] * normals
    return FROM_BASIS @ to_basis


def _identities(number: int) -> Matrices:
    return np.eye(3, dtype=np.float32)[None].repeat(number, axis=0)


def _warp(images: Images, matrices: Float[Tensor, "batch rows 3"], padding: str) -> Images:
    """Bilinear samples of `images` where `matrices` send the output's pixel centres; two rows are affine."""
    height, width = images.shape[2:]
    columns, rows, offsets = matrices.unsqueeze(-1).unbind(dim=2)
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


def _recolour(images: Images, config: AugmentConfig, uniforms: dict[str, Numbers]) -> Images:
    """Brightness, contrast, saturation and greyscale of `images`, in this order."""
    if "brightness" in uniforms:
        images = (images * _factors(config.brightness, uniforms["brightness"], images)).clamp(0, 1)
    if "contrast" in uniforms:
        mean = _grey(images).mean(dim=(2, 3), keepdim=True)
        images = _blend(mean, images, _factors(config.contrast, uniforms["contrast"], images))
    if "saturation" in uniforms:
        images = _blend(_grey(images), images, _factors(config.saturation, uniforms["saturation"], images))
    if "greyscale" in uniforms:
        chosen = torch.from_numpy(uniforms["greyscale"] < 2 * config.greyscale - 1).to(images.device)
        images = torch.where(chosen[:, :, None, None], _grey(images), images)
    return images


def _factors(strength: float, uniforms: Numbers, like: Tensor) -> Float[Tensor, "batch 1 1 1"]:
    """One factor per image, around 1."""
    return torch.from_numpy(_between(max(0.0, 1 - strength), 1 + strength, uniforms)).to(like)[:, :, None, None]


def _blend(base: Tensor, images: Images, factors: Float[Tensor, "batch 1 1 1"]) -> Images:
    """`images` moved away from `base`, or towards it for factors below 1."""
    return (base + factors * (images - base)).clamp(0, 1)


def _grey(images: Images) -> Float[Tensor, "batch 1 height width"]:
    channels = images.shape[1]
    weights = images.new_tensor(LUMA if channels == 3 else [1 / channels] * channels)
    return (images * weights[:, None, None]).sum(dim=1, keepdim=True)


def _blur(images: Images, sigmas: Float[Tensor, " batch"]) -> Images:
    """Gaussian means over the pixels that exist, each image with its own sigma."""
    height, width = images.shape[2:]
    across = _smoothers(width, sigmas)
    down = across if height == width else _smoothers(height, sigmas)
    return _smooth_rows(_smooth_rows(images, across).mT, down).mT


def _smooth_rows(images: Images, smoothers: Float[Tensor, "batch width width"]) -> Images:
    # All rows of an image in one product: broadcasting over channels would copy the matrices.
    return (images.flatten(1, 2) @ smoothers.mT).view(images.shape)


def _smoothers(size: int, sigmas: Float[Tensor, " batch"]) -> Float[Tensor, "batch size size"]:
    """Matrices whose row i holds the normalised Gaussian around pixel i."""
    # At some 32 pixels two matrix products are faster than a convolution with one kernel per image, and they
    # neither truncate the Gaussian nor invent pixels beyond the border.
    pixels = torch.arange(size, dtype=sigmas.dtype, device=sigmas.device)
    halved = -0.5 * (pixels[:, None] - pixels).square()
    # Below a thousandth of a pixel the matrix is the identity anyway, and 1 / sigma^2 could overflow.
    precisions = sigmas.clamp_min(1e-3).pow(-2)
    return (halved * precisions[:, None, None]).softmax(dim=-1)
