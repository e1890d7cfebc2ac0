"""Encoders, and a flat view of their parameters so that a model is one vector."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from cfcl import rng
from cfcl.config import ModelConfig
from cfcl.errors import CfclError


class Weights(NamedTuple):
    """A model as data: all parameters in one vector, all floating-point buffers in another."""

    params: Tensor
    buffers: Tensor


class SmallCnn(nn.Module):
    """A 3×3 convolution with pooling and two linear layers."""

    def __init__(self, image_shape: tuple[int, int, int], embedding_dim: int) -> None:
        super().__init__()
        channels, height, width = image_shape
        self.conv = nn.Conv2d(channels, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * (height // 2) * (width // 2), 64)
        self.fc2 = nn.Linear(64, embedding_dim)

    def forward(self, images: Tensor) -> Tensor:
        """Embeddings, not normalised."""
        hidden = functional.max_pool2d(functional.relu(self.conv(images)), 2)
        embeddings: Tensor = self.fc2(functional.relu(self.fc1(hidden.flatten(1))))
        return embeddings


class Encoder:
    """One module that computes with whatever weights it is handed."""

    def __init__(
        self,
        config: ModelConfig,
        image_shape: tuple[int, int, int],
        *,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        self.config = config
        self.image_shape = image_shape
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.derive(seed, "model"))
            self._module = _build(config, image_shape).to(self.device)
        self._params = list(self._module.parameters())
        # Counters such as BatchNorm's are no part of a model.
        self._buffers = [buffer for buffer in self._module.buffers() if buffer.is_floating_point()]
        self.initial = Weights(_flatten(self._params), _flatten(self._buffers))

    @property
    def num_parameters(self) -> int:
        """Entries of the parameter vector."""
        return self.initial.params.numel()

    def embed(self, weights: Weights, images: Tensor, *, chunk: int = 2048) -> Float[Tensor, "batch dim"]:
        """Embeddings of uint8 pixels or of floats in 0..1, without gradient, Eq. (13) and (14)."""
        self._bind(weights)
        self._module.eval()
        with torch.no_grad():
            return torch.cat([self._forward(as_input(part, self.device)) for part in torch.split(images, chunk)])

    def gradient(
        self, weights: Weights, images: Float[Tensor, "batch c h w"], loss: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Gradient of `loss(embeddings)` as one vector, and the buffers after the forward pass."""
        buffers = weights.buffers.clone()
        self._bind(Weights(weights.params, buffers))
        self._module.train()
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(self._forward(images)), self._params)
        return _flatten(gradients), buffers

    def state_dict(self, weights: Weights) -> dict[str, Tensor]:
        """The weights under the names of the module's parameters and buffers."""
        self._bind(weights)
        return {name: tensor.detach().clone().contiguous().cpu() for name, tensor in self._module.state_dict().items()}

    def weights_from(self, tensors: Mapping[str, Tensor]) -> Weights:
        """The inverse of `state_dict`."""
        self._bind(Weights(self.initial.params.clone(), self.initial.buffers.clone()))
        self._module.load_state_dict(tensors)
        return Weights(_flatten(self._params), _flatten(self._buffers))

    def _forward(self, images: Tensor) -> Tensor:
        embeddings: Tensor = self._module(images)
        return functional.normalize(embeddings, dim=-1) if self.config.normalise else embeddings

    def _bind(self, weights: Weights) -> None:
        for targets, flat in ((self._params, weights.params), (self._buffers, weights.buffers)):
            if flat.numel():
                for target, part in zip(targets, torch.split(flat, [t.numel() for t in targets]), strict=True):
                    target.data = part.view(target.shape)


def as_input(images: Tensor, device: torch.device) -> Float[Tensor, "batch c h w"]:
    """Pixels as floats in 0..1 on `device`; floats pass as they are."""
    images = images.to(device)
    return images.float().div_(255.0) if images.dtype == torch.uint8 else images


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]) if tensors else torch.zeros(0)


def _build(config: ModelConfig, image_shape: tuple[int, int, int]) -> nn.Module:
    if min(image_shape[1:]) < 2:
        raise CfclError(
            f"images of {image_shape[1]}×{image_shape[2]} are too small for model.encoder={config.encoder!r}, which "
            "needs 2×2: choose larger images"
        )
    return SmallCnn(image_shape, config.embedding_dim)


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
    def embedding_dim(self) -> int:
        """Length of its embeddings."""
        return self._encoder.config.embedding_dim

    def embed(self, images: object) -> Float[Tensor, "batch dim"]:
        """Embeddings of a batch of images (tensor, array or nested list): uint8, or floats in 0..1; grey ones may
        leave out the channel axis.
        """
        batch = torch.as_tensor(images)
        if batch.ndim == 3 and self.image_shape[0] == 1:
            batch = batch.unsqueeze(1)
        if batch.ndim != 4 or tuple(batch.shape[1:]) != self.image_shape:
            raise CfclError(
                f"images of shape {tuple(batch.shape)} do not fit this encoder, which takes (batch, "
                f"{', '.join(map(str, self.image_shape))}): reshape or resize them"
            )
        if batch.dtype == torch.uint8:
            return self._encoder.embed(self._weights, batch)
        if not batch.is_floating_point() or not bool(((batch >= 0) & (batch <= 1)).all()):
            raise CfclError(
                f"images of type {batch.dtype} are neither uint8 pixels nor floats in 0..1: convert or rescale them"
            )
        return self._encoder.embed(self._weights, batch.float())

    def save(self, path: Path) -> None:
        """Write weights and description to one safetensors file."""
        description = {"model": self._encoder.config.model_dump(), "image_shape": self.image_shape}
        # One key only: safetensors writes several in random order.
        path.write_bytes(save(self._encoder.state_dict(self._weights), metadata={"cfcl": json.dumps(description)}))


def load_encoder(path: str | Path, *, device: str = "cpu") -> TrainedEncoder:
    """The encoder in a safetensors file or in a run folder."""
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
        encoder = Encoder(config, (channels, height, width), seed=0, device=device)
        return TrainedEncoder(encoder, encoder.weights_from(tensors))
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CfclError(
            f"{str(file)!r} is not an encoder written by cfcl ({reason}): give the encoder.safetensors of a finished "
            "run"
        ) from None
