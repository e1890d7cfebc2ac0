"""What a policy selects when all devices hold one given model: selections that can be compared with each other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cfcl import device
from cfcl.config import Config
from cfcl.device import Answer
from cfcl.models import Weights
from cfcl.protocol.link import Direct
from cfcl.protocol.parties import Parties, together
from cfcl.protocol.phases import Deliver, Push, Request
from cfcl.protocol.steps import Played, play
from cfcl.sim import world
from cfcl.sim.diagnostics import Observer, by_target
from cfcl.sim.world import World, single_thread


@dataclass(frozen=True)
class Picks:
    """The items selected on all links."""

    distances: Tensor
    """To the nearest centroid of the receiver's candidates."""
    mean_distances: Tensor
    """To all its centroids, on average."""
    held: Tensor
    """Whether the receiver has the item's label already; empty without labels."""


def select(config: Config, model: Weights, steps: Iterable[int]) -> Picks:
    """What `config` would select at `steps` under `model`; nothing is learnt and nothing kept."""
    return picks(world.build(config), model, steps)


def picks(scene: World, model: Weights, steps: Iterable[int]) -> Picks:
    """The same in a world that is there already."""
    observer = Observer(scene.setting, scene.dataset.train_labels, scene.parts)
    states = [
        replace(device.start(scene.setting, i, scene.dataset.train_images, part), weights=model, anchor=model)
        for i, part in enumerate(scene.parts)
    ]
    nearest, means, held = [torch.zeros(0)], [torch.zeros(0)], [torch.zeros(0, dtype=torch.bool)]
    with single_thread():
        (host,) = together(scene.rules, states)
        for step in steps:
            played = _exchanged(host, step)
            answers = [item for sent in played.sent for item in sent.reports if isinstance(item, Answer)]
            notes = [note for reply in answers if (note := observer.note(reply, {}))]
            for i, mine in by_target(notes).items():
                items = [played.used[i][note.source] for note in mine]
                squared = observer.squared_distances(host.devices[i], items, mine)
                nearest += [found.amin(dim=-1).sqrt() for found in squared]
                means += [found.sqrt().mean(dim=-1) for found in squared]
                held += [observer.held(i, note.labels).bool() for note in mine]
    return Picks(torch.cat(nearest), torch.cat(means), torch.cat(held))


def _exchanged(host: Parties, step: int) -> Played:
    """An exchange as at `step`, whether or not the schedule has one there; what is received is not kept."""
    before = dict(host.devices)
    for phase in (Push(), Request(), Deliver()):
        played = play(phase, [host], Direct(), step)
    host.devices |= {
        i: replace(
            state, pulled=before[i].pulled, pulled_at=before[i].pulled_at, sent=before[i].sent, news=before[i].news
        )
        for i, state in host.devices.items()
    }
    return played
