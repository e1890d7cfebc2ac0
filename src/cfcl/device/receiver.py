"""The receiver's side of an exchange: its reserve, its requests, and what it absorbs."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import Config
from cfcl.core import importance, losses
from cfcl.core.clustering import Clusters
from cfcl.data.augment import augment
from cfcl.device.state import DeviceState, Setting, no_items
from cfcl.device.transmitter import as_sent, cluster, layer_pairs, pixels
from cfcl.exchange import checks
from cfcl.exchange.messages import ActivationReserve, DataReserve, EmbeddingReserve, Items, PullRequest, Reserve
from cfcl.exchange.policies import Offering, Randomness
from cfcl.models import Weights, as_input


def push(
    setting: Setting, state: DeviceState, step: int, neighbours: Sequence[int]
) -> tuple[DeviceState, list[Reserve]]:
    """The reserves due to the neighbours, Eq. (6) and (13); chosen once, embedded anew each time."""
    if setting.policy.offer is None:
        return state, []
    sizes = {other: size for other in neighbours if (size := reserve_due(setting, other, state.id)) > 0}
    state = _choose_reserves(setting, state, set(sizes.values()))
    if setting.explicit:
        points = {size: (state.points[chosen.positions], chosen.numbers) for size, chosen in state.own_reserve.items()}
        return state, [DataReserve(state.id, other, step, *points[size]) for other, size in sizes.items()]
    model = state.weights if setting.config.exchange.importance_model == "both_local" else state.anchor
    if setting.layer is not None:
        values = {
            size: (*_activations(setting, state, model, chosen, step), chosen.numbers)
            for size, chosen in state.own_reserve.items()
        }
        return state, [ActivationReserve(state.id, other, step, *values[size]) for other, size in sizes.items()]
    embedded = {
        size: (setting.encoder.embed(model, state.points[chosen.positions]), chosen.numbers)
        for size, chosen in state.own_reserve.items()
    }
    return state, [EmbeddingReserve(state.id, other, step, *embedded[size]) for other, size in sizes.items()]


def _activations(
    setting: Setting, state: DeviceState, model: Weights, chosen: Offering, step: int
) -> tuple[Tensor, Tensor | None]:
    """What the layer makes of reserve points and of one augmentation of each, as it is sent."""
    config = setting.config
    images = as_input(state.points[chosen.positions], setting.encoder.device)
    altered = augment(images, config.augment, rng.stream(config.seed, "reserve-augment", state.id, step))
    return as_sent(setting, layer_pairs(setting, model, images, altered))


def reserve_due(setting: Setting, transmitter: int, receiver: int) -> int:
    """Points in the reserve that `receiver` pushes to `transmitter`; none where nothing is ever pulled."""
    if setting.policy.offer is None or not setting.budgets.ever_pulled(transmitter, receiver):
        return 0
    return setting.budgets.reserve(transmitter, receiver)


def store(state: DeviceState, reserve: Reserve) -> DeviceState:
    """Keep a neighbour's reserve for scoring; it is never trained on."""
    return replace(state, reserves={**state.reserves, reserve.source: reserve})


def request(setting: Setting, device: int, step: int, neighbours: Sequence[int]) -> list[PullRequest]:
    """Ask every neighbour for its share of items."""
    wanted = {other: items_wanted(setting, other, device, step) for other in neighbours}
    return [PullRequest(device, other, step, size) for other, size in wanted.items() if size > 0]


def absorb(setting: Setting, state: DeviceState, items: Sequence[Items], step: int) -> DeviceState:
    """Take in what was pulled, by the buffer policy, and set the dynamic margin, Eq. (24).

    Items of one exchange may come in several portions: only the first makes room.
    """
    received = torch.cat([no_items(setting), *(item.content for item in items)])
    if state.pulled_at == step:
        pulled = torch.cat([state.pulled, received])
    else:
        pulled = retain(setting.config, state.pulled, received)
    margin = 0.0 if setting.joins else _dynamic_margin(setting, state, step)
    return replace(state, pulled=pulled, pulled_at=step, margin=margin)


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
    """How many items `receiver` asks `transmitter` for at `step`; all of the run's at once, if there is one pull."""
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
