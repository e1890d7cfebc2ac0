from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfcl.config import ModelConfig
from cfcl.models import Encoder
from cfcl.runs import suites
from cfcl.runs.suites import Result
from cfcl.use import TrainedEncoder
from tests.conftest import small
from tests.use.made import draw


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an encoder of grey images of 8×8, not trained."""
    path = tmp_path_factory.mktemp("encoder") / "encoder.safetensors"
    built = Encoder(ModelConfig(embedding_dim=4), (1, 8, 8), seed=0)
    TrainedEncoder(built, built.initial).save(path)
    return path


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of noise in two sub-folders, the last of which is the first again."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for number in range(11):
        path = folder / ("cats" if number < 6 else "dogs & <b>") / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    (folder / "dogs & <b>" / "11.png").write_bytes((folder / "cats" / "00.png").read_bytes())
    return folder


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of seven pictures of several sizes and kinds, one of them in a sub-folder."""
    folder = tmp_path / "mixed"
    (folder / "more").mkdir(parents=True)
    sizes = [(8, 8), (20, 9), (30, 30), (8, 9), (12, 12), (7, 5)]
    for number, (height, width) in enumerate(sizes):
        pixels = draw(1, height, width, 3, seed=number)[0]
        Image.fromarray(pixels if number % 2 else pixels[..., 0]).save(folder / f"{number}.png")
    Image.fromarray(draw(1, 16, 16, 3, seed=9)[0]).save(folder / "more" / "6.png")
    return folder


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of a second, with its folder; for reading only."""
    return suites.simulate(small(), out=tmp_path_factory.mktemp("played"), workers=1, plotted=False)


@pytest.fixture(scope="session")
def folder(played: Result) -> Path:
    assert played.folder is not None
    return played.folder
