"""An encoder whose weights are data: one vector of parameters, one of buffers."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from cfcl import rng
from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.models import networks

T = TypeVar("T")

PORTION = 2048
FEATURES, EMBEDDING = "features", "embedding"


class Weights(NamedTuple):
    """A model as data: all parameters in one vector, all floating-point buffers in another."""

    params: Tensor
    buffers: Tensor


class Entering(NamedTuple):
    """Activations from elsewhere that join a batch on its way through the network."""

    stage: str
    """At whose end they join."""
    values: Tensor
    order: Tensor
    """Where each row of the batch is found: among its images, followed by these values."""


class Encoder:
    """One module that computes with whatever weights it is handed."""

    def __init__(
        self,
        config: ModelConfig,
        image_shape: tuple[int, int, int],
        *,
        seed: int,
        device: str | torch.device = "cpu",
        module: nn.Module | None = None,
        tail: Callable[[int], nn.Module] = lambda dim: nn.Identity(),
    ) -> None:
        """An encoder of `config`, initialised by `seed`; or one around `module`, which brings its own weights.

        The parameters of `tail`, made for the length of an embedding, are trained with it; `embed` does without.

        A module may have a mapping `stages` from names to the modules that it applies one after another, the last of
        them called `embedding`; otherwise it is one stage, and its embeddings are its features too.
        """
        self.config = config
        self.image_shape = image_shape
        self.device = torch.device(device)
        draws = rng.stream(seed, "model")
        found = networks.build(config, image_shape, draws) if module is None else copy.deepcopy(module)
        self._module = found.to(self.device)
        self.name = config.encoder if module is None else type(module).__name__
        # In training too, one of our own without BatchNorm embeds every image by itself; of others nobody knows.
        self.is_pure = module is None and not any(isinstance(m, nn.BatchNorm2d) for m in found.modules())
        self._params = list(self._module.parameters())
        # Counters such as BatchNorm's are no part of a model.
        self._buffers = [buffer for buffer in self._module.buffers() if buffer.is_floating_point()]
        self._param_sizes = [parameter.numel() for parameter in self._params]
        self._buffer_sizes = [buffer.numel() for buffer in self._buffers]
        self._counters = {
            name: buffer.clone() for name, buffer in self._module.named_buffers() if not buffer.is_floating_point()
        }
        self._stages = stages(self._module)
        self._layout: Callable[[Tensor], Tensor] = networks.ChannelsLast() if module is None else Tensor.contiguous
        self._bound: Tensor | None = None
        self.initial = Weights(_flatten(self._params), _flatten(self._buffers))
        # Of our own we know them, and an image may be as large as a file says.
        self.shapes = networks.stage_shapes(self._stages, image_shape) if module is None else self._try()
        """What each stage makes of one image."""
        self.embedding_dim = self.shapes[EMBEDDING][0]
        self.feature_dim = math.prod(self.shapes.get(FEATURES, self.shapes[EMBEDDING]))
        self._tail = self._attach(tail, seed)

    @property
    def num_parameters(self) -> int:
        """Entries of the parameter vector."""
        return self.initial.params.numel()

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(self._stages)

    def embed(self, weights: Weights, images: Tensor, entering: Entering | None = None) -> Float[Tensor, "batch dim"]:
        """Embeddings of uint8 pixels or of floats in 0..1, without gradient, Eq. (13) and (14)."""
        if entering is None:
            return self.activations(weights, images, EMBEDDING)
        self._prepare(weights)
        with torch.no_grad():
            return self._through(as_input(images, self.device), entering)

    def finish(self, weights: Weights, values: Tensor, stage: str) -> Float[Tensor, "batch dim"]:
        """Embeddings of what is given as it would leave `stage`, without gradient."""
        self._prepare(weights)
        with torch.no_grad():
            return torch.cat([self._forward(part, start=stage) for part in portions(values)])

    def features(self, weights: Weights, images: Tensor) -> Float[Tensor, "batch dim"]:
        """What the projection head sees of images, as flat vectors without gradient."""
        return self.activations(weights, images, FEATURES if FEATURES in self._stages else EMBEDDING).flatten(1)

    def features_and_embeddings(
        self, weights: Weights, images: Tensor
    ) -> tuple[Float[Tensor, "batch features"], Float[Tensor, "batch dim"]]:
        """Both in one pass, each as it would be alone."""
        if FEATURES not in self._stages:
            found = self.embed(weights, images)
            return found, found
        parts = [self.activations(weights, part, FEATURES) for part in portions(images)]
        with torch.no_grad():
            embeddings = [self._forward(part, start=FEATURES) for part in parts]
        return torch.cat(parts).flatten(1), torch.cat(embeddings)

    def activations(self, weights: Weights, images: Tensor, stage: str) -> Float[Tensor, "batch ..."]:
        """What the network has made of images by the end of `stage`, without gradient."""
        if stage not in self._stages:
            raise CfclError(f"{stage!r} is no stage of {self.name}: choose one of {', '.join(self._stages)}")
        self._prepare(weights)
        with torch.no_grad():
            return torch.cat([self._forward(as_input(part, self.device), stop=stage) for part in portions(images)])

    def gradient(
        self,
        weights: Weights,
        images: Float[Tensor, "batch c h w"],
        loss: Callable[[Tensor], tuple[Tensor, T]],
        entering: Entering | None = None,
    ) -> tuple[Tensor, Tensor, T]:
        """Gradient of `loss(embeddings)` as one vector, buffers after the forward pass, and what else `loss` says."""
        buffers = weights.buffers.clone()
        self._bind(Weights(weights.params, buffers))
        if not self.is_pure:
            self._module.train()
        with torch.enable_grad():
            value, more = loss(self._through(images, entering))
            gradients = torch.autograd.grad(value, self._params)
        return _flatten(gradients), buffers, more

    def predict(self, embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """What the tail makes of `embeddings`, under the weights of the `gradient` in whose loss this is called."""
        predictions: Tensor = self._tail(embeddings)
        return predictions

    def state_dict(self, weights: Weights) -> dict[str, Tensor]:
        """The weights under the names of the module's parameters and buffers."""
        self._bind(weights)
        tensors = {**self._module.state_dict(), **self._counters}
        return {name: tensor.detach().clone().contiguous().cpu() for name, tensor in tensors.items()}

    def network(self, weights: Weights) -> nn.Module:
        """The bare network with weights of its own."""
        found = copy.deepcopy(self._module)
        found.load_state_dict(self.state_dict(weights))
        return found.eval()

    def weights_from(self, tensors: Mapping[str, Tensor]) -> Weights:
        """The inverse of `state_dict`."""
        self._bind(Weights(self.initial.params.clone(), self.initial.buffers.clone()))
        self._module.load_state_dict(tensors)
        return Weights(_flatten(self._params), _flatten(self._buffers))

    def _attach(self, tail: Callable[[int], nn.Module], seed: int) -> nn.Module:
        """The tail, its parameters behind those of the encoder, which are the same with any tail."""
        with torch.device("meta"):
            found = tail(self.embedding_dim)
        if list(found.parameters()):
            found = networks.drawn(found, rng.stream(seed, "tail")).to(self.device)
        self._params += found.parameters()
        self._param_sizes = [parameter.numel() for parameter in self._params]
        self.initial = Weights(_flatten(self._params), self.initial.buffers)
        return found

    def _try(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what the stages make of an image, seen with two black ones."""
        black = torch.zeros(2, *self.image_shape, dtype=torch.uint8)
        try:
            found = {name: self.activations(self.initial, black, name) for name in self._stages}
        except (RuntimeError, ValueError, TypeError) as error:
            raise CfclError(
                f"the encoder cannot take images of shape {self.image_shape} ({reason(error)}): change it or the images"
            ) from None
        embeddings = found[EMBEDDING]
        if embeddings.ndim != 2 or any(len(values) != 2 for values in found.values()):
            raise CfclError(
                f"the encoder turned 2 images into a tensor of shape {tuple(embeddings.shape)}, but embeddings are "
                "(images, length): flatten its output"
            )
        return {name: tuple(values.shape[1:]) for name, values in found.items()}

    def _through(self, images: Tensor, entering: Entering | None) -> Tensor:
        """Embeddings of images, and of what joins them."""
        if entering is None:
            return self._forward(images)
        own = self._forward(images, stop=entering.stage)
        return self._forward(torch.cat([own, entering.values])[entering.order], start=entering.stage)

    def _prepare(self, weights: Weights) -> None:
        self._bind(weights)
        if not self.is_pure:
            self._module.eval()

    def _forward(self, values: Tensor, *, start: str | None = None, stop: str = EMBEDDING) -> Tensor:
        """From images, or from activations at the end of stage `start`, to those at the end of stage `stop`."""
        names = list(self._stages)
        begin = 0 if start is None else names.index(start) + 1
        if start is not None:
            # Bits depend on the layout in memory, which nothing on the way here promises to keep.
            values = self._layout(values) if values.ndim == 4 else values.contiguous()
        elif self.config.standardise:
            values = standardise(values)
        for name in names[begin : names.index(stop) + 1]:
            values = self._stages[name](values)
        return functional.normalize(values, dim=-1) if stop == EMBEDDING and self.config.normalise else values

    def _bind(self, weights: Weights) -> None:
        if weights.params is self._bound and not self._buffers:
            return
        self._bound = weights.params
        for targets, sizes, flat in (
            (self._params, self._param_sizes, weights.params),
            (self._buffers, self._buffer_sizes, weights.buffers),
        ):
            if sizes:
                for target, part in zip(targets, torch.split(flat, sizes), strict=True):
                    target.data = part.view_as(target)


def usable_device(name: str) -> torch.device:
    """The device called `name`, which has been seen to work."""
    try:
        where = torch.device(name)
        torch.zeros(1, device=where).item()
    except (RuntimeError, AssertionError, ImportError, TypeError, ValueError) as error:
        raise CfclError(
            f"device {name!r} cannot be used: {reason(error)}; choose cpu, or a device this torch has"
        ) from None
    return where


def reason(error: Exception) -> str:
    """What went wrong, in a line that is not too long."""
    said = error.strerror if isinstance(error, OSError) else str(error)
    return " ".join((said or type(error).__name__).split())[:160]


def portions(images: Tensor) -> tuple[Tensor, ...]:
    """The batches in which many images are embedded; what they are decides the last bits."""
    return torch.split(images, PORTION)


def as_input(images: Tensor, device: torch.device) -> Float[Tensor, "batch c h w"]:
    """Pixels as floats in 0..1 on `device`; floats pass as they are."""
    images = images.to(device)
    return images.float().div_(255.0) if images.dtype == torch.uint8 else images


def standardise(images: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch c h w"]:
    """Every channel of every image with mean 0 and standard deviation 1; a flat one with zeros."""
    if len(images) == 0:  # torch warns of a spread of nothing
        return images
    spread, mean = torch.std_mean(images, dim=(2, 3), correction=0, keepdim=True)
    return (images - mean) / (spread + 0.02)


def stages(module: nn.Module) -> dict[str, nn.Module]:
    """The stages that a module says it has; the whole of it as one, if it says nothing."""
    found = getattr(module, "stages", None)
    if not isinstance(found, Mapping):
        return {EMBEDDING: module}
    if list(found)[-1:] != [EMBEDDING]:
        raise CfclError(f"the module's stages are {', '.join(found) or 'none'}, but the last one must be {EMBEDDING!r}")
    return dict(found)


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    return (
        torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        if tensors
        else torch.zeros(0, dtype=torch.float32)
    )
