"""Local training: one update, the model that goes up, and the one that comes down."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from cfcl import rng
from cfcl.core import averaging, batches, losses
from cfcl.data.augment import augment
from cfcl.device.state import DeviceState, Setting, fresh_moments
from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel
from cfcl.models import Weights, as_input

WORTHWHILE = 0.5
"""Share of open triplets in the last batch below which a forward pass to find the open ones pays."""
ROUNDED_TO = 4


@dataclass(frozen=True)
class StepReport:
    """What one update looked like."""

    loss: float
    triplet: float
    regulariser: float
    weight: float
    active: float
    pulled_share: float


def local_step(setting: Setting, state: DeviceState, step: int) -> tuple[DeviceState, StepReport]:
    """One update, Eq. (4), on the triplet loss, Eq. (1), or on its regularised form, Eq. (23)."""
    config, encoder, train = setting.config, setting.encoder, setting.config.train
    num_local = len(state.points)
    num_pulled = len(state.pulled) if config.exchange.mode == "explicit" else 0
    batch = _batch(setting, state, step)
    weight = _regulariser_weight(setting, state, step)
    found: list[_Terms] = []

    def loss(embeddings: Tensor) -> Tensor:
        found.append(_terms(setting, state, embeddings, batch.triplets, weight))
        return found[-1].total.mean()

    # A closed hinge has no gradient: where few are open, they alone go through the backward pass.
    if encoder.is_pure and state.active < WORTHWHILE:
        loss(encoder.embed(state.weights, batch.images))
        gradient, buffers = _open_gradient(setting, state, batch, found[-1].total > 0, weight)
    else:
        gradient, buffers = encoder.gradient(state.weights, batch.images, loss)
    if train.fedprox > 0:
        gradient += losses.proximal_gradient(state.weights.params, state.anchor.params, weight=train.fedprox)
    state = _move(setting, state, gradient, buffers)
    triplet, extra, total = (term.detach() for term in found[0])
    active = losses.active_share(triplet)
    state = replace(
        state,
        points_seen=state.points_seen + num_local + num_pulled,
        updates=state.updates + 1,
        active=float((total > 0).double().mean()),
    )
    return state, StepReport(
        loss=float(total.mean()),
        triplet=float(triplet.mean()),
        regulariser=float(extra.mean()),
        weight=weight,
        active=active,
        pulled_share=float((batch.positions >= num_local).double().mean()),
    )


class _Batch(NamedTuple):
    images: Tensor
    triplets: Tensor
    """[3, batch]: rows of `images` that are anchors, positives and negatives."""
    positions: Tensor
    """Places of anchors and negatives among the points held, pulled ones last."""


class _Terms(NamedTuple):
    triplet: Tensor
    extra: Tensor
    total: Tensor


def _batch(setting: Setting, state: DeviceState, step: int) -> _Batch:
    config, device, size = setting.config, setting.encoder.device, setting.config.train.batch_size
    anchor, negative = _compose(setting, state, step)
    anchors = as_input(_take(state, anchor), device)
    positives = augment(anchors, config.augment, rng.stream(config.seed, "augment", state.id, step))
    rows = torch.arange(size)
    if config.train.negatives == "batch":
        triplets = torch.stack([rows, size + rows, negative]).to(device)
        return _Batch(torch.cat([anchors, positives]), triplets, torch.cat([anchor, anchor[negative]]))
    images = torch.cat([anchors, positives, as_input(_take(state, negative), device)])
    return _Batch(images, torch.arange(3 * size, device=device).view(3, size), torch.cat([anchor, negative]))


def _terms(setting: Setting, state: DeviceState, embeddings: Tensor, triplets: Tensor, weight: float) -> _Terms:
    """The terms of the loss, triplet by triplet."""
    first, second, third = embeddings[triplets]
    triplet = losses.triplet_loss(first, second, third, margin=setting.config.train.margin)
    if weight == 0:
        return _Terms(triplet, torch.zeros_like(triplet), triplet)
    reduction = setting.config.regulariser.reduction
    extra = losses.regulariser(first, second, state.pulled, margin=state.margin, reduction=reduction)
    return _Terms(triplet, extra, losses.regularised_triplet_loss(triplet, extra, weight=weight))


def _open_gradient(
    setting: Setting, state: DeviceState, batch: _Batch, is_open: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """The gradient of the whole batch's mean loss, from its open triplets alone."""
    # A few closed ones fill up: convolutions are prepared anew for every size of batch.
    size = -(-int(is_open.sum()) // ROUNDED_TO) * ROUNDED_TO
    if size == 0:
        return torch.zeros_like(state.weights.params), state.weights.buffers
    rows = is_open.to(torch.int8).argsort(descending=True, stable=True)[:size]
    images = batch.images[batch.triplets[:, rows].flatten()]
    triplets = torch.arange(len(images), device=images.device).view(3, -1)

    def loss(embeddings: Tensor) -> Tensor:
        return _terms(setting, state, embeddings, triplets, weight).total.sum() / len(is_open)

    return setting.encoder.gradient(state.weights, images, loss)


def _compose(setting: Setting, state: DeviceState, step: int) -> tuple[Tensor, Tensor]:
    """Positions of anchors and of negatives, or of anchors and the rows of those that serve as negatives."""
    config, train = setting.config, setting.config.train
    num_local = len(state.points)
    num_pulled = len(state.pulled) if config.exchange.mode == "explicit" else 0
    stream = rng.stream(config.seed, "batch", state.id, step)
    if train.negatives == "batch":
        return batches.compose_within(
            torch.randperm(num_local, generator=stream)[: train.batch_size],
            torch.rand(train.batch_size, dtype=torch.float64, generator=stream),
            num_local=num_local,
            num_pulled=num_pulled,
            remote_fraction=train.remote_fraction,
        )
    return batches.compose(
        torch.rand((4, train.batch_size), dtype=torch.float64, generator=stream),
        num_local=num_local,
        num_pulled=num_pulled,
        composition=train.composition,
        remote_fraction=train.remote_fraction,
    )


def upload(state: DeviceState, step: int) -> LocalModel:
    """The model for the server, weighted by the mean number of points held since the last aggregation."""
    weight = state.points_seen / state.updates if state.updates else float(len(state.points))
    return LocalModel(state.id, SERVER, step, state.weights.params, state.weights.buffers, weight)


def adopt(setting: Setting, state: DeviceState, model: GlobalModel) -> DeviceState:
    """Take over the global model."""
    aggregation = setting.config.aggregation
    anchor = Weights(model.params, model.buffers)
    keep_buffers = aggregation.buffers == "local"
    return replace(
        state,
        weights=Weights(model.params, state.weights.buffers if keep_buffers else model.buffers),
        anchor=anchor,
        moments=state.moments if aggregation.moments == "keep" else fresh_moments(anchor),
        points_seen=0,
        updates=0,
    )


def _regulariser_weight(setting: Setting, state: DeviceState, step: int) -> float:
    """W_t, Eq. (25), where there is anything to weigh; else 0."""
    config = setting.config
    if config.exchange.mode == "explicit" or len(state.pulled) == 0:
        return 0.0
    age = 1.0 if config.regulariser.staleness == "constant" else (step - state.pulled_at) / config.exchange.period
    return losses.regulariser_weight(
        step,
        num_steps=config.train.steps,
        aggregation_period=config.aggregation.period,
        weight=config.regulariser.weight,
        staleness=config.regulariser.staleness_factor * age,
    )


def _take(state: DeviceState, positions: Tensor) -> Tensor:
    """Datapoints at `positions`, where pulled ones follow local ones."""
    num_local = len(state.points)
    positions = positions.to(state.points.device)
    if not bool((positions >= num_local).any()):
        return state.points[positions]
    local = state.points[positions.clamp_max(num_local - 1)]
    remote = state.pulled[(positions - num_local).clamp_min(0)]
    return torch.where((positions >= num_local).view(-1, 1, 1, 1), remote, local)


def _move(setting: Setting, state: DeviceState, gradient: Tensor, buffers: Tensor) -> DeviceState:
    train = setting.config.train
    if train.optimiser == "sgd":
        params = averaging.sgd_update(state.weights.params, gradient, learning_rate=train.learning_rate)
        return replace(state, weights=Weights(params, buffers))
    params, moments = averaging.adam_update(
        state.weights.params, gradient, state.moments, learning_rate=train.learning_rate
    )
    return replace(state, weights=Weights(params, buffers), moments=moments)
