"""What was pulled, seen from outside: the only place where labels of exchanged items are known."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from cfcl import device
from cfcl.core import clustering
from cfcl.device import Answer, DeviceState, Setting
from cfcl.exchange.messages import DataItems
from cfcl.models import Weights

Row = dict[str, Any]


class Pulls:
    """Follows labels along the links, beside the devices, which never see them."""

    def __init__(self, setting: Setting, labels: Sequence[Tensor] | None) -> None:
        self._setting = setting
        self._own = labels
        self._pulled = None if labels is None else [own[:0] for own in labels]

    def observe(self, states: Sequence[DeviceState], answers: Iterable[Answer], step: int) -> list[Row]:
        """One row per pull of this exchange, taken before the items are absorbed."""
        incoming: dict[int, list[Answer]] = {}
        for answer in answers:
            incoming.setdefault(answer.items.target, []).append(answer)
        rows = [row for receiver in sorted(incoming) for row in self._rows(states[receiver], incoming[receiver], step)]
        if self._own is not None and self._pulled is not None:
            before = [torch.cat(pair) for pair in zip(self._own, self._pulled, strict=True)]
            for receiver, replies in incoming.items():
                arrived = torch.cat([before[reply.items.source][reply.positions.cpu()] for reply in replies])
                self._pulled[receiver] = device.retain(self._setting.config, self._pulled[receiver], arrived)
        return rows

    def _rows(self, receiver: DeviceState, replies: Sequence[Answer], step: int) -> list[Row]:
        centroids = self._centroids(receiver, step)
        return [
            {
                "kind": "pull",
                "step": step,
                "transmitter": reply.items.source,
                "receiver": receiver.id,
                "items": len(reply.positions),
                "effective_candidates": reply.effective_candidates,
                "held_labels": self._held(receiver.id, reply),
                "centroid_distance": self._distance(receiver.anchor, centroids, reply),
            }
            for reply in replies
        ]

    def _centroids(self, receiver: DeviceState, step: int) -> Tensor:
        """Centroids of the receiver's own candidates under the global model."""
        assert receiver.candidates is not None
        positions = receiver.candidates.positions
        own = receiver.points[positions[positions < len(receiver.points)]]
        found = device.cluster(self._setting, receiver, self._setting.encoder.embed(receiver.anchor, own), step)
        return found.centroids[0][found.counts[0] > 0]

    def _held(self, receiver: int, reply: Answer) -> float | None:
        """Share of items whose label the receiver holds already."""
        if self._own is None or self._pulled is None or len(reply.positions) == 0:
            return None
        source = reply.items.source
        labels = torch.cat([self._own[source], self._pulled[source]])[reply.positions.cpu()]
        return float(torch.isin(labels, self._own[receiver]).double().mean())

    def _distance(self, model: Weights, centroids: Tensor, reply: Answer) -> float | None:
        """Mean distance of the items to the receiver's nearest centroid, under the global model."""
        if len(reply.positions) == 0:
            return None
        items = reply.items
        embeddings = (
            self._setting.encoder.embed(model, items.points) if isinstance(items, DataItems) else items.embeddings
        )
        return float(clustering.squared_distances(embeddings, centroids).amin(dim=-1).sqrt().mean())
