"""Our fused augmentation against kornia's, on one thread: `pip install kornia` first.

python benchmarks/augment.py
"""

import sys
from functools import partial

import torch
from timing import alternate, repeat

from cfcl.config import AugmentConfig
from cfcl.data.augment import augment

CASES = {
    "32 grey 28×28, crop + flip + blur": ((32, 1, 28, 28), AugmentConfig(crop=0.5, flip=0.5, blur=1.0)),
    "32 colour 32×32, crop + flip + blur": ((32, 3, 32, 32), AugmentConfig(crop=0.5, flip=0.5, blur=1.0)),
    "32 grey 16×16, rotation + perspective": ((32, 1, 16, 16), AugmentConfig(rotation=20, perspective=0.3)),
    "32 grey 8×8, rotation + perspective": ((32, 1, 8, 8), AugmentConfig(rotation=20, perspective=0.3)),
}


def theirs(size: tuple[int, int], config: AugmentConfig) -> torch.nn.Module:
    import kornia.augmentation as kornia

    if config.crop < 1:
        return torch.nn.Sequential(
            kornia.RandomResizedCrop(size, scale=(config.crop, 1.0)),
            kornia.RandomHorizontalFlip(config.flip),
            kornia.RandomGaussianBlur((5, 5), (0.1, config.blur), p=1.0),
        )
    return torch.nn.Sequential(
        kornia.RandomRotation(config.rotation, p=1.0), kornia.RandomPerspective(config.perspective, p=1.0)
    )


def main() -> None:
    torch.set_num_threads(1)
    try:
        import kornia
    except ImportError:
        sys.exit("kornia is not installed: `pip install kornia`, then run this again")
    print(f"torch {torch.__version__}, kornia {kornia.__version__}, one thread, medians taken in turns")
    for name, (shape, config) in CASES.items():
        images = torch.rand(shape)
        ours = partial(augment, images, config, torch.Generator().manual_seed(0))
        module = theirs((shape[2], shape[3]), config)
        one, two = alternate(
            repeat(ours, 20),
            repeat(partial(module, images), 20),
        )
        print(f"{name}: ours {one / 20 * 1e3:.2f} ms, kornia {two / 20 * 1e3:.2f} ms, ratio {two / one:.1f}")


if __name__ == "__main__":
    main()
