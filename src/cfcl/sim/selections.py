"""What a policy selects when all devices hold one given model: selections that can be compared with each other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cfcl import device
from cfcl.config import Config
from cfcl.device import Answer, DeviceState
from cfcl.models import Weights
from cfcl.sim import world
from cfcl.sim.diagnostics import Delivery, Pulls
from cfcl.sim.world import World, single_thread


@dataclass(frozen=True)
class Picks:
    """The items selected on all links."""

    distances: Tensor
    """To the nearest centroid of the receiver's candidates."""
    held: Tensor
    """Whether the receiver has the item's label already; empty without labels."""


def select(config: Config, model: Weights, steps: Iterable[int]) -> Picks:
    """What `config` would select at `steps` under `model`; nothing is learnt and nothing kept."""
    scene = world.build(config)
    pulls = Pulls(scene.setting, scene.dataset.train_labels, scene.parts)
    distances, held = [torch.zeros(0)], [torch.zeros(0, dtype=torch.bool)]
    with single_thread():
        states = [
            replace(device.start(scene.setting, i, scene.dataset.train_images, part), weights=model, anchor=model)
            for i, part in enumerate(scene.parts)
        ]
        for step in steps:
            states, answers = _exchange(scene, states, step)
            delivered: dict[int, list[Delivery]] = {}
            for answer in answers:
                delivered.setdefault(answer.items.target, []).append(pulls.follow(answer))
            for i, deliveries in delivered.items():
                distances += pulls.distances(states[i], deliveries, step)
                held += [pulls.held(i, delivery.labels).bool() for delivery in deliveries]
    return Picks(torch.cat(distances), torch.cat(held))


def _exchange(scene: World, states: list[DeviceState], step: int) -> tuple[list[DeviceState], list[Answer]]:
    setting, graph = scene.setting, scene.graph
    for i, state in enumerate(states):
        states[i], reserves = device.push(setting, state, step, graph.neighbours(i))
        for reserve in reserves:
            states[reserve.target] = device.store(states[reserve.target], reserve)
    states = device.prepare(setting, states, step)
    asked = [
        (state, [message for i in graph.neighbours(j) for message in device.request(setting, i, step, [j])])
        for j, state in enumerate(states)
    ]
    return states, device.answer(setting, asked, step)
