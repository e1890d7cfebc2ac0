"""Encoders and images for tests."""

import numpy as np

from cfcl.config import ModelConfig
from cfcl.models import Encoder
from cfcl.use import TrainedEncoder

SHAPE = (1, 8, 8)


def encoder(shape: tuple[int, int, int] = SHAPE, **settings: object) -> TrainedEncoder:
    model = Encoder(ModelConfig.model_validate({"embedding_dim": 4, **settings}), shape, seed=3)
    return TrainedEncoder(model, model.initial)


def draw(size: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, *shape), dtype=np.uint8)
