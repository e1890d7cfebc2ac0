"""An encoder file may come from anybody: it loads, or it is refused in one line, and takes no more than its length."""

import hashlib
import os
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.models import Encoder, Weights
from cfcl.use import TrainedEncoder, load_encoder, trained
from tests import strategies_encoder as files

BLACK = torch.zeros(1, *files.SHAPE, dtype=torch.uint8)
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check_refusal(path: object, *parts: str, **options: object) -> None:
    with pytest.raises(CfclError) as caught:
        load_encoder(path, **options)  # type: ignore[arg-type]
    (line,) = str(caught.value).splitlines()
    assert len(line) < 800
    for part in parts:
        assert part in line


@pytest.mark.parametrize("seed", range(3))
def test_what_is_no_encoder_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    wrong = list(files.bad_encoders(Random(seed)))
    monkeypatch.setattr(trained, "Encoder", lambda *_, **__: pytest.fail("an encoder was going to be built"))
    for what, data in wrong:
        file = tmp_path / what
        file.write_bytes(data)
        check_refusal(file)


@given(seed=st.integers(0, 2**32))
@COMMON
def test_a_changed_file_loads_or_is_refused(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "encoder.safetensors"
    file.write_bytes(files.mutated(Random(seed)))
    try:
        found = load_encoder(file)
    except CfclError:
        check_refusal(file)
    else:
        assert found.embed(torch.zeros(1, *found.image_shape)).shape == (1, found.embedding_dim)


REFUSALS = [
    # conv 8*(9+1), linear 8*48 + 48*32 + 32*10^5, four bytes each
    (files.encoder_file({}, embedding_dim=10**5), "and its network takes 12,808,2"),
    (files.encoder_file(image_shape=[1, 2, 10**9]), "image_shape=[1, 2, 1000000000] is no channels, height and width"),
    (files.encoder_file(image_shape=[True, 2, 2]), "image_shape=[True, 2, 2] is no channels, height and width"),
    (files.encoder_file(image_shape=[1, 1, 1]), "images of 1×1 are too small"),
    (b"PK\x03\x04" + bytes(100), "it is no safetensors file"),
    (files.encoder_file(embedding_dim=0), "embedding_dim Input should be greater than or equal to 1"),
    (files.bare({"__metadata__": {"cfcl": 3}}), "it does not describe its network"),
]


@pytest.mark.parametrize(("data", "reason"), REFUSALS, ids=[reason for _, reason in REFUSALS])
def test_a_refusal_says_what_is_wrong(tmp_path: Path, data: bytes, reason: str) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(data)
    check_refusal(file, "x.safetensors' is not an encoder written by cfcl", reason, "give the encoder.safetensors of")


def test_a_network_is_looked_up_without_its_memory() -> None:
    config = ModelConfig(embedding_dim=10**5)
    assert all(tensor.is_meta for tensor in trained._wanted(config, (1, 2000, 2000), None).values())


def test_tensors_must_be_those_of_the_network(tmp_path: Path) -> None:
    file, weights = tmp_path / "x", files.tensors()
    for changed, reason in (
        (weights["1.bias"].view(2, 4), "tensor '1.bias' is torch.float32 of shape (2, 4), and its network has"),
        (weights["1.bias"].view(torch.int32), "tensor '1.bias' is torch.int32 of shape (8,), and its network has"),
        (torch.full((8,), float("nan")), "tensor '1.bias' holds numbers that are not finite"),
    ):
        file.write_bytes(files.encoder_file({**weights, "1.bias": changed}))
        check_refusal(file, reason)


def test_places_without_an_encoder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    odd = ("/dev/zero", "a\0b", "x" * 500, tmp_path / "\udcff")
    for place in (123, None, b"bytes", tmp_path, tmp_path / "pipe", *odd):
        check_refusal(place, "there is no encoder at", "give a run folder or its encoder.safetensors")


def test_devices_and_modules_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(files.encoder_file())
    for device in ("warp", "", None, 3, "meta"):
        check_refusal(tmp_path / "x", f"device {device!r} cannot be used", "choose cpu", device=device)
    check_refusal(tmp_path / "x", "module='small-cnn' is no torch.nn.Module", module="small-cnn")


@pytest.mark.parametrize("name", ["small-cnn", "usps-cnn", "small-alexnet", "slim-resnet18"])
def test_every_network_is_saved_and_loaded(tmp_path: Path, name: str) -> None:
    model = Encoder(ModelConfig.model_validate({"encoder": name}), (3, 8, 8), seed=0)
    before, state = TrainedEncoder(model, model.initial), torch.random.get_rng_state()
    before.save(tmp_path / "x")

    after = load_encoder(tmp_path / "x")

    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(after.embed(images), before.embed(images))
    assert after.embed(images[:0]).shape == (0, 16)
    assert torch.equal(torch.random.get_rng_state(), state)


def ramp() -> TrainedEncoder:
    model = Encoder(files.SMALL, files.SHAPE, seed=0)
    return TrainedEncoder(model, Weights(torch.arange(model.num_parameters) / 256, model.initial.buffers))


def test_a_file_is_as_it_always_was(tmp_path: Path) -> None:
    ramp().save(tmp_path / "x")
    digest = hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()
    assert digest == "5ce32ea134fc0c8281b7d73f10a21f6707f34b52b55d6d6a8bd85ebc4958effa"
    assert torch.equal(load_encoder(tmp_path / "x").weights.params, ramp().weights.params)


def test_saving_replaces_a_file_whole_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"old")
    for place, reason in ((tmp_path, "no regular file"), (file / "y", "Not a directory"), (3, "3"), ("a\0b", "name")):
        with pytest.raises(CfclError, match=rf"cannot write an encoder to .*{reason}.*choose another file"):
            ramp().save(place)  # type: ignore[arg-type]

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(CfclError, match="No space left on device"):
            ramp().save(file)
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"old", [file])
    ramp().save(file)
    assert load_encoder(file).embed(BLACK).shape == (1, 2)


ODD_IMAGES = [
    None,
    "text",
    b"bytes",
    object(),
    {},
    [["a"]],
    [[1, 2], [3]],
    [10**30],
    [],
    3,
    np.array([object()]),
    np.array(["a"]),
    np.zeros((1, *files.SHAPE))[::-1, :, ::-1],
    np.zeros((1, *files.SHAPE), complex),
    np.zeros((1, *files.SHAPE), bool),
    np.full((1, *files.SHAPE), np.nan),
    torch.full((1, *files.SHAPE), float("inf")),
    torch.zeros(1, *files.SHAPE).to_sparse(),
    torch.zeros(1, *files.SHAPE, device="meta"),
]


@pytest.mark.parametrize("images", ODD_IMAGES, ids=range(len(ODD_IMAGES)))
def test_what_is_no_batch_of_images_is_refused_in_one_line(images: object) -> None:
    with pytest.raises(
        CfclError, match=r"^[^\n]*(images of (shape|type)|is no batch of images|is not a readable image)[^\n]*$"
    ):
        ramp().embed(images)
