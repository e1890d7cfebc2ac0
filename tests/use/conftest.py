from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfcl.config import ModelConfig
from cfcl.models import Encoder
from cfcl.use import TrainedEncoder

SHAPE = (1, 8, 8)


def encoder(shape: tuple[int, int, int] = SHAPE, **settings: object) -> TrainedEncoder:
    model = Encoder(ModelConfig.model_validate({"embedding_dim": 4, **settings}), shape, seed=3)
    return TrainedEncoder(model, model.initial)


def draw(size: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, *shape), dtype=np.uint8)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of seven pictures of several sizes and kinds, one of them in a sub-folder."""
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    sizes = [(8, 8), (20, 9), (30, 30), (8, 9), (12, 12), (7, 5)]
    for number, (height, width) in enumerate(sizes):
        pixels = draw(1, height, width, 3, seed=number)[0]
        Image.fromarray(pixels if number % 2 else pixels[..., 0]).save(folder / f"{number}.png")
    Image.fromarray(draw(1, 16, 16, 3, seed=9)[0]).save(folder / "more" / "6.png")
    return folder
