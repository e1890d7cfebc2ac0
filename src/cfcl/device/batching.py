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
from cfcl.models import Entering, as_input
from cfcl.objectives import Layout


class Batch(NamedTuple):
    """The images of one update, and the activations that join them on their way."""

    images: Tensor
    roles: Tensor | None
    """[roles, rows]: which images play which role; None: as many parts as there are roles, one after another."""
    positions: Tensor
    """Places of anchors and of what stands against them among the points held, pulled ones last."""
    entering: Entering | None = None

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
    taken = _take(setting, states, [torch.cat([layout.anchors, layout.others]) for layout in layouts])
    pixels = torch.unflatten(as_input(taken, setting.encoder.device), 0, (len(states), -1))
    size = len(layouts[0].anchors)
    images = _viewed(setting, [state.id for state in states], pixels[:, :size], pixels[:, size:], step)
    roles = [None if layout.roles is None else layout.roles.to(setting.encoder.device) for layout in layouts]
    found = [Batch(*parts) for parts in zip(images, roles, [layout.used for layout in layouts], strict=True)]
    if setting.layer is None:
        return found
    return [_joined(setting, *parts) for parts in zip(states, layouts, found, strict=True)]


def num_pulled(setting: Setting, state: DeviceState) -> int:
    """How many pulled items a device trains on."""
    return len(state.pulled) if setting.joins else 0


def _joined(setting: Setting, state: DeviceState, layout: Layout, batch: Batch) -> Batch:
    """The batch with pulled activations in the place of the images that stand for them."""
    parts = [layout.anchors, layout.anchors] + ([] if setting.objective.two_views else [layout.others])
    views = torch.cat([torch.full_like(part, number % 2) for number, part in enumerate(parts)])
    places = torch.cat(parts) - len(state.points)
    pulled, own = (places >= 0).nonzero()[:, 0], (places < 0).nonzero()[:, 0]
    if len(pulled) == 0:
        return batch
    assert setting.layer is not None
    values = state.pulled[places[pulled].to(state.pulled.device), views[pulled].to(state.pulled.device)]
    order = torch.cat([own, pulled]).argsort().to(values.device)
    return batch._replace(
        images=batch.images[own.to(batch.images.device)], entering=Entering(setting.layer, values, order)
    )


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


def _take(setting: Setting, states: Sequence[DeviceState], positions: Sequence[Tensor]) -> Tensor:
    """Datapoints at the `positions` of each device, where pulled ones follow local ones.

    Something stands for pulled activations until they take its place.
    """
    store = states[0].points.store
    places, pulled, begin = [], [], 0
    for state, some in zip(states, positions, strict=True):
        num_local, where = len(state.points), some.to(store.device)
        places.append(state.points.places[where.clamp_max(num_local - 1)])
        remote = (where >= num_local).nonzero()[:, 0]
        if len(remote) and setting.explicit:
            pulled.append((begin + remote, state.pulled[where[remote] - num_local]))
        begin += len(where)
    images = store[torch.cat(places)]
    for rows, items in pulled:
        images[rows] = items
    return images
