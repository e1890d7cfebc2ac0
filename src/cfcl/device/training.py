"""Local training: one update, the model that goes up, and the one that comes down."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cfcl import rng
from cfcl.core import averaging, batches, losses
from cfcl.data.augment import augment
from cfcl.device.state import DeviceState, Setting, fresh_moments
from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel
from cfcl.models import Weights, as_input


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
    config, encoder, device = setting.config, setting.encoder, setting.encoder.device
    train = config.train
    explicit = config.exchange.mode == "explicit"
    num_local, num_pulled = len(state.points), len(state.pulled) if explicit else 0
    anchor, negative = _compose(setting, state, step)
    anchors = as_input(_take(state, anchor), device)
    positives = augment(anchors, config.augment, rng.stream(config.seed, "augment", state.id, step))
    within = train.negatives == "batch"
    images = torch.cat(
        [anchors, positives] if within else [anchors, positives, as_input(_take(state, negative), device)]
    )
    weight = _regulariser_weight(setting, state, step)
    terms: list[Tensor] = []

    def loss(embeddings: Tensor) -> Tensor:
        first, second, *others = torch.split(embeddings, train.batch_size)
        third = first[negative] if within else others[0]
        triplet = losses.triplet_loss(first, second, third, margin=train.margin)
        extra = (
            triplet.new_zeros(len(triplet))
            if weight == 0
            else losses.regulariser(
                first, second, state.pulled, margin=state.margin, reduction=config.regulariser.reduction
            )
        )
        total = losses.regularised_triplet_loss(triplet, extra, weight=weight).mean()
        terms.extend([triplet.detach(), extra.detach(), total.detach()])
        return total

    gradient, buffers = encoder.gradient(state.weights, images, loss)
    if train.fedprox > 0:
        gradient += losses.proximal_gradient(state.weights.params, state.anchor.params, weight=train.fedprox)
    state = _move(setting, state, gradient, buffers)
    state = replace(state, points_seen=state.points_seen + num_local + num_pulled, updates=state.updates + 1)
    both = torch.cat([anchor, anchor[negative] if within else negative])
    return state, StepReport(
        loss=float(terms[2]),
        triplet=float(terms[0].mean()),
        regulariser=float(terms[1].mean()),
        weight=weight,
        active=losses.active_share(terms[0]),
        pulled_share=float((both >= num_local).double().mean()),
    )


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
