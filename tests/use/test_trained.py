import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import cfcl
from cfcl.errors import CfclError
from cfcl.use import Origin, TrainedEncoder, load_encoder
from tests.conftest import small
from tests.use.made import SHAPE, draw, encoder

IMAGES = torch.from_numpy(draw(5, *SHAPE))
ORIGIN = Origin("0123456789ab", "cfcl-explicit", 7, 600, "digits", "ab" * 32)
NETWORKS: list[dict[str, object]] = [
    {},
    {"encoder": "conv", "standardise": True},
    {"encoder": "conv", "norm": "group", "normalise": False},
    {"encoder": "slim-resnet18"},
]


@pytest.mark.parametrize("settings", NETWORKS, ids=range(len(NETWORKS)))
def test_the_module_computes_what_the_encoder_does(settings: dict[str, object]) -> None:
    trained = encoder(SHAPE, **settings)
    for images in (IMAGES, IMAGES.float() / 255):
        assert torch.equal(trained.module(images), trained.embed(images))
        assert torch.equal(trained.module.features(images), trained.features(images))
    assert trained.features(IMAGES).shape == (5, trained.feature_dim)


def test_the_module_trains_further_and_comes_back() -> None:
    trained = encoder()
    before = trained.embed(IMAGES)
    module = trained.module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    module(IMAGES).square()[:, 0].sum().backward()
    optimiser.step()

    assert torch.equal(trained.embed(IMAGES), before)  # whose weights are its own
    after = trained.with_state(module.state_dict())
    assert torch.equal(after.embed(IMAGES), module.eval()(IMAGES))
    assert not torch.equal(after.embed(IMAGES), before)
    assert after.digest != trained.digest
    assert torch.equal(trained.with_state(module.network.state_dict()).embed(IMAGES), after.embed(IMAGES))


@pytest.mark.parametrize("tensors", [{}, {"x": torch.zeros(1)}, {"1.weight": torch.zeros(2)}, {"1.weight": 3}])
def test_weights_of_another_network_are_refused(tensors: dict[str, Any]) -> None:
    with pytest.raises(CfclError, match=r"^these tensors are not the weights of this encoder \([^\n]*module$"):
        encoder().with_state(tensors)


def test_equal_encoders_have_equal_digests() -> None:
    assert encoder().digest == encoder().digest
    assert encoder().digest != encoder(normalise=False).digest
    assert len(encoder().digest) == 64


def test_a_file_tells_classes_and_origin(tmp_path: Path) -> None:
    bare = encoder()
    trained = TrainedEncoder(bare._encoder, bare.weights, classes=("cat", "dög"), origin=ORIGIN)
    trained.save(tmp_path / "x.safetensors")
    found = load_encoder(tmp_path / "x.safetensors")
    assert (found.classes, found.origin, found.digest) == (("cat", "dög"), ORIGIN, trained.digest)
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert json.loads(file.metadata()["cfcl"])["resize"] == "bilinear"


def test_a_run_says_where_its_encoder_comes_from(tmp_path: Path) -> None:
    config = small("train.steps=2")
    result = cfcl.run(config, out=tmp_path, plotted=False)
    assert result.folder is not None
    origin = load_encoder(result.folder).origin
    assert origin == result.encoder.origin
    assert origin is not None
    assert (origin.config, origin.method, origin.step) == (config.digest, config.method, 2)
    assert (origin.dataset, len(origin.data)) == ("digits", 64)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"resize": "nearest"}, "resize='nearest' is not 'bilinear'"),
        ({"classes": "cat"}, "classes='cat' are no list of names"),
        ({"classes": ["a", 3]}, "no list of names"),
        ({"classes": ["a" * 1001]}, "at most 1,000 characters"),
        ({"origin": []}, r"origin=\[\] does not have the entries config, method, seed, step, dataset, data"),
        ({"origin": {**asdict(ORIGIN), "seed": "7"}}, "does not have the entries"),
        ({"origin": {**asdict(ORIGIN), "seed": True}}, "does not have the entries"),
        ({"origin": {**asdict(ORIGIN), "method": "x" * 1001}}, "does not have the entries"),
        ({"origin": {**asdict(ORIGIN), "more": 1}}, "does not have the entries"),
    ],
)
def test_a_description_that_cannot_be_is_refused(tmp_path: Path, more: dict[str, object], complaint: str) -> None:
    trained = encoder()
    trained.save(tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        told = json.loads(file.metadata()["cfcl"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
    save_file(tensors, tmp_path / "y.safetensors", metadata={"cfcl": json.dumps({**told, **more})})
    with pytest.raises(CfclError, match=complaint):
        load_encoder(tmp_path / "y.safetensors")
