"""What a device trains on next: which points, and their positives.

Devices that live together may go through together: every batch is the one its device would have drawn alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cfcl import rng
from cfcl.core import batches
from cfcl.data import augment
from cfcl.device.state import DeviceState, Setting
from cfcl.models import as_input


class Batch(NamedTuple):
    """The images of one update."""

    images: Tensor
    triplets: Tensor | None
    """[3, batch]: rows of `images` that are anchors, positives and negatives; None: its three thirds."""
    positions: Tensor
    """Places of anchors and negatives among the points held, pulled ones last."""

    @property
    def by_role(self) -> Tensor:
        """[3, batch, ...]: images of the anchors, of the positives and of the negatives."""
        if self.triplets is None:
            return self.images.view(3, -1, *self.images.shape[1:])
        return self.images[self.triplets]


def draw_batches(setting: Setting, states: Sequence[DeviceState], step: int) -> list[Batch]:
    """The batches of several devices that share a store of points, in their order."""
    config, size = setting.config, setting.config.train.batch_size
    composed = [_compose(setting, state, step) for state in states]
    if config.train.negatives == "batch":
        rows = torch.arange(size)
        roles = [torch.stack([rows, size + rows, row]).to(setting.encoder.device) for _, row in composed]
        images = _images(setting, states, [anchor for anchor, _ in composed], step)
        positions = [torch.cat([anchor, anchor[row]]) for anchor, row in composed]
        return [Batch(*parts) for parts in zip(images, roles, positions, strict=True)]
    positions = [torch.cat(pair) for pair in composed]
    images = _images(setting, states, positions, step)
    return [Batch(mine, None, places) for mine, places in zip(images, positions, strict=True)]


def num_pulled(setting: Setting, state: DeviceState) -> int:
    """How many pulled datapoints a device trains on."""
    return len(state.pulled) if setting.explicit else 0


def _compose(setting: Setting, state: DeviceState, step: int) -> tuple[Tensor, Tensor]:
    """Positions of anchors and of negatives, or of anchors and the rows of those that serve as negatives."""
    config, train = setting.config, setting.config.train
    num_local = len(state.points)
    stream = rng.stream(config.seed, "batch", state.id, step)
    if train.negatives == "batch":
        return batches.compose_within(
            torch.randperm(num_local, generator=stream)[: train.batch_size],
            torch.rand(train.batch_size, dtype=torch.float64, generator=stream),
            num_local=num_local,
            num_pulled=num_pulled(setting, state),
            remote_fraction=train.remote_fraction,
        )
    return batches.compose(
        torch.rand((4, train.batch_size), dtype=torch.float64, generator=stream),
        num_local=num_local,
        num_pulled=num_pulled(setting, state),
        composition=train.composition,
        remote_fraction=train.remote_fraction,
    )


def _images(
    setting: Setting, states: Sequence[DeviceState], positions: Sequence[Tensor], step: int
) -> Sequence[Tensor]:
    """Device by device the anchors, which stand first in `positions`, their positives, and the others."""
    config, size = setting.config, setting.config.train.batch_size
    taken = torch.unflatten(as_input(_take(states, positions), setting.encoder.device), 0, (len(states), -1))
    anchors, others = taken[:, :size], taken[:, size:]
    streams = [rng.stream(config.seed, "augment", state.id, step) for state in states]
    draws = augment.join([augment.draw(anchors.shape[1:], config.augment, stream) for stream in streams])
    positives = torch.unflatten(augment.apply(anchors.flatten(0, 1), config.augment, draws), 0, (len(states), -1))
    return torch.cat([anchors, positives, others], dim=1).unbind()


def _take(states: Sequence[DeviceState], positions: Sequence[Tensor]) -> Tensor:
    """Datapoints at the `positions` of each device, where pulled ones follow local ones."""
    store = states[0].points.store
    places, pulled, begin = [], [], 0
    for state, some in zip(states, positions, strict=True):
        num_local, where = len(state.points), some.to(store.device)
        places.append(state.points.places[where.clamp_max(num_local - 1)])
        remote = (where >= num_local).nonzero()[:, 0]
        if len(remote):
            pulled.append((begin + remote, state.pulled[where[remote] - num_local]))
        begin += len(where)
    images = store[torch.cat(places)]
    for rows, items in pulled:
        images[rows] = items
    return images
