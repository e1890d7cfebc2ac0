"""The triplet loss, its sums, and its regularised form."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cfcl.core.clustering import squared_distances


def triplet_loss(
    anchor: Float[Tensor, "batch dim"],
    positive: Float[Tensor, "batch dim"],
    negative: Float[Tensor, "batch dim"],
    *,
    margin: float,
) -> Float[Tensor, " batch"]:
    """Per-anchor triplet hinge, Eq. (1): `max(0, |a-p|^2 - |a-n|^2 + m)`."""
    to_positive = (anchor - positive).square().sum(dim=-1)
    to_negative = (anchor - negative).square().sum(dim=-1)
    return (to_positive - to_negative + margin).clamp_min(0.0)


def objective(
    points: Float[Tensor, "points dim"],
    positives: Float[Tensor, "draws points dim"],
    *,
    margin: float,
) -> Float[Tensor, ""]:
    """Sum of the triplet loss over anchors, augmentations and all other points, Eq. (2) and, on D_i^t, Eq. (3)."""
    to_positive = (points - positives).square().sum(dim=-1)
    to_negative = squared_distances(points, points)
    hinge = (to_positive.unsqueeze(-1) - to_negative + margin).clamp_min(0.0)
    return hinge.sum() - hinge.diagonal(dim1=-2, dim2=-1).sum()


def regulariser(
    anchor: Float[Tensor, "batch dim"],
    positive: Float[Tensor, "batch dim"],
    received: Float[Tensor, "received dim"],
    *,
    margin: float,
    reduction: Literal["mean", "sum"],
) -> Float[Tensor, " batch"]:
    """Per-anchor hinge against the received embeddings, the second term of Eq. (23) without its weight."""
    if len(received) == 0:
        return anchor.new_zeros(len(anchor))
    to_positive = (anchor - positive).square().sum(dim=-1)
    to_received = (anchor.unsqueeze(1) - received.detach()).square().sum(dim=-1)
    hinge = (to_positive.unsqueeze(-1) - to_received + margin).clamp_min(0.0)
    # Paper: prints the sum, about 70 terms against the one of the contrastive loss; the mean keeps them level.
    return hinge.mean(dim=-1) if reduction == "mean" else hinge.sum(dim=-1)


def regularised_triplet_loss(
    triplet: Float[Tensor, " batch"],
    regularisation: Float[Tensor, " batch"],
    *,
    weight: float,
) -> Float[Tensor, " batch"]:
    """The triplet loss plus W_t times the regulariser, Eq. (23)."""
    return triplet + weight * regularisation


def regulariser_margin(
    squared_radii: Float[Tensor, " clusters"],
    occupied: Bool[Tensor, " clusters"],
    *,
    factor: float,
    radius: Literal["length", "squared"],
) -> float:
    """The dynamic margin `k` times the mean radius of the occupied clusters, Eq. (24); 0 without any."""
    radii = squared_radii[occupied]
    if len(radii) == 0:
        return 0.0
    # Paper: a length is compared with squared distances; `squared` with k = 4 makes its guarantee true.
    return factor * float((radii.sqrt() if radius == "length" else radii).mean())


def regulariser_weight(step: int, *, num_steps: int, aggregation_period: int, weight: float, staleness: float) -> float:
    """W_t, Eq. (25): a sawtooth that peaks at each aggregation plus a slow rise; `staleness` is rho times zeta."""
    phase = step % aggregation_period
    sawtooth = math.exp(-phase / (aggregation_period - 1)) if aggregation_period > 1 else 1.0
    return weight * (sawtooth + math.exp(step / num_steps - staleness))


def proximal_gradient(
    params: Float[Tensor, " params"], anchor: Float[Tensor, " params"], *, weight: float
) -> Float[Tensor, " params"]:
    """Gradient of the FedProx term `mu/2 |phi - phi_G|^2`."""
    return weight * (params - anchor)


def active_share(losses: Float[Tensor, " batch"]) -> float:
    """Share of triplets whose hinge is open, so that they move the model."""
    return float((losses > 0).to(torch.float64).mean())
