"""What a run leaves behind: an encoder with its weights, and its file."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.models import Encoder, Weights, WholeEncoder, networks, usable_device
from cfcl.models.encoder import reason
from cfcl.use import intake
from cfcl.use.intake import Shape

LONGEST_HEADER = 2**20
"""Bytes of names and description in a file; ours has a few thousand."""
LARGEST_IMAGE = 2**22
"""Values of an image that an encoder from a file may be for: about 1200×1200 in colour."""
LONGEST_NAME = 1000
"""Characters of a name in a file."""
RESIZE = "bilinear"
"""How images of another size are made to fit, in training and later: Pillow's filter of this name, antialiased."""


@dataclass(frozen=True)
class Origin:
    """Where an encoder comes from."""

    config: str
    """Digest of the config."""
    method: str
    seed: int
    step: int
    """Updates of every device."""
    dataset: str
    data: str
    """Digest of all images and labels."""


class TrainedEncoder:
    """An encoder with its weights: what a run leaves behind."""

    def __init__(
        self,
        encoder: Encoder,
        weights: Weights,
        *,
        classes: tuple[str, ...] = (),
        origin: Origin | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._encoder = encoder
        self._weights = weights
        self.classes = classes
        """What the labels of its training data stand for, where they have names; it saw no label."""
        self.origin = origin
        self.extra = dict(extra or {})
        """What else its file holds, as JSON has it, for whoever wrote it; the encoder does without."""

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

    @property
    def feature_dim(self) -> int:
        """Length of its features."""
        return self._encoder.feature_dim

    @cached_property
    def module(self) -> WholeEncoder:
        """The encoder as a module with weights of its own, for whoever trains or converts it further.

        `with_state(module.state_dict())` is the encoder with the weights that the module has by then.
        """
        network = self._encoder.network(self._weights)
        config = self._encoder.config
        return WholeEncoder(network, standardised=config.standardise, normalised=config.normalise).eval()

    @cached_property
    def digest(self) -> str:
        """Sixty-four hex digits of its weights and of how it takes images."""
        found = hashlib.sha256(json.dumps(self._network).encode())
        for name, tensor in sorted(self._encoder.state_dict(self._weights).items()):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            found.update(tensor.numpy().data)
        return found.hexdigest()

    def embed(self, images: object) -> Float[Tensor, "batch dim"]:
        """Embeddings of one image or many: paths, PIL images, arrays or tensors, of any size, grey or in colour.

        Arrays hold uint8 or floats in 0..1, with channels first or last; grey ones may leave out their axis.
        """
        return self._encoder.embed(self._weights, intake.batch(images, self.image_shape))

    def features(self, images: object) -> Float[Tensor, "batch dim"]:
        """What the encoder's head sees of such images, as flat vectors; of a module that names no features, its
        embeddings.
        """
        return self._encoder.features(self._weights, intake.batch(images, self.image_shape))

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """What each stage makes of one image, in order."""
        return self._encoder.shapes

    def activations(self, images: object, stage: str) -> Float[Tensor, "batch ..."]:
        """What the network has made of such images by the end of `stage`."""
        return self._encoder.activations(self._weights, intake.batch(images, self.image_shape), stage)

    def with_state(self, tensors: Mapping[str, Tensor]) -> "TrainedEncoder":
        """The encoder with other weights: a `state_dict` of its module, or of the network inside."""
        bare = {name.removeprefix("network."): tensor for name, tensor in tensors.items()}
        try:
            weights = self._encoder.weights_from(bare)
        except (RuntimeError, AttributeError, TypeError) as error:
            raise CfclError(
                f"these tensors are not the weights of this encoder ({reason(error)}): give a state_dict of its module"
            ) from None
        return TrainedEncoder(self._encoder, weights, classes=self.classes, origin=self.origin, extra=self.extra)

    def with_extra(self, **extra: Any) -> "TrainedEncoder":
        """The encoder with more in its file."""
        more = {**self.extra, **extra}
        return TrainedEncoder(self._encoder, self._weights, classes=self.classes, origin=self.origin, extra=more)

    def save(self, path: str | Path) -> None:
        """Write weights and description to one safetensors file, whole or not at all."""
        # One key only: safetensors writes several in random order.
        content = save(self._encoder.state_dict(self._weights), metadata={"cfcl": json.dumps(self.description)})
        try:
            write_atomically(path, content)
        except (OSError, TypeError) as error:
            raise CfclError(
                f"cannot write an encoder to {str(path)!r} ({reason(error)}): choose another file"
            ) from None

    @property
    def description(self) -> dict[str, Any]:
        """What it takes to use it, apart from its weights, and where it comes from."""
        found = {**self._network, "resize": RESIZE}
        if self.classes:
            found["classes"] = self.classes
        if self.origin is not None:
            found["origin"] = asdict(self.origin)
        if self.extra:
            found["extra"] = self.extra
        return found

    @property
    def _network(self) -> dict[str, Any]:
        """The network, without its weights."""
        config = self._encoder.config
        # Sizes that a network does not have would only make its file another one.
        idle = set() if config.encoder == "conv" else {"widths", "grid", "head"}
        return {"model": config.model_dump(exclude=idle), "image_shape": self.image_shape}


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
        told, tensors = _read(file, module)
        encoder = Encoder(told.model, told.image_shape, seed=0, device=where, module=module)
        return TrainedEncoder(
            encoder, encoder.weights_from(tensors), classes=told.classes, origin=told.origin, extra=told.extra
        )
    except _UNREADABLE as error:
        raise CfclError(
            f"{str(file)!r} is not an encoder written by cfcl ({reason(error)}): give the encoder.safetensors of a "
            "finished run; one around a module of your own takes cfcl.load_encoder(path, module=yours)"
        ) from None


_UNREADABLE = (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError)
"""What a file can be wrong in: its bytes, its JSON, its numbers, its tensors."""


@dataclass(frozen=True)
class _Description:
    """What a file says of its network."""

    model: ModelConfig
    image_shape: Shape
    classes: tuple[str, ...]
    origin: Origin | None
    extra: Mapping[str, Any]


def _file(path: object) -> Path:
    with suppress(OSError, TypeError):
        found = Path(path)  # type: ignore[arg-type]  # anything that a user may hand in
        file = found / "encoder.safetensors" if found.is_dir() else found
        if file.is_file():
            return file
    raise CfclError(f"there is no encoder at {str(path)!r}: give a run folder or its encoder.safetensors")


def _read(file: Path, module: nn.Module | None) -> tuple[_Description, dict[str, Tensor]]:
    """What a file describes, and its tensors: those that the network of this description has, and no others."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > LONGEST_HEADER:
            raise ValueError("it is no safetensors file, or has a header of more than a megabyte")
        told = _described(json.loads(stream.read(size)))
        wanted = _wanted(told.model, told.image_shape, module)
        # Before anything is read or built: a description of a few bytes may be that of a network of gigabytes.
        length = 8 + size + sum(tensor.nbytes for tensor in wanted.values())
        if (found := os.fstat(stream.fileno()).st_size) != length:
            raise ValueError(f"it has {found:,} bytes, and its network takes {length:,}")
        stream.seek(0)
        tensors = load(stream.read(length))
    _check(tensors, wanted)
    return told, tensors


def _described(header: Any) -> _Description:
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
    if description.get("resize", RESIZE) != RESIZE:
        raise ValueError(f"resize={description['resize']!r:.60} is not {RESIZE!r}, the one way that is known")
    return _Description(
        ModelConfig.model_validate(model),
        (shape[0], shape[1], shape[2]),
        _classes(description.get("classes", [])),
        _origin(description.get("origin")),
        _extra(description.get("extra", {})),
    )


def _classes(found: Any) -> tuple[str, ...]:
    """Names of classes; files from before they were written have none."""
    if not isinstance(found, list) or not all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in found):
        raise ValueError(f"classes={found!r:.60} are no list of names of at most {LONGEST_NAME:,} characters")
    return tuple(found)


def _origin(found: Any) -> Origin | None:
    """Where it comes from; files from before this was written do not say."""
    if found is None:
        return None
    kinds = {field.name: field.type for field in fields(Origin)}
    told = isinstance(found, dict) and found.keys() == kinds.keys()
    if not told or any(
        type(found[name]) is not kind or len(str(found[name])) > LONGEST_NAME for name, kind in kinds.items()
    ):
        raise ValueError(f"origin={found!r:.60} does not have the entries {', '.join(kinds)}")
    return Origin(**found)


def _extra(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"extra={found!r:.60} is no object")
    return found


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
