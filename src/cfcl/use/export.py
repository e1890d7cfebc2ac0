"""An encoder as an ONNX file: pixels in, embeddings or features out, for whatever runs ONNX; torch is not needed there.

A file is put in its place only when onnxruntime computes with it what the encoder does.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cfcl import reading, rng
from cfcl.errors import CfclError
from cfcl.files import opened_atomically
from cfcl.models.encoder import reason
from cfcl.use import graph
from cfcl.use.embedding import Space
from cfcl.use.trained import TrainedEncoder

SUFFIX = ".onnx"
TOLERANCE = 1e-5
"""How far an output may lie from the encoder's, as a share of the largest one, or of 1 if that is larger."""
KEY = "cfcl"
"""Where the metadata of a file describe the encoder, as JSON."""
NAMES: dict[Space, str] = {"embedding": "embeddings", "features": "features"}
"""What the output is called."""


def check_place(path: Path) -> None:
    """Refuse a place that no ONNX file can have."""
    if path.suffix.lower() != SUFFIX:
        raise CfclError(f"--out {str(path)!r} does not end in {SUFFIX}: give a name such as encoder{SUFFIX}")


def write(encoder: TrainedEncoder, path: str | Path, *, space: Space = "embedding") -> int:
    """Write the encoder to the file at `path`, when it has been seen to work; comes back with its length."""
    path = Path(path)
    check_place(path)
    content = to_bytes(encoder, space=space)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened_atomically(path) as file:
            file.write(content)
            _check_outputs(content, str(path), encoder, space)
    except OSError as error:
        raise CfclError(f"cannot write {str(path)!r} ({error.strerror or error}): choose another --out") from None
    return len(content)


def check(path: str | Path, encoder: TrainedEncoder) -> None:
    """Refuse a file that is not what `write` makes of this encoder, or does not compute what it does."""
    onnx, _ = _packages()
    path = Path(path)
    if not reading.is_file(path):
        raise CfclError(f"there is no file {str(path)!r}: give one that `cfcl export` wrote")
    content = path.read_bytes()
    try:
        model = onnx.load_model_from_string(content)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf and the checker fail in many ways on damaged bytes
        raise CfclError(f"{str(path)!r} is no whole ONNX file ({reason(error)}): export the encoder again") from None
    told = _described(model)
    if told.get("digest") != encoder.digest:
        raise CfclError(
            f"{str(path)!r} is of the encoder {str(told.get('digest'))[:12]}, and not of {encoder.digest[:12]}: "
            "export this encoder, or give that one"
        )
    space: Space = "features" if told.get("space") == "features" else "embedding"
    if content != to_bytes(encoder, space=space):
        raise CfclError(f"{str(path)!r} is not what `cfcl export` makes of this encoder: export the encoder again")
    _check_outputs(content, str(path), encoder, space)


def to_bytes(encoder: TrainedEncoder, *, space: Space = "embedding") -> bytes:
    """The file: the same encoder is always the same bytes."""
    onnx, _ = _packages()
    dim = encoder.embedding_dim if space == "embedding" else encoder.feature_dim
    model = graph.build(onnx, encoder.module, encoder.image_shape, output=NAMES[space], dim=dim)
    about = {**encoder.description, "space": space, "digest": encoder.digest}
    onnx.helper.set_model_props(model, {KEY: json.dumps(about)})
    found: bytes = model.SerializeToString(deterministic=True)
    return found


def _described(model: Any) -> dict[str, Any]:
    """What the metadata say of the encoder; nothing if they are not ours."""
    text = next((item.value for item in model.metadata_props if item.key == KEY), "")
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _check_outputs(content: bytes, name: str, encoder: TrainedEncoder, space: Space) -> None:
    """Refuse a file that does not compute, to `TOLERANCE`, what the encoder does."""
    _, onnxruntime = _packages()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # what is wrong is told by us
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        for images in _trials(encoder.image_shape):
            (found,) = session.run(None, {"images": images.numpy()})
            away = _distance(found, (encoder.embed if space == "embedding" else encoder.features)(images))
            if not away <= TOLERANCE:
                raise ValueError(f"its outputs for {len(images)} images are {away:.2g} away, more than {TOLERANCE:g}")
    except Exception as error:  # a runtime fails in many ways
        raise CfclError(
            f"{name!r} would not compute what the encoder does ({reason(error)}): update onnx and onnxruntime, or tell "
            "us of it"
        ) from None


def _trials(shape: tuple[int, int, int]) -> Iterator[Tensor]:
    """Seven random images, one by itself, a black one and a white one."""
    images = torch.randint(0, 256, (7, *shape), dtype=torch.uint8, generator=rng.stream(0, "export"))
    yield images
    yield images[:1]
    yield torch.zeros(1, *shape, dtype=torch.uint8)
    yield torch.full((1, *shape), 255, dtype=torch.uint8)


def _distance(found: NDArray[np.float32], wanted: Tensor) -> float:
    expected = wanted.cpu().numpy()
    if found.shape != expected.shape:
        raise ValueError(f"its outputs have the shape {found.shape}, and not {expected.shape}")
    return float(np.abs(found - expected).max()) / max(1.0, float(np.abs(expected).max()))


def _packages() -> tuple[Any, Any]:
    """Modules onnx and onnxruntime."""
    try:
        return import_module("onnx"), import_module("onnxruntime")
    except ImportError as error:
        raise CfclError(
            f"ONNX files need onnx and onnxruntime, and {error.name or error} is not installed: pip install "
            "'cfcl[export]'"
        ) from None
