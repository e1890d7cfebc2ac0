"""Losses: the triplet loss, its sums and its regularised form; and those of two augmented views of each point."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

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
    # Paper: a length is compared with squared distances. `squared` makes its guarantee true, with k = 4 for equal radii
    # and with k = 4 times the number of clusters for any (docs/errata.md).
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


def view_similarities(
    views: Float[Tensor, "rows dim"], *, temperature: float
) -> tuple[Float[Tensor, " rows"], Float[Tensor, "rows rows"]]:
    """Cosines over the temperature: of each row with the other view of its point, and with every other point's views.

    The first views of all points come first, their second views after them. -inf stands for a row itself and for its
    other view.
    """
    size = len(views) // 2
    directions = functional.normalize(views, dim=-1)
    similarities = directions @ directions.T / temperature
    own = torch.eye(size, dtype=torch.bool, device=views.device).repeat(2, 2)
    return similarities.diagonal(size).repeat(2), similarities.masked_fill(own, -math.inf)


def received_similarities(
    views: Float[Tensor, "rows dim"],
    received: Float[Tensor, "received dim"],
    *,
    temperature: float,
    weight: float,
    margin: float,
) -> Float[Tensor, "rows received"]:
    """Cosines over the temperature with received embeddings, plus log W_t; -inf where one is likely of the same kind.

    That is where its squared distance is below the dynamic margin.
    """
    similarities = functional.normalize(views, dim=-1) @ functional.normalize(received.detach(), dim=-1).T / temperature
    alike = torch.cdist(views.detach(), received.detach()).square() < margin
    return (similarities + math.log(weight)).masked_fill(alike, -math.inf)


def decoupled_loss(positive: Float[Tensor, " rows"], negatives: Float[Tensor, "rows others"]) -> Float[Tensor, " rows"]:
    """Per-row decoupled contrastive loss: `log sum exp(negatives) - positive`, which may be below 0."""
    return negatives.logsumexp(dim=1) - positive


def nt_xent_loss(positive: Float[Tensor, " rows"], negatives: Float[Tensor, "rows others"]) -> Float[Tensor, " rows"]:
    """Per-row InfoNCE, also called NT-Xent: `log(exp(positive) + sum exp(negatives)) - positive`."""
    return functional.softplus(decoupled_loss(positive, negatives))


def variance_hinge(embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, " dim"]:
    """How much the standard deviation of each dimension lacks of 1."""
    return (1.0 - (embeddings.var(dim=0) + 1e-4).sqrt()).clamp_min(0.0)


def squared_covariances(embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, " dim"]:
    """For each dimension the sum of its squared covariances with the others."""
    centred = embeddings - embeddings.mean(dim=0)
    squares = (centred.T @ centred / (len(embeddings) - 1)).square()
    return squares.sum(dim=1) - squares.diagonal()


def vicreg_loss(
    first: Float[Tensor, "batch dim"],
    second: Float[Tensor, "batch dim"],
    *,
    invariance: float,
    variance: float,
    covariance: float,
) -> Float[Tensor, " batch"]:
    """Per-point VICReg: the mean squared difference of its views, and the two terms that all points share."""
    unlike = (first - second).square().mean(dim=-1)
    flat = (variance_hinge(first) + variance_hinge(second)).mean() / 2
    entangled = (squared_covariances(first) + squared_covariances(second)).mean()
    return invariance * unlike + variance * flat + covariance * entangled


def byol_loss(prediction: Float[Tensor, "batch dim"], target: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
    """Per-row BYOL: `2 - 2 cos(prediction, target)`; the target carries no gradient."""
    return 2.0 - 2.0 * functional.cosine_similarity(prediction, target.detach(), dim=-1)
