"""What distances under an encoder of digits say: labels of nearest images, and which altered copies are found.

python benchmarks/near.py runs/digits-cfcl-explicit-s0-1a2b3c
"""

import io
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from cfcl.use import load_encoder, overview, search
from cfcl.use.embedding import Space, Values

Pixels = NDArray[np.uint8]
COPIES = 300


def saved(image: Pixels, quality: int) -> Pixels:
    Image.fromarray(image).save(content := io.BytesIO(), format="JPEG", quality=quality)
    return np.asarray(Image.open(content))


def halved(image: Pixels) -> Pixels:
    small = Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS)
    return np.asarray(small.resize((64, 64), Image.Resampling.BICUBIC))


def noisy(image: Pixels) -> Pixels:
    noise = np.random.default_rng(0).normal(0, 5, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


CHANGES: dict[str, Callable[[Pixels], Pixels]] = {
    "saved as JPEG of quality 75": lambda image: saved(image, 75),
    "saved as JPEG of quality 30": lambda image: saved(image, 30),
    "shrunk to half and back": halved,
    "noise of 5 in 255": noisy,
    "10 % brighter": lambda image: np.clip(image * 1.1, 0, 255).astype(np.uint8),
    "20 % less contrast": lambda image: (image * 0.8 + 25).astype(np.uint8),
    "moved by 2 pixels in 64": lambda image: np.roll(image, 2, axis=1),
}


def same_label(values: Values, labels: NDArray[np.int64]) -> float:
    found = search.nearest(values, values, 1, itself=False).positions[:, 0]
    return float((labels[found] == labels).mean())


def main() -> None:
    encoder, digits = load_encoder(sys.argv[1]), load_digits()
    grey = (digits.images * 255 / 16).round().astype(np.uint8)
    images = np.stack([np.asarray(Image.fromarray(item).resize((64, 64), Image.Resampling.BICUBIC)) for item in grey])
    spaces: tuple[Space, ...] = ("embedding", "features")
    for space in spaces:
        apply = encoder.embed if space == "embedding" else encoder.features
        plain, values = apply(grey).numpy(), search.comparable(apply(images).numpy(), space)
        scaled = search.comparable(plain, space)
        shares = f"{same_label(scaled, digits.target):.1%}, unscaled {same_label(plain, digits.target):.1%}"
        print(f"{space}: nearest image of the same label {shares}")
        near = search.nearest(values, values, overview.NEIGHBOURS, itself=False)
        limit = overview.limit(near)
        print(f"  nearest pair of {len(values):,} different images: {near.distances.min() / limit:.1f} times the limit")
        for name, change in CHANGES.items():
            copies = search.comparable(apply(np.stack([change(image) for image in images[:COPIES]])).numpy(), space)
            away = np.linalg.norm(copies - values[:COPIES], axis=1)
            print(f"  {name}: {(away <= limit).mean():.0%} of {COPIES} copies found")


if __name__ == "__main__":
    main()
