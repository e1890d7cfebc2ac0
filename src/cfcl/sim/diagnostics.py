"""What was pulled, seen from outside: the only place where labels of exchanged items are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cfcl import device, rng
from cfcl.core import clustering
from cfcl.device import Answer, DeviceState, Setting
from cfcl.exchange.messages import DataItems, Items

Row = dict[str, Any]


@dataclass(frozen=True)
class Delivery:
    """Items on their way, and what an outside observer knows of them."""

    items: Items
    embeddings: Tensor
    """Under the importance model; empty if nothing was embedded."""
    labels: Tensor
    """Empty where there are no labels."""
    effective_candidates: float


class Pulls:
    """Follows labels along the links, beside the devices, which never see them."""

    def __init__(self, setting: Setting, labels: Tensor | None, parts: Sequence[Tensor]) -> None:
        self._setting = setting
        self._labels = labels
        self._parts = parts
        self._pulled: dict[int, Tensor] = {}
        most = setting.config.evaluation.num_traced
        drawn = torch.randperm(len(parts), generator=rng.stream(setting.config.seed, "traced"))[:most]
        self._traced = frozenset(drawn.tolist())

    def follow(self, answer: Answer) -> Delivery:
        """The answer with the labels of its items, looked up where its transmitter is."""
        source = answer.items.source
        known = torch.zeros(0, dtype=torch.int64)
        if self._labels is not None and (self._relays or answer.items.target in self._traced):
            known = torch.cat([self._own(source), self._pulled.get(source, known)])[answer.positions.cpu()]
        return Delivery(answer.items, answer.embeddings, known, answer.effective_candidates)

    def observe(self, receiver: DeviceState, deliveries: Sequence[Delivery], step: int) -> list[Row]:
        """One row per pull, taken before the items are absorbed; none for receivers that are not traced."""
        rows = self._rows(receiver, deliveries, step) if receiver.id in self._traced else []
        if self._labels is not None and self._relays:
            nothing = torch.zeros(0, dtype=torch.int64)
            arrived = torch.cat([nothing, *(delivery.labels for delivery in deliveries)])
            held = self._pulled.get(receiver.id, nothing)
            self._pulled[receiver.id] = device.retain(self._setting.config, held, arrived)
        return rows

    def _rows(self, receiver: DeviceState, deliveries: Sequence[Delivery], step: int) -> list[Row]:
        distances = self.distances(receiver, deliveries, step)
        return [
            {
                "kind": "pull",
                "step": step,
                "transmitter": delivery.items.source,
                "receiver": receiver.id,
                "items": len(_content(delivery.items)),
                "effective_candidates": delivery.effective_candidates,
                "held_labels": _mean(self.held(receiver.id, delivery.labels)),
                "centroid_distance": _mean(distance),
            }
            for delivery, distance in zip(deliveries, distances, strict=True)
        ]

    def distances(self, receiver: DeviceState, deliveries: Sequence[Delivery], step: int) -> list[Tensor]:
        """From every item to the nearest centroid of the receiver's own candidates, under the global model."""
        centroids = self._centroids(receiver, step)
        found = [self._embeddings(receiver, delivery) for delivery in deliveries]
        return [clustering.squared_distances(items, centroids).amin(dim=-1).sqrt() for items in found]

    def _own(self, holder: int) -> Tensor:
        assert self._labels is not None
        return self._labels[self._parts[holder]]

    def held(self, receiver: int, labels: Tensor) -> Tensor:
        """Whether the receiver has items of these labels already."""
        return torch.isin(labels, self._own(receiver)) if len(labels) else labels

    def _centroids(self, receiver: DeviceState, step: int) -> Tensor:
        """Centroids of the receiver's own candidates under the global model."""
        assert receiver.candidates is not None
        positions, clusters = receiver.candidates.positions, receiver.candidates.clusters
        own = positions[positions < len(receiver.points)]
        if not self._global or len(own) != len(receiver.candidates.embeddings):
            embeddings = self._setting.encoder.embed(receiver.anchor, receiver.points[own])
            (clusters,) = device.cluster(self._setting, [receiver.id], [embeddings], step)
        return clusters.centroids[0][clusters.counts[0] > 0]

    def _embeddings(self, receiver: DeviceState, delivery: Delivery) -> Tensor:
        """The items under the global model, embedded only if nobody has done so."""
        items = delivery.items
        if not isinstance(items, DataItems):
            return items.embeddings
        if len(items.points) == 0 or (self._global and len(delivery.embeddings)):
            return delivery.embeddings
        return self._setting.encoder.embed(receiver.anchor, items.points)

    @property
    def _relays(self) -> bool:
        return self._setting.config.exchange.candidates == "relay"

    @property
    def _global(self) -> bool:
        return self._setting.config.exchange.importance_model == "global"


def _content(items: Items) -> Tensor:
    return items.points if isinstance(items, DataItems) else items.embeddings


def _mean(values: Tensor) -> float | None:
    """None of nothing."""
    return float(values.double().mean()) if len(values) else None
