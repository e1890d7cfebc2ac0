"""What a device trains on next: which points, and their augmented views.

Devices that live together may go through together: every batch is the one its device would have drawn alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cfcl import rng
from cfcl.data import augment
from cfcl.device.state import DeviceState, Setting
from cfcl.models import as_input


class Batch(NamedTuple):
    """The images of one update."""

    images: Tensor
    roles: Tensor | None
    """[roles, rows]: which images play which role; None: as many parts as there are roles, one after another."""
    positions: Tensor
    """Places of anchors and of what stands against them among the points held, pulled ones last."""

    @property
    def by_role(self) -> Tensor:
        """[3, batch, ...]: images of the anchors, of the positives and of the negatives."""
        if self.roles is None:
            return self.images.view(3, -1, *self.images.shape[1:])
        return self.images[self.roles]


def draw_batches(setting: Setting, states: Sequence[DeviceState], step: int) -> list[Batch]:
    """The batches of several devices that share a store of points, in their order."""
    layouts = [
        setting.objective.compose(
            rng.stream(setting.config.seed, "batch", state.id, step),
            num_local=len(state.points),
            num_pulled=num_pulled(setting, state),
        )
        for state in states
    ]
    taken = _take(states, [torch.cat([layout.anchors, layout.others]) for layout in layouts])
    pixels = torch.unflatten(as_input(taken, setting.encoder.device), 0, (len(states), -1))
    size = len(layouts[0].anchors)
    images = _viewed(setting, [state.id for state in states], pixels[:, :size], pixels[:, size:], step)
    roles = [None if layout.roles is None else layout.roles.to(setting.encoder.device) for layout in layouts]
    return [Batch(*parts) for parts in zip(images, roles, [layout.used for layout in layouts], strict=True)]


def num_pulled(setting: Setting, state: DeviceState) -> int:
    """How many pulled datapoints a device trains on."""
    return len(state.pulled) if setting.explicit else 0


def _viewed(setting: Setting, devices: Sequence[int], anchors: Tensor, others: Tensor, step: int) -> Sequence[Tensor]:
    """Device by device the anchors (or a view of them), their augmented views, and the others."""
    if setting.objective.two_views:
        views = _augmented(setting, devices, torch.cat([anchors, anchors], dim=1), step, ["augment-again", "augment"])
        return views.unbind()
    views = _augmented(setting, devices, anchors, step, ["augment"])
    return torch.cat([anchors, views, others], dim=1).unbind()


def _augmented(setting: Setting, devices: Sequence[int], images: Tensor, step: int, names: list[str]) -> Tensor:
    """[devices, images, ...]: each device's images under its own draws, one part of them for each name."""
    config, shape = setting.config.augment, torch.Size([images.shape[1] // len(names), *images.shape[2:]])
    streams = [rng.stream(setting.config.seed, name, device, step) for device in devices for name in names]
    draws = augment.join([augment.draw(shape, config, stream) for stream in streams])
    return torch.unflatten(augment.apply(images.flatten(0, 1), config, draws), 0, (len(devices), -1))


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
