"""Push and pull, seen from one device: its reserve, its candidates, its answers, and what it absorbs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cfcl import rng, schedule
from cfcl.config import Config
from cfcl.core import clustering, importance, losses
from cfcl.core.clustering import Clusters
from cfcl.core.metrics import effective_number
from cfcl.data.augment import augment
from cfcl.device.state import Candidates, DeviceState, Setting, no_embeddings, no_items
from cfcl.exchange.messages import DataItems, DataReserve, EmbeddingItems, EmbeddingReserve, Items, PullRequest, Reserve
from cfcl.exchange.policies import Draws, Pull
from cfcl.models import as_input


@dataclass(frozen=True)
class Answer:
    """A transmitter's reply, and what only it may know of the choice."""

    items: Items
    positions: Tensor
    effective_candidates: float


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
        points, passed_on = torch.cat([points, passed_on]), no_embeddings(setting)
    wanted = setting.policy.scores or not explicit
    embeddings = torch.cat([_embed(setting, state, points), passed_on]) if wanted else no_embeddings(setting)
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
    pulled = retain(setting.config, state.pulled, torch.cat([no_items(setting, state.points), *received]))
    margin = _dynamic_margin(setting, state, step) if exchange.mode == "implicit" else 0.0
    return replace(state, pulled=pulled, pulled_at=step, margin=margin)


def retain(config: Config, held: Tensor, received: Tensor) -> Tensor:
    """What a buffer holds after `received` arrives: that alone, or the newest of both up to a limit, or both."""
    if config.exchange.buffer == "purge":
        return received
    both = torch.cat([held, received])
    return both[-config.exchange.buffer_size :] if config.exchange.buffer == "limit" else both


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
    shape = (len(receivers), -1, setting.encoder.embedding_dim)
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
