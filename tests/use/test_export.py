"""An ONNX file computes what the encoder does, or there is no file."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

from cfcl import config as configs
from cfcl.cli import app
from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.models import Encoder, Weights
from cfcl.runs import suites
from cfcl.use import TrainedEncoder, export, graph, load_encoder
from cfcl.use.embedding import Space
from tests.conftest import check_complaint, small

onnxruntime = pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "embed_without_torch.py"
SHAPES = {"digits": (1, 8, 8), "usps": (1, 16, 16), "fashion-mnist": (1, 28, 28), "svhn": (3, 32, 32)}
PRESETS = [name for name in configs.presets() if name.removesuffix("-study").removesuffix("-paper") in SHAPES]
SPACES: tuple[Space, ...] = ("embedding", "features")


def ready(
    model: dict[str, Any] | ModelConfig, shape: tuple[int, int, int], module: nn.Module | None = None
) -> TrainedEncoder:
    """An encoder after a few steps of training, which move its running statistics too, that tells images apart."""
    config = ModelConfig.model_validate(model) if isinstance(model, dict) else model
    encoder = Encoder(config, shape, seed=0, module=module)
    draws, weights = torch.Generator().manual_seed(1), encoder.initial
    for _ in range(3):
        gradient, buffers, _ = encoder.gradient(weights, torch.rand(6, *shape, generator=draws), spread_out)
        weights = Weights(weights.params - 0.05 * gradient / (1e-6 + gradient.norm()), buffers)
    found = TrainedEncoder(encoder, weights)
    check_alive(found)
    return found


def spread_out(embeddings: torch.Tensor) -> tuple[torch.Tensor, None]:
    return -embeddings.std(dim=0).sum(), None


def check_alive(encoder: TrainedEncoder) -> None:
    """Outputs that are the same for all images would agree whatever a graph computes."""
    images = pixels(7, encoder.image_shape)
    for found in (encoder.embed(images), encoder.features(images)):
        assert float(found.std(dim=0).mean()) > 1e-3


def outputs(content: bytes, images: torch.Tensor) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"images": images.numpy()})
    assert found.dtype == np.float32
    return np.asarray(found)


def check_agreement(encoder: TrainedEncoder, images: torch.Tensor) -> None:
    """ONNX, module and `embed` to 1e-5; of features, which have any length, as a share of the largest."""
    for space in SPACES:
        wanted = encoder.embed(images) if space == "embedding" else encoder.features(images)
        with torch.inference_mode():
            module = encoder.module(images) if space == "embedding" else encoder.module.features(images)
        scale = max(1.0, float(wanted.abs().max()))
        found = outputs(export.to_bytes(encoder, space=space), images)
        np.testing.assert_allclose(found / scale, wanted / scale, rtol=0, atol=1e-5)
        np.testing.assert_allclose(module / scale, wanted / scale, rtol=0, atol=1e-5)


def pixels(number: int, shape: tuple[int, int, int]) -> torch.Tensor:
    return torch.randint(0, 256, (number, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_encoder_of_every_preset_is_exported(preset: str) -> None:
    shape = SHAPES[preset.removesuffix("-study").removesuffix("-paper")]
    encoder = ready(configs.load(preset).model, shape)
    flat = torch.tensor([0, 255, 128], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, *shape)
    check_agreement(encoder, torch.cat([pixels(7, shape), flat]))


def test_all_four_sets_are_among_the_presets() -> None:
    assert {*SHAPES, *(f"{name}-study" for name in SHAPES)} <= set(PRESETS)


@pytest.mark.parametrize("name", ["small-cnn", "usps-cnn", "small-alexnet", "slim-resnet18", "conv"])
def test_every_kind_of_encoder_is_exported(name: str, tmp_path: Path) -> None:
    for norm, standardise, normalise in product(("batch", "group"), (False, True), (False, True)):
        chosen = {"encoder": name, "norm": norm, "standardise": standardise, "normalise": normalise}
        encoder = ready(chosen, (3, 8, 12))
        for space in SPACES:
            export.write(encoder, tmp_path / "x.onnx", space=space)
            export.check(tmp_path / "x.onnx", encoder)


@pytest.mark.parametrize(("side", "grid"), [(8, 2), (28, 2), (30, 3)])
def test_averages_over_windows_that_overlap(side: int, grid: int) -> None:
    encoder = ready({"encoder": "conv", "grid": grid}, (1, side, side + 3))
    check_agreement(encoder, pixels(2, (1, side, side + 3)))


def test_windows_by_hand() -> None:
    # of 7 in 2: entries 0 to 3 and 3 to 6, the one in the middle counts in both
    quarter = 0.25
    assert graph._windows(7, 2).tolist() == [[quarter] * 4 + [0.0] * 3, [0.0] * 3 + [quarter] * 4]


def by_hand(*, standardise: bool, normalise: bool) -> TrainedEncoder:
    linear = nn.Linear(4, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 5.0, 10.0]]))
        linear.bias.copy_(torch.tensor([0.5, 0.0]))
    config = ModelConfig(standardise=standardise, normalise=normalise)
    encoder = Encoder(config, (1, 2, 2), seed=0, module=nn.Sequential(nn.Flatten(), linear))
    return TrainedEncoder(encoder, encoder.initial)


def test_outputs_by_hand() -> None:
    image = torch.tensor([[[[0, 255], [51, 102]]]], dtype=torch.uint8)
    # as shares 0, 1, 0.2, 0.4: 2 * 1 + 0.5 = 2.5 and 5 * 0.2 + 10 * 0.4 = 5
    found = outputs(export.to_bytes(by_hand(standardise=False, normalise=False)), image)
    np.testing.assert_allclose(found, [[2.5, 5.0]], rtol=1e-6)
    # divided by sqrt(2.5^2 + 5^2) = 5.590170
    found = outputs(export.to_bytes(by_hand(standardise=False, normalise=True)), image)
    np.testing.assert_allclose(found, [[0.4472136, 0.8944272]], rtol=1e-6)
    # mean 0.4, variance (0.16 + 0.36 + 0.04 + 0) / 4 = 0.14, deviation 0.3741657; (x - 0.4) / 0.3941657 is
    # -1.0148016, 1.5222023, -0.5074008, 0: then -1.0148016 + 3.0444047 + 0.5 and 5 * -0.5074008
    found = outputs(export.to_bytes(by_hand(standardise=True, normalise=False)), image)
    np.testing.assert_allclose(found, [[2.5296031, -2.5370039]], rtol=1e-5)


def test_a_trained_encoder_is_exported_by_the_command(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "encoder.onnx"
    result = invoke("export", str(folder), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "uint8 [batch, 1, 8, 8] to float32 [batch, 16]" in result.output
    encoder = load_encoder(folder)
    for number in (1, 7):
        images = pixels(number, (1, 8, 8))
        np.testing.assert_allclose(outputs(out.read_bytes(), images), encoder.embed(images), atol=1e-5)
    assert invoke("export", str(folder), "--out", str(out), "--features", "--force").exit_code == 0
    np.testing.assert_allclose(outputs(out.read_bytes(), images), encoder.features(images), atol=1e-5)


def test_the_file_says_what_it_takes_to_use_it(folder: Path) -> None:
    encoder = load_encoder(folder)
    session = onnxruntime.InferenceSession(export.to_bytes(encoder, space="features"))
    told = json.loads(session.get_modelmeta().custom_metadata_map["cfcl"])
    assert (told["image_shape"], told["resize"], told["space"]) == ([1, 8, 8], "bilinear", "features")
    assert (told["digest"], told["origin"]["dataset"], told["origin"]["step"]) == (encoder.digest, "digits", 12)
    (taken,), (given,) = session.get_inputs(), session.get_outputs()
    assert (taken.name, taken.shape, taken.type) == ("images", ["batch", 1, 8, 8], "tensor(uint8)")
    assert (given.name, given.shape, given.type) == ("features", ["batch", 256], "tensor(float)")
    named = TrainedEncoder(encoder._encoder, encoder.weights, classes=("cat", "dog"))
    session = onnxruntime.InferenceSession(export.to_bytes(named))
    assert json.loads(session.get_modelmeta().custom_metadata_map["cfcl"])["classes"] == ["cat", "dog"]


def test_the_same_encoder_is_the_same_bytes(folder: Path) -> None:
    assert export.to_bytes(load_encoder(folder)) == export.to_bytes(load_encoder(folder))


def check_refusal(path: Path, encoder: TrainedEncoder, *parts: str) -> None:
    with pytest.raises(CfclError) as caught:
        export.check(path, encoder)
    (line,) = str(caught.value).splitlines()
    for part in (path.name, *parts):
        assert part in line


def test_a_cut_or_changed_file_is_refused(folder: Path, tmp_path: Path) -> None:
    encoder, file = load_encoder(folder), tmp_path / "x.onnx"
    whole = export.to_bytes(encoder)
    file.write_bytes(whole)
    export.check(file, encoder)
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        check_refusal(file, encoder, "export the encoder again")
    for place in range(100, len(whole), len(whole) // 40):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        check_refusal(file, encoder)
    check_refusal(tmp_path, encoder, "there is no file")
    file.write_bytes(export.to_bytes(ready({}, (1, 8, 8))))
    check_refusal(file, encoder, "is of the encoder", encoder.digest[:12])


def test_what_would_compute_something_else_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.onnx"
    out.write_bytes(b"old")
    monkeypatch.setattr(graph, "_normalise", lambda graph: None)
    with pytest.raises(CfclError, match=r"x\.onnx' would not compute what the encoder does .* more than 1e-05"):
        export.write(load_encoder(folder), out)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


class Doubled(nn.Sequential):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = 2 * self[1](self[0](values))
        return result


ODD = [
    (Doubled(nn.Flatten(), nn.Linear(64, 2)), "Doubled("),
    (nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.Tanh()), "the layer Tanh() cannot be exported"),
    (nn.Sequential(nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(49, 2)), "only squares side by side can"),
    (nn.Sequential(nn.Conv2d(1, 1, 3, padding="same"), nn.Flatten()), "only a padding of so many zeros can"),
]


@pytest.mark.parametrize(("module", "part"), ODD, ids=[part for _, part in ODD])
def test_layers_that_are_not_known_are_refused(module: nn.Module, part: str, tmp_path: Path) -> None:
    with pytest.raises(CfclError) as caught:
        export.write(ready({}, (1, 8, 8), module), tmp_path / "x.onnx")
    assert part in str(caught.value)
    assert "torch.onnx.export" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_bad_commands_get_one_line(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.onnx"
    partial = tmp_path / "begun.partial"
    partial.mkdir()
    (partial / "config.toml").write_text("")
    (tmp_path / "file").write_text("in the way")
    for run, where, parts in (
        (tmp_path / "absent", out, ("absent", "there is no encoder at", "give a run folder")),
        (tmp_path, out, ("there is no encoder at", "give a run folder")),
        (partial, out, ("begun.partial", "is not finished", "`cfcl resume")),
        (tmp_path / "begun", out, ("begun.partial", "is not finished", "`cfcl resume")),
        (folder, tmp_path / "x.pt", ("x.pt", "does not end in .onnx", "give a name such as")),
        (folder, tmp_path / "file" / "x.onnx", ("x.onnx", "cannot write", "choose another --out")),
    ):
        check_complaint(invoke("export", str(run), "--out", str(where)), *parts)
        assert not out.exists()
    out.write_bytes(b"old")
    check_complaint(invoke("export", str(folder), "--out", str(out)), "x.onnx", "exists already", "--force")
    assert out.read_bytes() == b"old"


def test_an_encoder_around_a_module_of_yours_says_how_it_is_loaded(tmp_path: Path) -> None:
    mine = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    run = suites.simulate(small("train.steps=2"), module=mine, out=tmp_path, workers=1, plotted=False)
    out = tmp_path / "x.onnx"
    check_complaint(invoke("export", str(run.folder), "--out", str(out)), "not an encoder", "module=yours")
    assert not out.exists()
    assert run.folder is not None
    export.write(load_encoder(run.folder, module=mine), out)
    np.testing.assert_allclose(
        outputs(out.read_bytes(), pixels(3, (1, 8, 8))), run.encoder.embed(pixels(3, (1, 8, 8))), atol=1e-5
    )


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra_there_is_one_line(
    missing: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    result = invoke("export", str(folder), "--out", str(tmp_path / "x.onnx"))
    check_complaint(result, f"{missing} is not installed", "pip install 'cfcl[export]'")
    assert list(tmp_path.iterdir()) == []


def test_the_example_runs_without_torch(folder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(folder)
    export.write(encoder, tmp_path / "encoder.onnx")
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, image in zip(paths, pixels(3, (3, 20, 30)), strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    words = [str(EXAMPLE), "encoder.onnx", *map(str, paths)]
    code = (
        f"import runpy, sys; sys.argv = {words!r}; runpy.run_path(sys.argv[0]); "
        "sys.exit(bool({'torch', 'cfcl'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), encoder.embed(paths), atol=1e-5)


def test_the_example_stands_in_the_docs() -> None:
    assert any(EXAMPLE.read_text() in page.read_text() for page in (ROOT / "docs").glob("*.md"))
