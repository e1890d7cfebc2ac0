"""Local training: one update, the model that goes up, and the one that comes down."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cfcl.core import averaging, losses, optimisers
from cfcl.device.batching import Batch, draw_batches, num_pulled
from cfcl.device.state import DeviceState, Setting, fresh_moments
from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel
from cfcl.models import Weights
from cfcl.objectives import Seen, Terms

WORTHWHILE = 0.5
"""Share of open triplets in the last batch below which a forward pass to find the open ones pays."""
ROUNDED_TO = 4


@dataclass(frozen=True)
class StepReport:
    """What one update looked like."""

    loss: float
    triplet: float
    """The objective's own term, whichever it is: the loss without what pulled embeddings add."""
    regulariser: float
    weight: float
    active: float
    """Share of the batch whose hinge is open; 1 for objectives without one."""
    pulled_share: float


def local_step(
    setting: Setting, state: DeviceState, step: int, batch: Batch | None = None
) -> tuple[DeviceState, StepReport]:
    """One update, Eq. (4), on the objective of the run.

    `batch` is the one that `draw_batches` has for this step, if somebody has drawn it already.
    """
    drawn = batch or draw_batches(setting, [state], step)[0]
    weight = _regulariser_weight(setting, state, step)
    gradient, buffers, terms = _gradient(setting, state, drawn, weight)
    fedprox = setting.config.train.fedprox
    if fedprox > 0:
        gradient += losses.proximal_gradient(state.weights.params, state.anchor.params, weight=fedprox)
    moved = _move(setting, state, step, gradient, buffers)
    moved = replace(
        moved,
        points_seen=state.points_seen + len(state.points) + num_pulled(setting, state),
        updates=state.updates + 1,
        active=_active(setting, terms.total),
        extras=setting.objective.follow(state.extras, moved.weights.params),
    )
    return moved, StepReport(
        loss=float(terms.total.mean()),
        triplet=float(terms.own.mean()),
        regulariser=float(terms.regulariser.mean()),
        weight=weight,
        active=_active(setting, terms.own),
        pulled_share=float((drawn.positions >= len(state.points)).double().mean()),
    )


def _gradient(setting: Setting, state: DeviceState, batch: Batch, weight: float) -> tuple[Tensor, Tensor, Terms]:
    """The gradient of the mean loss, the buffers after the forward pass, and the terms of the loss."""
    encoder, objective = setting.encoder, setting.objective

    def terms(seen: Seen) -> Terms:
        return objective.terms(seen, received=state.pulled, margin=state.margin, weight=weight)

    # A closed hinge has no gradient: where few are open, they alone go through the backward pass.
    worthwhile = state.active < WORTHWHILE and batch.entering is None
    if objective.separable and encoder.is_pure and worthwhile:
        found = terms(Seen(encoder.embed(state.weights, batch.images), batch.roles))
        return *_open_gradient(setting, state, batch, found.total > 0, terms), found
    target = objective.target(state.extras)
    targets = None
    if target is not None:
        targets = encoder.embed(Weights(target, state.weights.buffers), batch.images, batch.entering)

    def loss(embeddings: Tensor) -> tuple[Tensor, Terms]:
        found = terms(Seen(embeddings, batch.roles, encoder.predict(embeddings), targets))
        return found.total.mean(), Terms(*(term.detach() for term in found))

    return encoder.gradient(state.weights, batch.images, loss, batch.entering)


def _open_gradient(
    setting: Setting, state: DeviceState, batch: Batch, is_open: Tensor, terms: Callable[[Seen], Terms]
) -> tuple[Tensor, Tensor]:
    """The gradient of the whole batch's mean loss, from its open rows alone."""
    # A few closed ones fill up: convolutions are prepared anew for every size of batch.
    size = -(-int(is_open.sum()) // ROUNDED_TO) * ROUNDED_TO
    if size == 0:
        return torch.zeros_like(state.weights.params), state.weights.buffers
    rows = is_open.to(torch.int8).argsort(descending=True, stable=True)[:size]

    def loss(embeddings: Tensor) -> tuple[Tensor, None]:
        return terms(Seen(embeddings)).total.sum() / len(is_open), None

    gradient, buffers, _ = setting.encoder.gradient(state.weights, batch.by_role[:, rows].flatten(0, 1), loss)
    return gradient, buffers


def _active(setting: Setting, terms: Tensor) -> float:
    return losses.active_share(terms) if setting.objective.separable else 1.0


def upload(setting: Setting, state: DeviceState, step: int) -> LocalModel:
    """The model for the server, weighted by the mean number of points held since the last aggregation."""
    weight = state.points_seen / state.updates if state.updates else float(len(state.points))
    extras = {name: state.extras[name] for name in setting.averaged}
    return LocalModel(state.id, SERVER, step, state.weights.params, state.weights.buffers, weight, extras)


def adopt(setting: Setting, state: DeviceState, model: GlobalModel) -> DeviceState:
    """Take over the global model, or mix it into the own one."""
    aggregation, own = setting.config.aggregation, state.weights
    anchor = Weights(model.params, model.buffers)
    params, scaler = model.params, state.scaler
    if aggregation.adopt == "fedema":
        scaler = scaler or averaging.autoscaler(own.params, params, share=aggregation.autoscaler)
        params = averaging.mixture(own.params, params, scaler=scaler)
    return replace(
        state,
        weights=Weights(params, own.buffers if aggregation.buffers == "local" else model.buffers),
        anchor=anchor,
        scaler=scaler,
        moments=state.moments if aggregation.moments == "keep" else fresh_moments(anchor),
        points_seen=0,
        updates=0,
        extras={**state.extras, **model.extras},
    )


def _regulariser_weight(setting: Setting, state: DeviceState, step: int) -> float:
    """W_t, Eq. (25), where there is anything to weigh; else 0."""
    config = setting.config
    if setting.joins or len(state.pulled) == 0:
        return 0.0
    age = 1.0 if config.regulariser.staleness == "constant" else (step - state.pulled_at) / config.exchange.period
    return losses.regulariser_weight(
        step,
        num_steps=config.train.steps,
        aggregation_period=config.aggregation.period,
        weight=config.regulariser.weight,
        staleness=config.regulariser.staleness_factor * age,
    )


def _move(setting: Setting, state: DeviceState, step: int, gradient: Tensor, buffers: Tensor) -> DeviceState:
    train, params = setting.config.train, state.weights.params
    rate = optimisers.learning_rate(
        step, peak=train.learning_rate, num_steps=train.steps, schedule=train.schedule, warmup=train.warmup
    )
    if train.weight_decay > 0:
        params = optimisers.decay_weights(params, learning_rate=rate, weight_decay=train.weight_decay)
    if train.optimiser == "sgd":
        params = optimisers.sgd_update(params, gradient, learning_rate=rate)
        return replace(state, weights=Weights(params, buffers))
    params, moments = optimisers.adam_update(params, gradient, state.moments, learning_rate=rate)
    return replace(state, weights=Weights(params, buffers), moments=moments)
