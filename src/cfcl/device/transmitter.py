"""The transmitter's side of a pull: its candidates, and what each receiver gets of them.

Devices that live together may go through together: links share no arithmetic, they are only faster side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from cfcl import rng, schedule
from cfcl.core import clustering, importance
from cfcl.core.clustering import Clusters
from cfcl.core.metrics import effective_number
from cfcl.data.augment import augment
from cfcl.device.state import Candidates, DeviceState, Setting, no_embeddings
from cfcl.exchange.messages import DataItems, DataReserve, EmbeddingItems, EmbeddingReserve, Items, PullRequest, Reserve
from cfcl.exchange.policies import Pull, Randomness
from cfcl.models import as_input

T = TypeVar("T")

MOST_TOGETHER = 512
"""Links, or K-means problems, solved at once; bounds the memory of a large simulation."""


@dataclass(frozen=True)
class Answer:
    """A transmitter's reply, and what only it may know of the choice."""

    items: Items
    positions: Tensor
    """Places among the transmitter's points, followed by what it had pulled."""
    embeddings: Tensor
    """The items under the importance model; empty if the policy is blind and nothing was embedded."""
    effective_candidates: float
    reasons: str = ""
    """Why each item was chosen, as JSON, if somebody wants to know."""


def prepare(setting: Setting, states: Sequence[DeviceState], step: int) -> list[DeviceState]:
    """Draw each device's candidates of this exchange, one draw for all its neighbours, Eq. (7) and (14)."""
    drawn = [_draw(setting, state, step) for state in states]
    found = cluster(setting, [state.id for state in states], [embeddings for _, _, embeddings in drawn], step)
    return [
        replace(state, candidates=Candidates(*parts, clusters))
        for state, parts, clusters in zip(states, drawn, found, strict=True)
    ]


def answer(setting: Setting, asked: Sequence[tuple[DeviceState, Sequence[PullRequest]]], step: int) -> list[Answer]:
    """Choose what each receiver gets, by Alg. 2, Alg. 3 or a baseline; in order of transmitter, then receiver."""
    # Without the receiver's reserve there is nothing to score against: such a request goes unanswered.
    links = [
        (state, message)
        for state, messages in asked
        for message in messages
        if setting.policy.offer is None or message.source in state.reserves
    ]
    alike: dict[tuple[int, int], list[tuple[DeviceState, PullRequest]]] = {}
    for state, message in links:
        assert state.candidates is not None
        size = (len(state.candidates.payload), _reserve_size(state, message.source))
        alike.setdefault(size, []).append((state, message))
    reserves = _Reserves(setting, step)
    answers = [
        reply
        for group in alike.values()
        for some in _portions(group)
        for reply in _answer_alike(setting, some, reserves, step)
    ]
    return sorted(answers, key=lambda reply: (reply.items.source, reply.items.target))


def cluster(setting: Setting, ids: Sequence[int], embeddings: Sequence[Tensor], step: int) -> list[Clusters]:
    """Clusters of each device's candidate embeddings, as a batch of one; no members for no embeddings."""
    size = setting.config.exchange.num_clusters
    found = [_no_clusters(part, size) for part in embeddings]
    for length in {len(part) for part in embeddings} - {0}:
        for some in _portions([place for place, part in enumerate(embeddings) if len(part) == length]):
            points = torch.stack([embeddings[place] for place in some])
            seeds = [Randomness(setting.config.seed, ids[place], step).uniforms("own-clusters", size) for place in some]
            clusters = clustering.kmeans(points, size, torch.stack(seeds).to(points))
            for row, place in enumerate(some):
                found[place] = _rows(clusters, [row])
    return found


def remembers(setting: Setting) -> bool:
    """Whether transmitters note what they have sent: if their policy asks for it and receivers keep what they get."""
    return setting.policy.remembers and setting.config.exchange.retention != "purge"


def remember(setting: Setting, state: DeviceState, answers: Sequence[Answer]) -> DeviceState:
    """Note the answers that `state` has sent, if that matters."""
    if not remembers(setting):
        return state
    own = {item.items.target: item.positions[item.positions < len(state.points)] for item in answers}
    news = {target: torch.cat([state.sent.get(target, found[:0]), found]) for target, found in own.items()}
    return replace(state, sent={**state.sent, **news})


class _Reserves:
    """Embeddings of receivers' reserves: under the global model all transmitters would find the same ones."""

    def __init__(self, setting: Setting, step: int) -> None:
        self._setting = setting
        self._step = step
        self._known: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    def embed(self, state: DeviceState, receiver: int) -> tuple[Tensor, Tensor]:
        """The reserve of `receiver` that `state` holds and one augmentation of each point; of embeddings, none."""
        reserve = state.reserves[receiver]
        if isinstance(reserve, EmbeddingReserve):
            return reserve.embeddings, reserve.embeddings[:0]
        shared = self._setting.config.exchange.importance_model == "global"
        key = (-1 if shared else state.id, receiver, len(reserve.points))
        if key not in self._known:
            self._known[key] = self._embed(state, reserve)
        return self._known[key]

    def _embed(self, state: DeviceState, reserve: DataReserve) -> tuple[Tensor, Tensor]:
        config = self._setting.config
        images = as_input(reserve.points, self._setting.encoder.device)
        # Keyed by the receiver: all transmitters draw the same augmentation of its points.
        stream = rng.stream(config.seed, "reserve-augment", reserve.source, self._step)
        both = _embed(self._setting, state, torch.cat([images, augment(images, config.augment, stream)]))
        return both[: len(images)], both[len(images) :]


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + MOST_TOGETHER] for start in range(0, len(items), MOST_TOGETHER))


def _draw(setting: Setting, state: DeviceState, step: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions, payload and embeddings of a device's candidates."""
    explicit = setting.explicit
    positions = _draw_positions(setting, state, step)
    own, relayed = positions[positions < len(state.points)], positions[positions >= len(state.points)]
    points, passed_on = state.points[own], state.pulled[relayed - len(state.points)]
    if explicit:
        points, passed_on = torch.cat([points, passed_on]), no_embeddings(setting)
    wanted = not explicit or (setting.policy.scores and not setting.policy.pixels)
    embeddings = torch.cat([_embed(setting, state, points), passed_on]) if wanted else no_embeddings(setting)
    return torch.cat([own, relayed]), points if explicit else embeddings, embeddings


def _draw_positions(setting: Setting, state: DeviceState, step: int) -> Tensor:
    exchange = setting.config.exchange
    if setting.policy.once:
        return torch.arange(len(state.points), device=state.points.device)
    when = setting.schedule.last_aggregation(step) if exchange.candidates == "per_aggregation" else step
    pool = len(state.points) + (len(state.pulled) if exchange.candidates == "relay" else 0)
    uniforms = Randomness(setting.config.seed, state.id, when).uniforms("candidates", pool)
    return importance.uniform_sample(uniforms, exchange.num_candidates).to(state.points.device)


def _embed(setting: Setting, state: DeviceState, points: Tensor) -> Tensor:
    model = state.anchor if setting.config.exchange.importance_model == "global" else state.weights
    return setting.encoder.embed(model, points)


def _answer_alike(
    setting: Setting, links: Sequence[tuple[DeviceState, PullRequest]], reserves: _Reserves, step: int
) -> list[Answer]:
    """Answers on links whose candidates and reserves are of one size, so that they are one batch."""
    assert setting.policy.choose is not None
    config = setting.config
    candidates = [state.candidates for state, _ in links if state.candidates is not None]
    in_pixels = setting.policy.pixels and setting.explicit
    reserve, positives = (None, None) if in_pixels else _stack_reserves(setting, links, reserves)
    pull = Pull(
        seed=config.seed,
        step=step,
        links=tuple((state.id, message.source) for state, message in links),
        # A blind policy sees only how many candidates there are.
        candidates=torch.stack([item.embeddings if len(item.embeddings) else _unseen(item) for item in candidates]),
        clusters=_join([item.clusters for item in candidates]),
        reserve=reserve,
        positives=positives,
        num_items=tuple(message.num_items for _, message in links),
        temperature=schedule.temperature(
            step,
            num_steps=config.train.steps,
            start=config.exchange.temperature_start,
            end=config.exchange.temperature_end,
        ),
        margin=config.train.margin,
        config=config.exchange,
        points=torch.stack([_flat(item.payload) for item in candidates]) if in_pixels else None,
        reserve_points=_reserve_points(links) if in_pixels else None,
        sent=_sent(links, candidates) if remembers(setting) else None,
        lacked=_lacked(setting, links, candidates) if setting.policy.cheats else None,
    )
    choice = setting.policy.choose(pull)
    effective = effective_number(choice.log_probabilities.exp()).tolist()
    kind = DataItems if setting.explicit else EmbeddingItems
    return [
        Answer(
            kind(state.id, message.source, step, item.payload[chosen]),
            item.positions[chosen],
            item.embeddings[chosen] if len(item.embeddings) else item.embeddings,
            number,
        )
        for (state, message), item, chosen, number in zip(links, candidates, choice.chosen, effective, strict=True)
    ]


def _lacked(
    setting: Setting, links: Sequence[tuple[DeviceState, PullRequest]], candidates: Sequence[Candidates]
) -> Tensor:
    assert setting.lacks is not None
    pairs = zip(links, candidates, strict=True)
    return torch.stack([setting.lacks(state.id, item.positions, message.source) for (state, message), item in pairs])


def _reserve_points(links: Sequence[tuple[DeviceState, PullRequest]]) -> Tensor:
    found = [state.reserves[message.source] for state, message in links]
    return torch.stack([_flat(reserve.points) for reserve in found if isinstance(reserve, DataReserve)])


def _sent(links: Sequence[tuple[DeviceState, PullRequest]], candidates: Sequence[Candidates]) -> Tensor:
    """Which candidates of each link its receiver has had."""
    had = [
        state.sent.get(message.source, item.positions[:0])
        for (state, message), item in zip(links, candidates, strict=True)
    ]
    return torch.stack([torch.isin(item.positions, some) for item, some in zip(candidates, had, strict=True)])


def _flat(points: Tensor) -> Tensor:
    return points.flatten(1).float() / 255.0


def _stack_reserves(
    setting: Setting, links: Sequence[tuple[DeviceState, PullRequest]], reserves: _Reserves
) -> tuple[Tensor | None, Tensor | None]:
    """The receivers' reserves as embeddings and, where they are datapoints, those of one augmentation of each."""
    if setting.policy.offer is None:
        return None, None
    pairs = [reserves.embed(state, message.source) for state, message in links]
    altered = [positives for _, positives in pairs if len(positives)]
    return torch.stack([found for found, _ in pairs]), torch.stack(altered) if altered else None


def _reserve_size(state: DeviceState, receiver: int) -> int:
    reserve: Reserve | None = state.reserves.get(receiver)
    if reserve is None:
        return 0
    return len(reserve.content)


def _unseen(candidates: Candidates) -> Tensor:
    return candidates.payload.new_zeros(len(candidates.payload), 0, dtype=torch.float32)


def _no_clusters(embeddings: Tensor, size: int) -> Clusters:
    return Clusters(
        torch.zeros(1, 0, dtype=torch.int64, device=embeddings.device),
        embeddings.new_zeros(1, size, embeddings.shape[1]),
        torch.zeros(1, size, dtype=torch.int64, device=embeddings.device),
    )


def _rows(clusters: Clusters, rows: list[int]) -> Clusters:
    return Clusters(clusters.assignment[rows], clusters.centroids[rows], clusters.counts[rows])


def _join(parts: Sequence[Clusters]) -> Clusters:
    return Clusters(
        torch.cat([part.assignment for part in parts]),
        torch.cat([part.centroids for part in parts]),
        torch.cat([part.counts for part in parts]),
    )
