"""Numbers in 8 bits: every item has a range of its own, cut into 255 equal steps."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

STEPS = 255


def to_codes(values: Float[Tensor, "items ..."]) -> tuple[UInt8[Tensor, "items ..."], Float[Tensor, "items 2"]]:
    """The nearest steps, and the lowest and highest value of each item."""
    flat = values.flatten(1)
    if len(flat) == 0:
        return values.to(torch.uint8), values.new_zeros(0, 2)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    share = (flat - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)
    codes = (share * STEPS).round().clamp_(0, STEPS).to(torch.uint8)
    return codes.view(values.shape), torch.cat([low, high], dim=1)


def from_codes(codes: UInt8[Tensor, "items ..."], ranges: Float[Tensor, "items 2"]) -> Float[Tensor, "items ..."]:
    """The values that the codes stand for: each off by half a step at most."""
    low, high = ranges[:, :1], ranges[:, 1:]
    return torch.lerp(low, high, codes.flatten(1).float() / STEPS).view(codes.shape)
