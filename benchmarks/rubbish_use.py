"""What people hand to a trained encoder: images, lists of them, labels, and files of embeddings."""

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image
from spoiling import Files

from cfcl import config as configs
from cfcl.errors import CfclError
from cfcl.models import Encoder
from cfcl.use import TrainedEncoder, classify, labels, sources, tables
from cfcl.use.embedding import collect

NAMES = [f"{place}.png" for place in range(6)]


def encoder() -> TrainedEncoder:
    """A small one, not trained."""
    model = Encoder(configs.load("digits-study", ["model.embedding_dim=2"]).model, (1, 8, 8), seed=0)
    return TrainedEncoder(model, model.initial)


ENCODER = encoder()


def piles(rng: Random) -> Files:
    """A pile of images in several forms, with labels."""
    pixels = np.random.default_rng(rng.randint(0, 9)).integers(0, 256, (len(NAMES), 8, 8), dtype=np.uint8)
    found: dict[str, bytes] = {}
    for name, image in zip(NAMES, pixels, strict=True):
        Image.fromarray(image).save(content := io.BytesIO(), format=rng.choice(["PNG", "JPEG", "BMP", "GIF"]))
        found[name] = content.getvalue()
    save = rng.choice([np.savez, np.savez_compressed])
    save(content := io.BytesIO(), images=pixels)
    rows = [f"{name},{place % 2}\n" for place, name in enumerate(NAMES)]
    return {
        **found,
        "list.txt": "\n".join(NAMES).encode(),
        "images.npz": content.getvalue(),
        "labels.csv": "".join(["name,label\n", *rows]).encode(),
    }


def read_pile(folder: Path, rng: Random) -> None:
    """Embed it, and classify it with its labels."""
    refused: list[CfclError] = []
    for place in (folder, folder / "list.txt", folder / "images.npz"):
        try:
            found = collect(sources.find(place), ENCODER)
            assert np.isfinite(found.values).all()
            if place.suffix != ".npz":  # whose images have numbers for names
                given = labels.read(folder / "labels.csv")
                classify.classify(found, labels.match(given, found.names, [item.name for item in found.skipped]))
        except CfclError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def embeddings(rng: Random) -> Files:
    """Files of embeddings."""
    values = np.random.default_rng(rng.randint(0, 9)).normal(size=(3, 2)).astype(np.float32)
    np.savez(
        content := io.BytesIO(), embeddings=values, names=np.array(["a", "b", "c"]), encoder="ab", space="features"
    )
    rows = [f"{name},{one:.9g},{two:.9g}\n" for name, (one, two) in zip("abc", values, strict=True)]
    return {"some.npz": content.getvalue(), "some.csv": "".join(["name,e0,e1\n", *rows]).encode()}


def read_embeddings(folder: Path, rng: Random) -> None:
    """Both of them."""
    refused: Sequence[CfclError] = []
    for name in ("some.npz", "some.csv"):
        try:
            assert np.isfinite(tables.read(folder / name).values).all()
        except CfclError as error:
            refused = [*refused, error]
    if refused:
        raise refused[0]
