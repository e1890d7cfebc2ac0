"""The receiver's side of an exchange: its reserve, its requests, and what it absorbs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import Config
from cfcl.core import importance, losses, shares
from cfcl.core.clustering import Clusters
from cfcl.data.augment import augment
from cfcl.device import guard
from cfcl.device.state import DeviceState, Setting, no_items
from cfcl.device.transmitter import as_sent, blurred, cluster, layer_pairs, pixels
from cfcl.exchange import checks
from cfcl.exchange.messages import ActivationReserve, DataReserve, EmbeddingReserve, Items, PullRequest, Reserve
from cfcl.exchange.policies import Randomness
from cfcl.models import Weights, as_input


def push(
    setting: Setting, state: DeviceState, step: int, neighbours: Sequence[int]
) -> tuple[DeviceState, list[Reserve]]:
    """The reserves due to the neighbours, Eq. (6) and (13); chosen once, embedded anew each time."""
    if setting.policy.offer is None:
        return state, []
    due = [other for other in neighbours if _is_due(setting, state, other, step)]
    sizes = {other: size for other in due if (size := reserve_due(setting, other, state.id)) > 0}
    state = _choose_reserves(setting, state, set(sizes.values()))
    shown = {size: _shown(setting, state, state.own_reserve[size], step) for size in sorted(set(sizes.values()))}
    return state, [replace(shown[size], target=other) for other, size in sizes.items()]


def _is_due(setting: Setting, state: DeviceState, other: int, step: int) -> bool:
    """Whether `other` is to get the reserve at `step`.

    Where it is pushed once and may get lost, it is pushed again if `other` was asked for items and never sent any.
    """
    if step == 0 or not (setting.schedule.push_once and setting.schedule.push_again):
        return True
    asked = (items_wanted(setting, other, state.id, t) > 0 for t in setting.schedule.exchange_steps if t < step)
    return other not in state.heard and any(asked)


def _shown(setting: Setting, state: DeviceState, chosen: Tensor, step: int) -> Reserve:
    """A reserve as it is sent, to nobody yet: datapoints, activations or embeddings, and what is measured of them."""
    head, points = (state.id, state.id, step), state.points[chosen]
    if setting.explicit:
        return DataReserve(*head, points, _measured(setting, state, pixels, pixels(points), step))
    model = state.weights if setting.config.exchange.importance_model == "both_local" else state.anchor
    if setting.layer is None:
        embed = partial(setting.encoder.embed, model)
        embeddings = blurred(setting, embed(points), "push", state.id, step, len(points))
        return EmbeddingReserve(*head, embeddings, _measured(setting, state, embed, embeddings, step))
    images = as_input(points, setting.encoder.device)
    stream = rng.stream(setting.config.seed, "reserve-augment", state.id, step)
    pairs = layer_pairs(setting, model, images, augment(images, setting.config.augment, stream))
    pairs = blurred(setting, pairs, "push", state.id, step, len(points))
    as_rows = partial(_flat_activations, setting, model)
    numbers = _measured(setting, state, as_rows, pairs[:, 0].flatten(1), step)
    return ActivationReserve(*head, *as_sent(setting, pairs), numbers)


def _flat_activations(setting: Setting, model: Weights, points: Tensor) -> Tensor:
    assert setting.layer is not None
    return setting.encoder.activations(model, points, setting.layer).flatten(1)


def _measured(
    setting: Setting, state: DeviceState, as_rows: Callable[[Tensor], Tensor], reserve: Tensor, step: int
) -> Tensor | None:
    """The numbers that go with a reserve, if any: from all own points by pixels, else from as many as candidates."""
    if setting.policy.measure is None:
        return None
    own = state.points.all()
    if not setting.explicit:
        uniforms = Randomness(setting.config.seed, state.id, step).uniforms("measured", len(own))
        own = own[importance.uniform_sample(uniforms, setting.budgets.candidates(state.id)).to(own.device)]
    return checks.measure(setting.policy, as_rows(own), reserve, setting.config.exchange)


def reserve_due(setting: Setting, transmitter: int, receiver: int) -> int:
    """Points in the reserve that `receiver` pushes to `transmitter`; none where nothing is ever pulled."""
    if setting.policy.offer is None or not setting.budgets.ever_pulled(transmitter, receiver):
        return 0
    if not setting.permits(transmitter, receiver):
        return 0
    return setting.budgets.reserve(transmitter, receiver)


def store(state: DeviceState, reserve: Reserve) -> DeviceState:
    """Keep a neighbour's reserve for scoring; it is never trained on."""
    return replace(state, reserves={**state.reserves, reserve.source: reserve})


def request(setting: Setting, state: DeviceState, step: int, neighbours: Sequence[int]) -> list[PullRequest]:
    """Ask every neighbour whose link has a budget for its share of items.

    With adaptive budgets, neighbours that have told how much of theirs is new share the sum of their budgets by that;
    those that have not are asked for their own budget.
    """
    wanted = {other: size for other in neighbours if (size := items_wanted(setting, other, state.id, step)) > 0}
    known = [other for other in wanted if other in state.news]
    parts = shares.split(sum(wanted[other] for other in known), [state.news[other] for other in known])
    wanted |= dict(zip(known, parts, strict=True))
    return [PullRequest(state.id, other, step, size) for other, size in wanted.items()]


def absorb(setting: Setting, state: DeviceState, items: Sequence[Items], step: int) -> DeviceState:
    """Take in what was pulled, by the buffer policy, and set the dynamic margin, Eq. (24).

    Items of one exchange may come in several portions: only the first makes room.
    """
    parts = guard.accepted(setting, state, items)
    received = torch.cat([no_items(setting), *parts])
    counts = torch.tensor([len(part) for part in parts])
    sources = torch.tensor([item.source for item in items]).repeat_interleave(counts)
    if state.pulled_at == step:
        pulled, sources = torch.cat([state.pulled, received]), torch.cat([state.sources, sources])
    else:
        pulled = retain(setting.config, state.pulled, received)
        sources = retain(setting.config, state.sources, sources)
    pulled, sources = guard.held(setting, pulled, sources)
    margin = 0.0 if setting.joins else _dynamic_margin(setting, state, step)
    heard = {**state.heard, **{item.source: step for item in items}}
    news = {**state.news, **{item.source: item.new for item in items if item.new is not None}}
    return replace(state, pulled=pulled, sources=sources, pulled_at=step, margin=margin, heard=heard, news=news)


def retain(config: Config, held: Tensor, received: Tensor) -> Tensor:
    """What a buffer holds after `received` arrives: that alone, or the newest of both up to a limit, or both."""
    if config.exchange.retention == "purge":
        return received
    both = torch.cat([held, received])
    return both[-config.exchange.buffer_size :] if config.exchange.retention == "limit" else both


def _choose_reserves(setting: Setting, state: DeviceState, sizes: set[int]) -> DeviceState:
    missing = sorted(sizes - set(state.own_reserve))
    if not missing:
        return state
    points, draws = pixels(state.points.all()), Randomness(setting.config.seed, state.id, 0)
    chosen = {size: checks.offer(setting.policy, points, size, setting.config.exchange, draws) for size in missing}
    return replace(state, own_reserve={**state.own_reserve, **chosen})


def items_wanted(setting: Setting, transmitter: int, receiver: int, step: int) -> int:
    """How many items `receiver` may ask `transmitter` for at `step`; all of the run's at once, if there is one pull."""
    if not setting.permits(transmitter, receiver):
        return 0
    if setting.policy.when == "start":
        return setting.budgets.pulled_over(transmitter, receiver, setting.schedule.exchange_steps)
    return setting.budgets.pulled(transmitter, receiver, step)


def _dynamic_margin(setting: Setting, state: DeviceState, step: int) -> float:
    settings = setting.config.regulariser
    embeddings, clusters = own_candidates(setting, state, step)
    if len(embeddings) == 0:
        return 0.0
    own_centroids = clusters.centroids[0][clusters.assignment[0]]
    member = importance.membership(clusters.assignment[0], clusters.centroids.shape[1])
    radii = importance.cluster_radii((embeddings - own_centroids).square().sum(-1), member)
    return losses.regulariser_margin(
        radii, clusters.counts[0] > 0, factor=settings.radius_factor, radius=settings.radius
    )


def own_candidates(setting: Setting, state: DeviceState, step: int) -> tuple[Tensor, Clusters]:
    """Embeddings under the global model, and clusters, of the candidates that are the device's own points."""
    assert state.candidates is not None
    candidates = state.candidates
    own = candidates.positions[candidates.positions < len(state.points)]
    if len(own) == len(candidates.embeddings) and setting.config.exchange.importance_model == "global":
        return candidates.embeddings, candidates.clusters
    embeddings = setting.encoder.embed(state.anchor, state.points[own])
    (clusters,) = cluster(setting, [state.id], [embeddings], step)
    return embeddings, clusters
