"""Local training: one update, the model that goes up, and the one that comes down."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from cfcl.core import losses, optimisers
from cfcl.device.batching import Batch, draw_batches, num_pulled
from cfcl.device.state import DeviceState, Setting, fresh_moments
from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel
from cfcl.models import Weights

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


def local_step(
    setting: Setting, state: DeviceState, step: int, batch: Batch | None = None
) -> tuple[DeviceState, StepReport]:
    """One update, Eq. (4), on the triplet loss, Eq. (1), or on its regularised form, Eq. (23).

    `batch` is the one that `draw_batches` has for this step, if somebody has drawn it already.
    """
    encoder, train = setting.encoder, setting.config.train
    num_local = len(state.points)
    drawn = batch or draw_batches(setting, [state], step)[0]
    weight = _regulariser_weight(setting, state, step)
    found: list[_Terms] = []

    def loss(embeddings: Tensor) -> Tensor:
        found.append(_terms(setting, state, embeddings, drawn.triplets, weight))
        return found[-1].total.mean()

    # A closed hinge has no gradient: where few are open, they alone go through the backward pass.
    if encoder.is_pure and state.active < WORTHWHILE:
        loss(encoder.embed(state.weights, drawn.images))
        gradient, buffers = _open_gradient(setting, state, drawn, found[-1].total > 0, weight)
    else:
        gradient, buffers = encoder.gradient(state.weights, drawn.images, loss)
    if train.fedprox > 0:
        gradient += losses.proximal_gradient(state.weights.params, state.anchor.params, weight=train.fedprox)
    state = _move(setting, state, gradient, buffers)
    triplet, extra, total = (term.detach() for term in found[0])
    active = losses.active_share(triplet)
    state = replace(
        state,
        points_seen=state.points_seen + num_local + num_pulled(setting, state),
        updates=state.updates + 1,
        active=float((total > 0).double().mean()),
    )
    return state, StepReport(
        loss=float(total.mean()),
        triplet=float(triplet.mean()),
        regulariser=float(extra.mean()),
        weight=weight,
        active=active,
        pulled_share=float((drawn.positions >= num_local).double().mean()),
    )


class _Terms(NamedTuple):
    triplet: Tensor
    extra: Tensor
    total: Tensor


def _terms(setting: Setting, state: DeviceState, embeddings: Tensor, triplets: Tensor | None, weight: float) -> _Terms:
    """The terms of the loss, triplet by triplet."""
    first, second, third = embeddings.chunk(3) if triplets is None else embeddings[triplets]
    triplet = losses.triplet_loss(first, second, third, margin=setting.config.train.margin)
    if weight == 0:
        return _Terms(triplet, torch.zeros_like(triplet), triplet)
    reduction = setting.config.regulariser.reduction
    extra = losses.regulariser(first, second, state.pulled, margin=state.margin, reduction=reduction)
    return _Terms(triplet, extra, losses.regularised_triplet_loss(triplet, extra, weight=weight))


def _open_gradient(
    setting: Setting, state: DeviceState, batch: Batch, is_open: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    """The gradient of the whole batch's mean loss, from its open triplets alone."""
    # A few closed ones fill up: convolutions are prepared anew for every size of batch.
    size = -(-int(is_open.sum()) // ROUNDED_TO) * ROUNDED_TO
    if size == 0:
        return torch.zeros_like(state.weights.params), state.weights.buffers
    rows = is_open.to(torch.int8).argsort(descending=True, stable=True)[:size]

    def loss(embeddings: Tensor) -> Tensor:
        return _terms(setting, state, embeddings, None, weight).total.sum() / len(is_open)

    return setting.encoder.gradient(state.weights, batch.by_role[:, rows].flatten(0, 1), loss)


def upload(state: DeviceState, step: int) -> LocalModel:
    """The model for the server, weighted by the mean number of points held since the last aggregation."""
    weight = state.points_seen / state.updates if state.updates else float(len(state.points))
    return LocalModel(state.id, SERVER, step, state.weights.params, state.weights.buffers, weight, state.extras)


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
        extras=model.extras,
    )


def _regulariser_weight(setting: Setting, state: DeviceState, step: int) -> float:
    """W_t, Eq. (25), where there is anything to weigh; else 0."""
    config = setting.config
    if setting.explicit or len(state.pulled) == 0:
        return 0.0
    age = 1.0 if config.regulariser.staleness == "constant" else (step - state.pulled_at) / config.exchange.period
    return losses.regulariser_weight(
        step,
        num_steps=config.train.steps,
        aggregation_period=config.aggregation.period,
        weight=config.regulariser.weight,
        staleness=config.regulariser.staleness_factor * age,
    )


def _move(setting: Setting, state: DeviceState, gradient: Tensor, buffers: Tensor) -> DeviceState:
    train = setting.config.train
    if train.optimiser == "sgd":
        params = optimisers.sgd_update(state.weights.params, gradient, learning_rate=train.learning_rate)
        return replace(state, weights=Weights(params, buffers))
    params, moments = optimisers.adam_update(
        state.weights.params, gradient, state.moments, learning_rate=train.learning_rate
    )
    return replace(state, weights=Weights(params, buffers), moments=moments)
