"""A device: a state machine over frozen messages. No I/O, no clock, no neighbour's state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from cfcl import rng, schedule
from cfcl.config import Config
from cfcl.core import averaging, batches, clustering, importance, losses
from cfcl.core.averaging import Moments
from cfcl.core.clustering import Clusters
from cfcl.core.metrics import effective_number
from cfcl.data.augment import augment
from cfcl.errors import CfclError
from cfcl.exchange.links import Budgets
from cfcl.exchange.messages import (
    SERVER,
    DataItems,
    DataReserve,
    EmbeddingItems,
    EmbeddingReserve,
    GlobalModel,
    Items,
    LocalModel,
    PullRequest,
    Reserve,
)
from cfcl.exchange.policies import Draws, Policy, Pull
from cfcl.models import Encoder, Weights, as_input
from cfcl.schedule import Schedule


@dataclass(frozen=True)
class Setting:
    """What all devices of a run share."""

    config: Config
    encoder: Encoder
    policy: Policy
    schedule: Schedule
    budgets: Budgets


@dataclass(frozen=True)
class Candidates:
    """What a device may send at this exchange, Eq. (7) and (14)."""

    positions: Tensor
    """Places in its own points, followed by what it pulled before (candidates `relay`)."""
    payload: Tensor
    """The datapoints (mode `explicit`) or embeddings (mode `implicit`) themselves."""
    embeddings: Tensor
    """Under the importance model; the payload of blind policies is not embedded, and this is empty."""
    clusters: Clusters
    """Clusters of the embeddings, a batch of one."""


@dataclass(frozen=True)
class DeviceState:
    """Everything a device knows. Tensors in it are never changed in place."""

    id: int
    points: Tensor
    """Own datapoints, uint8."""
    weights: Weights
    moments: Moments
    anchor: Weights
    """The last global model."""
    pulled: Tensor
    """Datapoints (mode `explicit`) or embeddings (mode `implicit`) from neighbours."""
    pulled_at: int = 0
    own_reserve: Mapping[int, Tensor] = field(default_factory=dict)
    """Positions of the reserve, by its size; chosen once."""
    reserves: Mapping[int, Reserve] = field(default_factory=dict)
    """The newest reserve of every neighbour."""
    candidates: Candidates | None = None
    margin: float = 0.0
    """The dynamic margin, Eq. (24)."""
    points_seen: int = 0
    """Sum of |D_i^t| over the updates since the last aggregation."""
    updates: int = 0
    """Number of those updates."""


@dataclass(frozen=True)
class StepReport:
    """What one update looked like."""

    loss: float
    triplet: float
    regulariser: float
    weight: float
    active: float
    pulled_share: float


@dataclass(frozen=True)
class Answer:
    """A transmitter's reply, and what only it may know of the choice."""

    items: Items
    positions: Tensor
    effective_candidates: float


def start(setting: Setting, device: int, points: Tensor) -> DeviceState:
    """A device that has just received the initial global model (Alg. 1)."""
    initial = setting.encoder.initial
    return DeviceState(
        id=device,
        points=points,
        weights=initial,
        moments=_fresh_moments(initial),
        anchor=initial,
        pulled=_no_items(setting, points),
    )


def push(
    setting: Setting, state: DeviceState, step: int, neighbours: Sequence[int]
) -> tuple[DeviceState, list[Reserve]]:
    """The reserves due to the neighbours, Eq. (6) and (13); chosen once, embedded anew each time."""
    if setting.policy.offer is None:
        return state, []
    sizes = {
        other: setting.budgets.reserve(other, state.id)
        for other in neighbours
        if setting.budgets.pulled(other, state.id) > 0
    }
    state = _choose_reserves(setting, state, set(sizes.values()))
    if setting.config.exchange.mode == "explicit":
        return state, [
            DataReserve(state.id, other, step, state.points[state.own_reserve[size]]) for other, size in sizes.items()
        ]
    embedded = {
        size: setting.encoder.embed(state.anchor, state.points[chosen]) for size, chosen in state.own_reserve.items()
    }
    return state, [EmbeddingReserve(state.id, other, step, embedded[size]) for other, size in sizes.items()]


def store(state: DeviceState, reserve: Reserve) -> DeviceState:
    """Keep a neighbour's reserve for scoring; it is never trained on."""
    return replace(state, reserves={**state.reserves, reserve.source: reserve})


def prepare(setting: Setting, state: DeviceState, step: int) -> DeviceState:
    """Draw the candidates of this exchange, one draw for all neighbours, Eq. (7) and (14)."""
    explicit = setting.config.exchange.mode == "explicit"
    positions = _draw_candidates(setting, state, step)
    own, relayed = positions[positions < len(state.points)], positions[positions >= len(state.points)]
    points, passed_on = state.points[own], state.pulled[relayed - len(state.points)]
    if explicit:
        points, passed_on = torch.cat([points, passed_on]), _no_embeddings(setting)
    wanted = setting.policy.scores or not explicit
    embeddings = torch.cat([_embed(setting, state, points), passed_on]) if wanted else _no_embeddings(setting)
    clusters = cluster(setting, state, embeddings, step)
    return replace(
        state,
        candidates=Candidates(torch.cat([own, relayed]), points if explicit else embeddings, embeddings, clusters),
    )


def request(setting: Setting, state: DeviceState, step: int, neighbours: Sequence[int]) -> list[PullRequest]:
    """Ask every neighbour for its share of items."""
    wanted = {other: _items_wanted(setting, other, state.id) for other in neighbours}
    return [PullRequest(state.id, other, step, size) for other, size in wanted.items() if size > 0]


def answer(setting: Setting, state: DeviceState, requests: Sequence[PullRequest], step: int) -> list[Answer]:
    """Choose what each receiver gets, by Alg. 2, Alg. 3 or a baseline."""
    sizes = sorted({_reserve_size(state, message.source) for message in requests})
    answers = [
        reply
        for size in sizes
        for reply in _answer_alike(
            setting,
            state,
            [message for message in requests if _reserve_size(state, message.source) == size],
            step,
        )
    ]
    return sorted(answers, key=lambda reply: reply.items.target)


def absorb(setting: Setting, state: DeviceState, items: Sequence[Items], step: int) -> DeviceState:
    """Take in what was pulled, by the buffer policy, and set the dynamic margin, Eq. (24)."""
    exchange = setting.config.exchange
    received = [item.points if isinstance(item, DataItems) else item.embeddings for item in items]
    pulled = retain(setting.config, state.pulled, torch.cat([_no_items(setting, state.points), *received]))
    margin = _dynamic_margin(setting, state, step) if exchange.mode == "implicit" else 0.0
    return replace(state, pulled=pulled, pulled_at=step, margin=margin)


def retain(config: Config, held: Tensor, received: Tensor) -> Tensor:
    """What a buffer holds after `received` arrives: that alone, or the newest of both up to a limit, or both."""
    if config.exchange.buffer == "purge":
        return received
    both = torch.cat([held, received])
    return both[-config.exchange.buffer_size :] if config.exchange.buffer == "limit" else both


def local_step(setting: Setting, state: DeviceState, step: int) -> tuple[DeviceState, StepReport]:
    """One update, Eq. (4), on the triplet loss, Eq. (1), or on its regularised form, Eq. (23)."""
    config, encoder, device = setting.config, setting.encoder, setting.encoder.device
    train = config.train
    explicit = config.exchange.mode == "explicit"
    num_local, num_pulled = len(state.points), len(state.pulled) if explicit else 0
    uniforms = torch.rand(
        (4, train.batch_size), dtype=torch.float64, generator=rng.stream(config.seed, "batch", state.id, step)
    )
    anchor, negative = batches.compose(
        uniforms,
        num_local=num_local,
        num_pulled=num_pulled,
        composition=train.composition,
        remote_fraction=train.remote_fraction,
    )
    anchors = as_input(_take(state, anchor), device)
    positives = augment(anchors, config.augment, rng.stream(config.seed, "augment", state.id, step))
    images = torch.cat([anchors, positives, as_input(_take(state, negative), device)])
    weight = _regulariser_weight(setting, state, step)
    terms: list[Tensor] = []

    def loss(embeddings: Tensor) -> Tensor:
        first, second, third = embeddings.chunk(3)
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
    pulled = ((anchor >= num_local).sum() + (negative >= num_local).sum()) / (2 * train.batch_size)
    return state, StepReport(
        loss=float(terms[2]),
        triplet=float(terms[0].mean()),
        regulariser=float(terms[1].mean()),
        weight=weight,
        active=losses.active_share(terms[0]),
        pulled_share=float(pulled),
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
        moments=state.moments if aggregation.moments == "keep" else _fresh_moments(anchor),
        points_seen=0,
        updates=0,
    )


def check(setting: Setting, state: DeviceState) -> None:
    """Refuse a device that holds too few points for what it would have to offer."""
    exchange = setting.config.exchange
    if setting.policy.choose is None:
        return
    if setting.policy.offer is not None:
        largest = max([exchange.num_reserve, *(reserve for _, reserve in setting.budgets.special.values())])
        _check_size("num_reserve", largest, state)
    if not setting.policy.once:
        _check_size("num_candidates", exchange.num_candidates, state)
    _check_size("num_clusters", exchange.num_clusters, state)


def _check_size(name: str, value: int, state: DeviceState) -> None:
    if value > len(state.points):
        raise CfclError(
            f"exchange.{name}={value} exceeds the {len(state.points)} points of device {state.id}: lower "
            f"exchange.{name}, use fewer devices, or raise partition.min_points"
        )


def _fresh_moments(weights: Weights) -> Moments:
    return Moments(torch.zeros_like(weights.params), torch.zeros_like(weights.params), 0)


def _no_embeddings(setting: Setting) -> Tensor:
    encoder = setting.encoder
    return torch.zeros(0, encoder.config.embedding_dim, device=encoder.device)


def _no_items(setting: Setting, points: Tensor) -> Tensor:
    return points[:0] if setting.config.exchange.mode == "explicit" else _no_embeddings(setting)


def _draws(setting: Setting, state: DeviceState, step: int, receivers: tuple[int, ...] = ()) -> Draws:
    return Draws(setting.config.seed, state.id, step, receivers)


def _choose_reserves(setting: Setting, state: DeviceState, sizes: set[int]) -> DeviceState:
    missing = sorted(sizes - set(state.own_reserve))
    if not missing:
        return state
    assert setting.policy.offer is not None
    pixels = state.points.flatten(1).float() / 255.0
    chosen = {
        size: setting.policy.offer(pixels, size, setting.config.exchange, _draws(setting, state, 0)) for size in missing
    }
    return replace(state, own_reserve={**state.own_reserve, **chosen})


def _draw_candidates(setting: Setting, state: DeviceState, step: int) -> Tensor:
    exchange = setting.config.exchange
    if setting.policy.once:
        return torch.arange(len(state.points), device=state.points.device)
    when = setting.schedule.last_aggregation(step) if exchange.candidates == "per_aggregation" else step
    pool = len(state.points) + (len(state.pulled) if exchange.candidates == "relay" else 0)
    uniforms = _draws(setting, state, when).shared("candidates", pool)
    return importance.uniform_sample(uniforms, exchange.num_candidates).to(state.points.device)


def _embed(setting: Setting, state: DeviceState, points: Tensor) -> Tensor:
    model = state.anchor if setting.config.exchange.importance_model == "global" else state.weights
    return setting.encoder.embed(model, points)


def cluster(setting: Setting, state: DeviceState, embeddings: Tensor, step: int) -> Clusters:
    """Clusters of a device's candidate embeddings, as a batch of one; none for no embeddings."""
    size = setting.config.exchange.num_clusters
    if len(embeddings) == 0:
        return Clusters(
            torch.zeros(1, 0, dtype=torch.int64, device=embeddings.device),
            embeddings.new_zeros(1, size, embeddings.shape[1]),
            torch.zeros(1, size, dtype=torch.int64, device=embeddings.device),
        )
    seeds = _draws(setting, state, step).shared("own-clusters", 1, size).to(embeddings)
    return clustering.kmeans(embeddings.unsqueeze(0), size, seeds)


def _items_wanted(setting: Setting, transmitter: int, receiver: int) -> int:
    number = setting.budgets.pulled(transmitter, receiver)
    return number * setting.schedule.num_exchanges if setting.policy.once else number


def _reserve_size(state: DeviceState, receiver: int) -> int:
    reserve = state.reserves.get(receiver)
    if reserve is None:
        return 0
    return len(reserve.points) if isinstance(reserve, DataReserve) else len(reserve.embeddings)


def _answer_alike(setting: Setting, state: DeviceState, requests: list[PullRequest], step: int) -> list[Answer]:
    """Answers to receivers whose reserves are of one size, so that their links are one batch."""
    assert state.candidates is not None
    assert setting.policy.choose is not None
    candidates, config = state.candidates, setting.config
    receivers = tuple(message.source for message in requests)
    reserve, positives = _embed_reserves(setting, state, receivers, step)
    pull = Pull(
        # A blind policy sees only how many candidates there are.
        candidates=candidates.embeddings if len(candidates.embeddings) else candidates.payload.flatten(1).float(),
        clusters=candidates.clusters,
        reserve=reserve,
        positives=positives,
        num_items=tuple(message.num_items for message in requests),
        temperature=schedule.temperature(
            step,
            num_steps=config.train.steps,
            start=config.exchange.temperature_start,
            end=config.exchange.temperature_end,
        ),
        margin=config.train.margin,
        config=config.exchange,
        draws=_draws(setting, state, step, receivers),
    )
    selection = setting.policy.choose(pull)
    effective = effective_number(selection.log_probabilities.exp()).tolist()
    kind = DataItems if config.exchange.mode == "explicit" else EmbeddingItems
    return [
        Answer(kind(state.id, receiver, step, candidates.payload[chosen]), candidates.positions[chosen], number)
        for receiver, chosen, number in zip(receivers, selection.chosen, effective, strict=True)
    ]


def _embed_reserves(
    setting: Setting, state: DeviceState, receivers: tuple[int, ...], step: int
) -> tuple[Tensor | None, Tensor | None]:
    """The receivers' reserves as embeddings and, where they are datapoints, those of one augmentation of each."""
    if setting.policy.offer is None:
        return None, None
    reserves = [state.reserves[receiver] for receiver in receivers]
    if not isinstance(reserves[0], DataReserve):
        return torch.stack([item.embeddings for item in reserves if isinstance(item, EmbeddingReserve)]), None
    device = setting.encoder.device
    images = as_input(torch.cat([item.points for item in reserves if isinstance(item, DataReserve)]), device)
    altered = augment(
        images, setting.config.augment, rng.stream(setting.config.seed, "reserve-augment", state.id, step)
    )
    shape = (len(receivers), -1, setting.encoder.config.embedding_dim)
    both = _embed(setting, state, torch.cat([images, altered]))
    return both[: len(images)].view(shape), both[len(images) :].view(shape)


def _dynamic_margin(setting: Setting, state: DeviceState, step: int) -> float:
    assert state.candidates is not None
    settings, candidates = setting.config.regulariser, state.candidates
    embeddings, clusters = candidates.embeddings, candidates.clusters
    if setting.config.exchange.importance_model == "local":
        own = candidates.positions[candidates.positions < len(state.points)]
        embeddings = setting.encoder.embed(state.anchor, state.points[own])
        clusters = cluster(setting, state, embeddings, step)
    own_centroids = clusters.centroids[0][clusters.assignment[0]]
    member = importance.membership(clusters.assignment[0], clusters.centroids.shape[1])
    radii = importance.cluster_radii((embeddings - own_centroids).square().sum(-1), member)
    return losses.regulariser_margin(
        radii, clusters.counts[0] > 0, factor=settings.radius_factor, radius=settings.radius
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
