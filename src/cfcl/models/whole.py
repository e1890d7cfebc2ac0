"""A trained network as a module of its own: pixels in, embeddings out."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from cfcl.models.encoder import EMBEDDING, FEATURES, as_input, stages, standardise


class WholeEncoder(nn.Module):
    """The network with what comes before it, standardisation, and after it, the unit sphere.

    It trains further, moves to a device and saves its `state_dict` as any module does.
    """

    def __init__(self, network: nn.Module, *, standardised: bool, normalised: bool) -> None:
        super().__init__()
        self.network = network
        self.standardised = standardised
        self.normalised = normalised

    def forward(self, images: Tensor) -> Float[Tensor, "batch dim"]:
        """Embeddings of uint8 pixels, or of floats in 0..1, of the shape that it was trained for."""
        return self._to(EMBEDDING, images)

    def features(self, images: Tensor) -> Float[Tensor, "batch dim"]:
        """What the head sees of such images, as flat vectors; of a network that names no features, embeddings."""
        return self._to(FEATURES if FEATURES in stages(self.network) else EMBEDDING, images).flatten(1)

    def _to(self, last: str, images: Tensor) -> Tensor:
        values = as_input(images, self._device)
        if self.standardised:
            values = standardise(values)
        for name, stage in stages(self.network).items():
            values = stage(values)
            if name == last:
                break
        return functional.normalize(values, dim=-1) if last == EMBEDDING and self.normalised else values

    @property
    def _device(self) -> torch.device:
        return next((tensor.device for tensor in self.parameters()), torch.device("cpu"))
