"""What a run leaves behind: an encoder with its weights, and its file."""

import json
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.models.encoder import Encoder, Weights


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
        return self._encoder.embed(self._weights, self._batch(images))

    def features(self, images: object) -> Float[Tensor, "batch dim"]:
        """What the encoder's head sees of such images, as flat vectors; of a module that names no features, its
        embeddings.
        """
        return self._encoder.features(self._weights, self._batch(images))

    def _batch(self, images: object) -> Tensor:
        """The images, checked: uint8 or float32."""
        batch = torch.as_tensor(images)
        if batch.ndim == 3 and self.image_shape[0] == 1:
            batch = batch.unsqueeze(1)
        if batch.ndim != 4 or tuple(batch.shape[1:]) != self.image_shape:
            raise CfclError(
                f"images of shape {tuple(batch.shape)} do not fit this encoder, which takes (batch, "
                f"{', '.join(map(str, self.image_shape))}): reshape or resize them"
            )
        if batch.dtype == torch.uint8:
            return batch
        if not batch.is_floating_point() or not bool(((batch >= 0) & (batch <= 1)).all()):
            raise CfclError(
                f"images of type {batch.dtype} are neither uint8 pixels nor floats in 0..1: convert or rescale them"
            )
        return batch.float()

    def save(self, path: str | Path) -> None:
        """Write weights and description to one safetensors file."""
        description = {"model": self._encoder.config.model_dump(), "image_shape": self.image_shape}
        # One key only: safetensors writes several in random order.
        Path(path).write_bytes(
            save(self._encoder.state_dict(self._weights), metadata={"cfcl": json.dumps(description)})
        )


def load_encoder(path: str | Path, *, device: str = "cpu", module: nn.Module | None = None) -> TrainedEncoder:
    """The encoder in a safetensors file or in a run folder; `module` if it was trained around one of yours."""
    path = Path(path)
    file = path / "encoder.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise CfclError(f"there is no encoder at {str(path)!r}: give a run folder or its encoder.safetensors")
    try:
        with safe_open(file, framework="pt", device=device) as archive:
            metadata = archive.metadata() or {}
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118, not a dict
        description = json.loads(metadata["cfcl"])
        config = ModelConfig.model_validate(description["model"])
        channels, height, width = description["image_shape"]
        encoder = Encoder(config, (channels, height, width), seed=0, device=device, module=module)
        return TrainedEncoder(encoder, encoder.weights_from(tensors))
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CfclError(
            f"{str(file)!r} is not an encoder written by cfcl ({reason}): give the encoder.safetensors of a finished "
            "run"
        ) from None
