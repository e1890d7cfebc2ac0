"""Images per second of `cfcl embed` against a plain torch loop on the same module, side by side.

    python benchmarks/embed.py                     # 20,000 PNG files of 32×32 in colour, the network of preset svhn
    python benchmarks/embed.py --images 5000 --pairs 3

The plain loop is what one would write: open, resize, stack 256, embed, with torch's own threads on all cores. Both read
the same files and end with one array. Memory is that of a process of its own for 100,000 images.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from cfcl import config as configs
from cfcl.models import Encoder
from cfcl.use import TrainedEncoder, load_encoder, sources, tables

SHAPE = (3, 32, 32)
MANY = 100_000
BATCH = 256


def make(folder: Path, number: int) -> None:
    generator = np.random.default_rng(0)
    folder.mkdir()
    for place in range(number):
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / f"{place:06}.png")


def trained() -> TrainedEncoder:
    model = Encoder(configs.load("svhn", []).model, SHAPE, seed=0)
    return TrainedEncoder(model, model.initial)


def plain(folder: Path, encoder: TrainedEncoder) -> np.ndarray:
    """What one would write without cfcl's streaming."""
    found, module = [], encoder.module
    paths = sorted(folder.iterdir())
    with torch.inference_mode():
        for start in range(0, len(paths), BATCH):
            images = []
            for path in paths[start : start + BATCH]:
                with Image.open(path) as image:
                    images.append(np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)))
            found.append(module(torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)).numpy())
    return np.concatenate(found)


def ours(folder: Path, encoder: TrainedEncoder, out: Path) -> np.ndarray:
    tables.write(out, sources.find(folder), encoder, workers=os.cpu_count() or 1)
    return tables.read(out).values


def compare(folder: Path, number: int, pairs: int) -> None:
    encoder, out = trained(), folder.parent / "out.npz"
    ratios = []
    for pair in range(pairs + 1):
        begun = time.perf_counter()
        theirs = plain(folder, encoder)
        middle = time.perf_counter()
        found = ours(folder, encoder, out)
        end = time.perf_counter()
        np.testing.assert_allclose(found, theirs, atol=1e-5)
        if pair:  # the first warms caches
            ratios.append((middle - begun) / (end - middle))
            rates = number / (middle - begun), number / (end - middle)
            print(f"plain {rates[0]:,.0f} images/s, cfcl {rates[1]:,.0f} images/s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")


def memory(folder: Path) -> None:
    """The largest memory of a process that embeds very many images of an array."""
    path, file = folder / "many.npz", folder / "encoder.safetensors"
    np.savez(path, images=np.random.default_rng(0).integers(0, 256, (MANY, 32, 32, 3), dtype=np.uint8))
    trained().save(file)
    words = [sys.executable, __file__, "--many", str(path), str(file)]
    subprocess.run(words, check=True)


def many(path: Path, file: Path) -> None:
    begun = time.perf_counter()
    tables.write(path.with_name("many-out.npz"), sources.find(path), load_encoder(file), workers=os.cpu_count() or 1)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{MANY:,} images of an .npz file: {time.perf_counter() - begun:.0f} s, at most {largest:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--many", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.many:
        many(*options.many)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "images", options.images)
        compare(Path(folder) / "images", options.images, options.pairs)
        memory(Path(folder))


if __name__ == "__main__":
    main()
