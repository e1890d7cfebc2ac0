"""What a run leaves behind: an encoder with its weights, and its file."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.models import networks
from cfcl.models.encoder import Encoder, Weights, reason, usable_device
from cfcl.models.networks import Shape

LONGEST_HEADER = 2**20
"""Bytes of names and description in a file; ours has a few thousand."""
LARGEST_IMAGE = 2**22
"""Values of an image that an encoder from a file may be for: about 1200×1200 in colour."""


class TrainedEncoder:
    """An encoder with its weights: what a run leaves behind."""

    def __init__(self, encoder: Encoder, weights: Weights) -> None:
        self._encoder = encoder
        self._weights = weights

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images it takes."""
        return self._encoder.image_shape

    @property
    def weights(self) -> Weights:
        """Its weights, as flat vectors."""
        return self._weights

    @property
    def embedding_dim(self) -> int:
        """Length of its embeddings."""
        return self._encoder.embedding_dim

    def embed(self, images: object) -> Float[Tensor, "batch dim"]:
        """Embeddings of a batch of images (tensor, array or nested list): uint8, or floats in 0..1; grey ones may
        leave out the channel axis.
        """
        return self._encoder.embed(self._weights, self._checked(images))

    def features(self, images: object) -> Float[Tensor, "batch dim"]:
        """What the encoder's head sees of such images, as flat vectors; of a module that names no features, its
        embeddings.
        """
        return self._encoder.features(self._weights, self._checked(images))

    def _checked(self, images: object) -> Tensor:
        """The images as uint8 or float32, of the right shape."""
        batch = _batch(images)
        if batch.ndim == 3 and self.image_shape[0] == 1:
            batch = batch.unsqueeze(1)
        if batch.ndim != 4 or tuple(batch.shape[1:]) != self.image_shape:
            raise CfclError(
                f"images of shape {tuple(batch.shape)} do not fit this encoder, which takes (batch, "
                f"{', '.join(map(str, self.image_shape))}): reshape or resize them"
            )
        if batch.dtype == torch.uint8:
            return batch
        if not batch.is_floating_point() or not bool((((pixels := batch.float()) >= 0) & (pixels <= 1)).all()):
            raise CfclError(
                f"images of type {batch.dtype} are neither uint8 pixels nor floats in 0..1: convert or rescale them"
            )
        return pixels

    def save(self, path: str | Path) -> None:
        """Write weights and description to one safetensors file, whole or not at all."""
        config = self._encoder.config
        # Sizes that a network does not have would only make its file another one.
        idle = set() if config.encoder == "conv" else {"widths", "grid", "head"}
        description = {"model": config.model_dump(exclude=idle), "image_shape": self.image_shape}
        # One key only: safetensors writes several in random order.
        content = save(self._encoder.state_dict(self._weights), metadata={"cfcl": json.dumps(description)})
        try:
            write_atomically(path, content)
        except (OSError, TypeError) as error:
            raise CfclError(
                f"cannot write an encoder to {str(path)!r} ({reason(error)}): choose another file"
            ) from None


def load_encoder(path: str | Path, *, device: str = "cpu", module: nn.Module | None = None) -> TrainedEncoder:
    """The encoder in a safetensors file or in a run folder; `module` if it was trained around one of yours.

    The file may come from anybody: nothing in it is run, and it takes about as much memory as it is long.
    """
    if not isinstance(module, nn.Module | None):
        raise CfclError(
            f"module={module!r:.60} is no torch.nn.Module: give the one that the encoder was trained around"
        )
    where, file = usable_device(device), _file(path)
    try:
        config, image_shape, tensors = _read(file, module)
        encoder = Encoder(config, image_shape, seed=0, device=where, module=module)
        return TrainedEncoder(encoder, encoder.weights_from(tensors))
    except _UNREADABLE as error:
        raise CfclError(
            f"{str(file)!r} is not an encoder written by cfcl ({reason(error)}): give the encoder.safetensors of a "
            "finished run"
        ) from None


_UNREADABLE = (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError)
"""What a file can be wrong in: its bytes, its JSON, its numbers, its tensors."""


def _batch(images: object) -> Tensor:
    try:
        batch = torch.as_tensor(images)
        if batch.is_meta or batch.is_nested or batch.layout is not torch.strided:
            raise TypeError("its values do not lie side by side in memory")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CfclError(
            f"{type(images).__name__} is no batch of images ({reason(error)}): give a tensor, an array or nested lists "
            "of numbers, all images of one shape"
        ) from None
    return batch


def _file(path: object) -> Path:
    with suppress(OSError, TypeError):
        found = Path(path)  # type: ignore[arg-type]  # anything that a user may hand in
        file = found / "encoder.safetensors" if found.is_dir() else found
        if file.is_file():
            return file
    raise CfclError(f"there is no encoder at {str(path)!r}: give a run folder or its encoder.safetensors")


def _read(file: Path, module: nn.Module | None) -> tuple[ModelConfig, Shape, dict[str, Tensor]]:
    """What a file describes, and its tensors: those that the network of this description has, and no others."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > LONGEST_HEADER:
            raise ValueError("it is no safetensors file, or has a header of more than a megabyte")
        config, image_shape = _described(json.loads(stream.read(size)))
        wanted = _wanted(config, image_shape, module)
        # Before anything is read or built: a description of a few bytes may be that of a network of gigabytes.
        length = 8 + size + sum(tensor.nbytes for tensor in wanted.values())
        if (found := os.fstat(stream.fileno()).st_size) != length:
            raise ValueError(f"it has {found:,} bytes, and its network takes {length:,}")
        stream.seek(0)
        tensors = load(stream.read(length))
    _check(tensors, wanted)
    return config, image_shape, tensors


def _described(header: Any) -> tuple[ModelConfig, Shape]:
    try:
        description = json.loads(header["__metadata__"]["cfcl"])
        model, shape = description["model"], description["image_shape"]
    except (KeyError, TypeError):
        raise ValueError("it does not describe its network") from None
    whole = isinstance(shape, list) and len(shape) == 3 and all(type(side) is int and side > 0 for side in shape)
    if not whole or math.prod(shape) > LARGEST_IMAGE:
        raise ValueError(
            f"image_shape={shape!r:.60} is no channels, height and width of at most {LARGEST_IMAGE:,} values"
        )
    return ModelConfig.model_validate(model), (shape[0], shape[1], shape[2])


def _wanted(config: ModelConfig, image_shape: Shape, module: nn.Module | None) -> Mapping[str, Tensor]:
    """The tensors of the network by name; of one of ours without their values, which take memory."""
    if module is not None:
        return module.state_dict()
    try:
        return networks.build(config, image_shape).state_dict()
    except CfclError as error:  # which is about settings, and here is a file
        raise ValueError(str(error)) from None


def _check(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(tensors.keys() | wanted.keys()):
        found, needed = _kind(tensors.get(name)), _kind(wanted.get(name))
        if found != needed:
            raise ValueError(f"tensor {name!r:.60} is {found}, and its network has {needed}")
        if not bool(tensors[name].isfinite().all()):
            raise ValueError(f"tensor {name!r} holds numbers that are not finite")


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
