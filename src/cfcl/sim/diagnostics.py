"""What was pulled, seen from outside: the only place where labels of exchanged items are known."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cfcl import device, records, rng
from cfcl.core import clustering
from cfcl.device import Answer, DeviceState, Setting
from cfcl.exchange.messages import EmbeddingItems, Items, Message
from cfcl.records import Reason


@dataclass(frozen=True)
class Note(Message):
    """What an outside observer knows of items on their way; it travels beside them and no device sees it."""

    embeddings: Tensor
    """Under the importance model; empty if nothing was embedded."""
    labels: Tensor
    """Empty where there are no labels."""
    effective_candidates: float
    reasons: str = ""
    """As JSON; empty if nobody asked."""


class Observer:
    """Follows labels along the links, beside the devices, which never see them."""

    def __init__(self, setting: Setting, labels: Tensor | None, parts: Sequence[Tensor]) -> None:
        self._setting = setting
        self._labels = labels
        self._parts = parts
        most = setting.config.evaluation.num_traced
        self._traced = frozenset(rng.places(len(parts), most, setting.config.seed, "traced").tolist())

    def note(self, answer: Answer, pulled: Mapping[int, Tensor]) -> Note | None:
        """What is known of an answer where its transmitter is; `pulled` are the labels of what devices have pulled."""
        items = answer.items
        if not self._relays and items.target not in self._traced:
            return None
        labels = torch.zeros(0, dtype=torch.int64)
        if self._labels is not None:
            labels = torch.cat([self._own(items.source), pulled.get(items.source, labels)])[answer.positions.cpu()]
        head = items.source, items.target, items.step
        return Note(*head, answer.embeddings, labels, answer.effective_candidates, answer.reasons)

    def remember(self, receiver: int, notes: Sequence[Note], pulled: dict[int, Tensor]) -> None:
        """Follow the labels of items that may be passed on."""
        if self._labels is None or not self._relays:
            return
        nothing = torch.zeros(0, dtype=torch.int64)
        arrived = torch.cat([nothing, *(note.labels for note in notes)])
        pulled[receiver] = device.retain(self._setting.config, pulled.get(receiver, nothing), arrived)

    def follows(self, labels: Mapping[int, Tensor], items: Mapping[int, Tensor]) -> bool:
        """Whether there are `labels` of all items that may be passed on, by the device that has pulled them."""
        if self._labels is None or not self._relays or self._setting.policy.when == "start":
            return True
        return all(len(labels.get(i, ())) >= len(pulled) for i, pulled in items.items())

    def records(self, receiver: DeviceState, items: Sequence[Items], notes: Sequence[Note]) -> list[records.Pull]:
        """One record per pull; none for receivers that are not traced."""
        if receiver.id not in self._traced:
            return []
        distances = self.distances(receiver, items, notes)
        return [
            records.Pull(
                step=note.step,
                transmitter=note.source,
                receiver=receiver.id,
                items=len(item.content),
                effective_candidates=note.effective_candidates,
                held_labels=_mean(self.held(receiver.id, note.labels)),
                centroid_distance=_mean(distance),
                reasons=_reasons(note),
                new=item.new,
            )
            for item, note, distance in zip(items, notes, distances, strict=True)
        ]

    def distances(self, receiver: DeviceState, items: Sequence[Items], notes: Sequence[Note]) -> list[Tensor]:
        """From every item to the nearest centroid of the receiver's own candidates, under the global model."""
        return [found.amin(dim=-1).sqrt() for found in self.squared_distances(receiver, items, notes)]

    def squared_distances(self, receiver: DeviceState, items: Sequence[Items], notes: Sequence[Note]) -> list[Tensor]:
        """[items, centroids]: from every item to every centroid of the receiver's own candidates."""
        centroids = self._centroids(receiver, notes[0].step if notes else 0)
        found = [self._embeddings(receiver, *pair) for pair in zip(items, notes, strict=True)]
        return [clustering.squared_distances(some, centroids) for some in found]

    def _own(self, holder: int) -> Tensor:
        assert self._labels is not None
        return self._labels[self._parts[holder]]

    def held(self, receiver: int, labels: Tensor) -> Tensor:
        """Whether the receiver has items of these labels already."""
        return torch.isin(labels, self._own(receiver)) if len(labels) else labels

    def _centroids(self, receiver: DeviceState, step: int) -> Tensor:
        """Centroids of the receiver's own candidates under the global model."""
        _, clusters = device.own_candidates(self._setting, receiver, step)
        return clusters.centroids[0][clusters.counts[0] > 0]

    def _embeddings(self, receiver: DeviceState, items: Items, note: Note) -> Tensor:
        """The items under the global model, embedded only if nobody has done so."""
        if isinstance(items, EmbeddingItems):
            return items.embeddings
        if len(items.content) == 0 or (self._global and len(note.embeddings)):
            return note.embeddings
        encoder, layer = self._setting.encoder, self._setting.layer
        if layer is None:
            return encoder.embed(receiver.anchor, items.content)
        return encoder.finish(receiver.anchor, items.content[:, 0], layer)

    @property
    def _relays(self) -> bool:
        return self._setting.config.exchange.candidates == "relay"

    @property
    def _global(self) -> bool:
        return self._setting.config.exchange.importance_model == "global"


def by_target(notes: Iterable[Note]) -> dict[int, list[Note]]:
    """Notes by the receiver they are about, in order."""
    found: dict[int, list[Note]] = {}
    for note in notes:
        found.setdefault(note.target, []).append(note)
    return dict(sorted(found.items()))


def _reasons(note: Note) -> tuple[Reason, ...] | None:
    if not note.reasons:
        return None
    return tuple(records.read(Reason, row) for row in json.loads(note.reasons))


def _mean(values: Tensor) -> float | None:
    """None of nothing."""
    return float(values.double().mean()) if len(values) else None
