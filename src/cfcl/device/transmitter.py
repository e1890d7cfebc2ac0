"""The transmitter's side of a pull: its candidates, and what each receiver gets of them.

Devices that live together may go through together: links share no arithmetic, they are only faster side by side.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from cfcl import rng, schedule
from cfcl.core import blur, clustering, importance, precision
from cfcl.core.clustering import Clusters
from cfcl.core.metrics import effective_number
from cfcl.data.augment import augment
from cfcl.device.state import Candidates, DeviceState, Setting, no_embeddings
from cfcl.exchange import checks, policies
from cfcl.exchange.messages import (
    ITEMS,
    ActivationReserve,
    DataReserve,
    EmbeddingReserve,
    Items,
    PullRequest,
    Reserve,
)
from cfcl.exchange.policies import Choice, Pull, Randomness, Shown
from cfcl.models import Weights, as_input

T = TypeVar("T")
Asked = tuple[DeviceState, PullRequest]
"""A transmitter, and what a receiver asks of it."""

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
    found = cluster(setting, [state.id for state in states], [candidates.embeddings for candidates in drawn], step)
    return [
        replace(state, candidates=replace(candidates, clusters=clusters))
        for state, candidates, clusters in zip(states, drawn, found, strict=True)
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
    alike: dict[tuple[int, int], list[Asked]] = {}
    for state, message in links:
        size = (len(_own(state).payload), _reserve_size(setting, state, message.source))
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
                found[place] = _some(clusters, [row])
    return found


def remembers(setting: Setting) -> bool:
    """Whether transmitters note what they have sent: if their policy asks for it and receivers keep what they get."""
    return "sent" in setting.policy.needs and setting.config.exchange.retention != "purge"


def remember(setting: Setting, state: DeviceState, answers: Sequence[Answer]) -> DeviceState:
    """Note the answers that `state` has sent, if that matters."""
    if not remembers(setting):
        return state
    own = {item.items.target: item.positions[item.positions < len(state.points)] for item in answers}
    news = {target: torch.cat([state.sent.get(target, found[:0]), found]) for target, found in own.items()}
    return replace(state, sent={**state.sent, **news})


class _Reserves:
    """Embeddings of receivers' reserves: under the global model all transmitters would find the same ones.

    With faults they would not: some hold an older global model, or an older reserve.
    """

    def __init__(self, setting: Setting, step: int) -> None:
        self._setting = setting
        self._step = step
        self._known: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    def embed(self, state: DeviceState, receiver: int) -> tuple[Tensor, Tensor]:
        """The reserve of `receiver` that `state` holds and one augmentation of each point; of embeddings, none."""
        reserve = _reserve(self._setting, state, receiver)
        if isinstance(reserve, EmbeddingReserve):
            return reserve.embeddings, reserve.embeddings[:0]
        config = self._setting.config
        shared = config.exchange.importance_model == "global" and not config.faults.active
        key = (-1 if shared else state.id, reserve.source, len(reserve.content))
        if key not in self._known:
            self._known[key] = self._embed(state, reserve)
        return self._known[key]

    def _embed(self, state: DeviceState, reserve: DataReserve | ActivationReserve) -> tuple[Tensor, Tensor]:
        config = self._setting.config
        if isinstance(reserve, ActivationReserve):
            plain, altered = reserve.content.unbind(1)
            both = _finish(self._setting, state, torch.cat([plain, altered]))
            return both[: len(plain)], both[len(plain) :]
        images = as_input(reserve.points, self._setting.encoder.device)
        # Keyed by the receiver: all transmitters draw the same augmentation of its points.
        stream = rng.stream(config.seed, "reserve-augment", reserve.source, self._step)
        both = _embed(self._setting, state, torch.cat([images, augment(images, config.augment, stream)]))
        return both[: len(images)], both[len(images) :]


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + MOST_TOGETHER] for start in range(0, len(items), MOST_TOGETHER))


def _draw(setting: Setting, state: DeviceState, step: int) -> Candidates:
    """A device's candidates, not yet in clusters."""
    positions = _draw_positions(setting, state, step)
    own, relayed = positions[positions < len(state.points)], positions[positions >= len(state.points)]
    points, passed_on = state.points[own], state.pulled[relayed - len(state.points)]
    if setting.joins:
        points = torch.cat([points, passed_on]) if setting.explicit else points
        passed_on = no_embeddings(setting)
    wanted = not setting.joins or "embeddings" in setting.policy.needs
    embeddings = torch.cat([_embed(setting, state, points), passed_on]) if wanted else no_embeddings(setting)
    payload = points
    if not setting.joins:  # what is passed on was blurred by its owner
        payload = torch.cat([blurred(setting, embeddings[: len(own)], "pull", state.id, step), passed_on])
    rows = pixels(points) if _in_rows(setting) else None
    if setting.layer is not None:
        payload = _two_views(setting, state, points, step)
        if rows is not None:
            rows = setting.encoder.activations(state.anchor, points, setting.layer).flatten(1)
    return Candidates(torch.cat([own, relayed]), payload, embeddings, rows, _no_clusters(embeddings, 0))


def _two_views(setting: Setting, state: DeviceState, points: Tensor, step: int) -> Tensor:
    """What the layer makes of two augmented views of each point, under the global model."""
    config, images = setting.config, as_input(points, setting.encoder.device)
    stream = rng.stream(config.seed, "candidate-augment", state.id, step)
    views = augment(torch.cat([images, images]), config.augment, stream)
    return blurred(setting, layer_pairs(setting, state.anchor, *views.chunk(2)), "pull", state.id, step)


def as_payload(setting: Setting, state: DeviceState, points: Tensor, step: int) -> Tensor:
    """What a device would send of these points."""
    if setting.layer is not None:
        return _two_views(setting, state, points, step)
    return points if setting.explicit else _embed(setting, state, points)


def layer_pairs(setting: Setting, model: Weights, first: Tensor, second: Tensor) -> Tensor:
    """[images, 2, ...]: what the layer whose activations travel makes of two views of some images."""
    assert setting.layer is not None
    found = setting.encoder.activations(model, torch.cat([first, second]), setting.layer)
    return torch.stack(found.chunk(2), dim=1).contiguous()


def blurred(setting: Setting, vectors: Tensor, *names: str | int) -> Tensor:
    """What of embeddings, or of activations of two views, leaves a device: every vector clipped, and with noise.

    All neighbours get the same noise, so that those who compare notes learn no more than one of them.
    """
    privacy = setting.config.privacy
    if privacy.clip is None:
        return vectors
    rows = blur.clipped(vectors if setting.layer is None else vectors.flatten(0, 1), privacy.clip)
    if privacy.noise > 0:
        rows = blur.noised(rows, privacy.noise * privacy.clip, rng.stream(setting.config.seed, "noise", *names))
    return rows.view(vectors.shape)


def as_sent(setting: Setting, values: Tensor) -> tuple[Tensor, Tensor | None]:
    """Activations in the precision in which they travel, and their ranges where it needs them."""
    return (values, None) if setting.config.exchange.precision == "float32" else precision.to_codes(values)


def _draw_positions(setting: Setting, state: DeviceState, step: int) -> Tensor:
    exchange = setting.config.exchange
    if setting.policy.when == "start":
        return torch.arange(len(state.points), device=state.points.device)
    when = setting.schedule.last_aggregation(step) if exchange.candidates == "per_aggregation" else step
    pool = len(state.points) + (len(state.pulled) if exchange.candidates == "relay" else 0)
    uniforms = Randomness(setting.config.seed, state.id, when).uniforms("candidates", pool)
    size = setting.budgets.candidates(state.id)
    return importance.uniform_sample(uniforms, size).to(state.points.device)


def _embed(setting: Setting, state: DeviceState, points: Tensor) -> Tensor:
    return setting.encoder.embed(_scoring(setting, state), points)


def _finish(setting: Setting, state: DeviceState, activations: Tensor) -> Tensor:
    assert setting.layer is not None
    return setting.encoder.finish(_scoring(setting, state), activations, setting.layer)


def _scoring(setting: Setting, state: DeviceState) -> Weights:
    """The importance model."""
    return state.anchor if setting.config.exchange.importance_model == "global" else state.weights


def _answer_alike(setting: Setting, links: Sequence[Asked], reserves: _Reserves, step: int) -> list[Answer]:
    """Answers on links whose candidates and reserves are of one size, so that they are one batch."""
    config = setting.config
    pull = Pull(
        seed=config.seed,
        step=step,
        links=tuple((state.id, message.source) for state, message in links),
        num_items=tuple(message.num_items for _, message in links),
        candidates=_stack_candidates(setting, links),
        reserve=_stack_reserves(setting, links, reserves),
        temperature=schedule.temperature(
            step,
            num_steps=config.train.steps,
            start=config.exchange.temperature_start,
            end=config.exchange.temperature_end,
        ),
        usefulness=setting.objective.usefulness,
        config=config.exchange,
    )
    choice = checks.choose(setting.policy, pull)
    effective = effective_number(choice.log_probabilities.exp()).tolist()
    news = _num_new(setting, choice, pull)
    return [
        Answer(
            _items(setting, state, message, chosen, news[row]),
            _own(state).positions[chosen],
            _own(state).embeddings[chosen] if len(_own(state).embeddings) else _own(state).embeddings,
            effective[row],
            explain(choice, row, _own(state)) if config.records.explain else "",
        )
        for row, ((state, message), chosen) in enumerate(zip(links, choice.chosen, strict=True))
    ]


def _items(setting: Setting, state: DeviceState, message: PullRequest, chosen: Tensor, new: int | None) -> Items:
    content = _own(state).payload[chosen]
    sent = (content,) if setting.layer is None else as_sent(setting, content)
    return replace(ITEMS[setting.config.exchange.mode](state.id, message.source, message.step, *sent), new=new)


def _num_new(setting: Setting, choice: Choice, pull: Pull) -> list[int] | list[None]:
    """How many candidates of each link are likelier new to its receiver than not, and not sent yet, if that is told."""
    if not setting.adaptive:
        return [None] * len(pull.links)
    assert setting.policy.newness is not None
    new, sent = choice.scores[setting.policy.newness] > math.log(0.5), pull.candidates.sent
    found: list[int] = (new if sent is None else new & ~sent).sum(dim=1).tolist()
    return found


def explain(choice: Choice, row: int, candidates: Candidates) -> str:
    """Why each item of a link was chosen, as JSON: figures only, and never what it looks like."""
    stages = choice.stages
    return json.dumps(
        [
            {
                "index": int(candidates.positions[place]),
                "cluster": None if stages is None else int(stages.clusters[row, place]),
                "log_probability": float(choice.log_probabilities[row, place]),
                "macro": None if stages is None else float(stages.macro[row, place]),
                "micro": None if stages is None else float(stages.micro[row, place]),
                "scores": {name: float(values[row, place]) for name, values in choice.scores.items()},
            }
            for place in choice.chosen[row].tolist()
        ]
    )


def _own(state: DeviceState) -> Candidates:
    assert state.candidates is not None
    return state.candidates


def _stack_candidates(setting: Setting, links: Sequence[Asked]) -> policies.Candidates:
    found = [_own(state) for state, _ in links]
    needs = setting.policy.needs
    return policies.Candidates(
        # A policy that needs no embeddings sees only how many candidates there are.
        embeddings=torch.stack([item.embeddings if len(item.embeddings) else _unseen(item) for item in found]),
        clusters=_join([item.clusters for item in found]),
        points=torch.stack([item.rows for item in found if item.rows is not None]) if _in_rows(setting) else None,
        sent=_sent(links) if remembers(setting) else None,
        lacked=_lacked(setting, links) if "labels" in needs else None,
    )


def _in_rows(setting: Setting) -> bool:
    """Whether the policy measures distances between what would travel, and not between embeddings."""
    return "pixels" in setting.policy.needs and setting.joins


def _stack_reserves(setting: Setting, links: Sequence[Asked], reserves: _Reserves) -> Shown:
    """The receivers' reserves: as embeddings (of datapoints, also of one augmentation of each), or as pixels."""
    if setting.policy.offer is None:
        return Shown()
    found = [_reserve(setting, state, message.source) for state, message in links]
    numbers = [reserve.numbers for reserve in found if reserve.numbers is not None]
    shown = Shown(numbers=torch.stack(numbers) if numbers else None)
    if _in_rows(setting):
        shown = replace(shown, points=torch.stack([_rows(setting, reserve) for reserve in found]))
    if setting.joins and "embeddings" not in setting.policy.needs:
        return shown
    pairs = [reserves.embed(state, message.source) for state, message in links]
    altered = [positives for _, positives in pairs if len(positives)]
    return replace(
        shown,
        embeddings=torch.stack([embeddings for embeddings, _ in pairs]),
        positives=torch.stack(altered) if altered else None,
    )


def _lacked(setting: Setting, links: Sequence[Asked]) -> Tensor:
    assert setting.lacks is not None
    return torch.stack([setting.lacks(state.id, _own(state).positions, message.source) for state, message in links])


def _sent(links: Sequence[Asked]) -> Tensor:
    """Which candidates of each link its receiver has had."""
    pairs = [(_own(state).positions, state.sent.get(message.source)) for state, message in links]
    return torch.stack([torch.isin(own, own[:0] if had is None else had) for own, had in pairs])


def _rows(setting: Setting, reserve: Reserve) -> Tensor:
    return pixels(reserve.content) if setting.explicit else reserve.content[:, 0].flatten(1)


def pixels(points: Tensor) -> Tensor:
    """Datapoints as rows of numbers in 0..1."""
    return points.flatten(1).float() / 255.0


def _reserve(setting: Setting, state: DeviceState, receiver: int) -> Reserve:
    """What candidates for `receiver` are scored against: its reserve, or, as a control, that of the next neighbour."""
    if setting.config.exchange.against == "receiver":
        return state.reserves[receiver]
    known = sorted(state.reserves)
    return state.reserves[known[(known.index(receiver) + 1) % len(known)]]


def _reserve_size(setting: Setting, state: DeviceState, receiver: int) -> int:
    return len(_reserve(setting, state, receiver).content) if receiver in state.reserves else 0


def _unseen(candidates: Candidates) -> Tensor:
    return candidates.payload.new_zeros(len(candidates.payload), 0, dtype=torch.float32)


def _no_clusters(embeddings: Tensor, size: int) -> Clusters:
    return Clusters(
        torch.zeros(1, 0, dtype=torch.int64, device=embeddings.device),
        embeddings.new_zeros(1, size, embeddings.shape[1]),
        torch.zeros(1, size, dtype=torch.int64, device=embeddings.device),
    )


def _some(clusters: Clusters, rows: list[int]) -> Clusters:
    return Clusters(clusters.assignment[rows], clusters.centroids[rows], clusters.counts[rows])


def _join(parts: Sequence[Clusters]) -> Clusters:
    return Clusters(
        torch.cat([part.assignment for part in parts]),
        torch.cat([part.centroids for part in parts]),
        torch.cat([part.counts for part in parts]),
    )
