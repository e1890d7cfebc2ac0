"""How much of its neighbours' data a device lacks, found out from reserves alone, before any training.

The two ends of a link begin as they do with method `cover`: the receiver pushes its reserve with radii, and the
transmitter says how likely each of its points is new. There it ends: nothing is pulled, and no model is asked.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from cfcl import config as configs
from cfcl import device
from cfcl.config import Config
from cfcl.core import importance
from cfcl.data.datasets import Dataset
from cfcl.device import DeviceState, Setting
from cfcl.device.transmitter import pixels
from cfcl.errors import CfclError
from cfcl.exchange import cost, policies
from cfcl.exchange.messages import DataReserve, Reserve
from cfcl.exchange.policies import Randomness
from cfcl.records import LinkOverlap, Overlap
from cfcl.sim import world
from cfcl.sim.world import World, single_thread

METHOD = "cover-explicit"
MOST_DRAWS = 10
"""Draws of candidates that a device looks at, a thousand points with most presets: more take time and say no more."""

Watch = Callable[[str], None]


def measure(
    config: Config, *, torch_device: str = "cpu", dataset: Dataset | None = None, watch: Watch = lambda text: None
) -> Overlap:
    """The overlap of all neighbours among the devices of `config`, whatever its method and mode.

    A `dataset` takes the place of the one that `config.data` names; `watch` hears what is being done.
    """
    scene = world.build(configs.with_method(config, METHOD), torch_device=torch_device, dataset=dataset)
    if not scene.graph.links:
        raise CfclError("partition.num_devices=1 leaves no neighbours to compare: set it to 2 or more")
    store = scene.dataset.train_images.to(scene.setting.encoder.device)
    states = [device.start(scene.setting, i, store, part) for i, part in enumerate(scene.parts)]
    for state in states:
        device.check(scene.setting, state)
    with single_thread():
        pushed = _pushed(scene, states, watch)
        compared = list(_compared(scene, states, pushed, watch))
    links = tuple(link for _, some in compared for link in some)
    if not links:
        raise CfclError(
            f"exchange.num_pulled={config.exchange.num_pulled} pulls nothing over any link, so that no reserve is due: "
            "raise it"
        )
    sizes = [cost.size_of(reserve, num_parameters=0) for some in pushed for reserve in some.values()]
    return Overlap(scene.dataset.name, tuple(own for own, _ in compared), links, sum(sizes))


def _pushed(scene: World, states: Sequence[DeviceState], watch: Watch) -> list[dict[int, Reserve]]:
    """The reserves of every device, by the neighbour that gets them."""
    found = []
    for state in states:
        watch(f"reserves: device {state.id + 1:,} of {len(states):,}")
        _, reserves = device.push(scene.setting, state, 0, scene.graph.neighbours(state.id))
        found.append({reserve.target: reserve for reserve in reserves})
    return found


def _compared(
    scene: World, states: Sequence[DeviceState], pushed: Sequence[dict[int, Reserve]], watch: Watch
) -> Iterator[tuple[float | None, list[LinkOverlap]]]:
    """For every device, what of its own data is new to itself, and to each neighbour whose reserve it has."""
    labels, parts = scene.dataset.train_labels, scene.parts
    for state in states:
        i = state.id
        watch(f"comparing: device {i + 1:,} of {len(states):,}")
        draws = _draws(scene.setting, state)
        own = max(pushed[i].values(), key=lambda reserve: len(reserve.content), default=None)
        links = [
            LinkOverlap(
                transmitter=i,
                receiver=j,
                new=_share(scene.setting, draws, pushed[j][i]),
                lacked=None if labels is None else _lacked(labels[parts[i]], labels[parts[j]]),
            )
            for j in scene.graph.neighbours(i)
            if i in pushed[j]
        ]
        yield None if own is None else _share(scene.setting, draws, own), links


def _draws(setting: Setting, state: DeviceState) -> list[Tensor]:
    """A device's points as rows, in draws as large as those of candidates: what is like a point is then as near.

    The first begins with the candidates of step 0; no point is in two of them.
    """
    number, size = len(state.points), setting.budgets.candidates(state.id)
    uniforms = Randomness(setting.config.seed, state.id, 0).uniforms("candidates", number)
    places = importance.uniform_sample(uniforms, min(number, MOST_DRAWS * size))
    return [pixels(state.points[some.to(state.points.device)]) for some in places.tensor_split(len(places) // size)]


def _share(setting: Setting, draws: Sequence[Tensor], reserve: Reserve) -> float:
    """The share of the points that is new to whoever has pushed `reserve`."""
    assert isinstance(reserve, DataReserve)
    assert reserve.numbers is not None
    shown, radii = pixels(reserve.points), reserve.numbers
    scores = [policies.cover_scores(points, shown, radii, setting.config.exchange) for points in draws]
    return float(torch.cat([newness for _, newness in scores]).exp().mean())


def _lacked(wanted: Tensor, held: Tensor) -> float:
    """The share of the labels `wanted` that are not among those `held`."""
    return float((~torch.isin(wanted, held)).double().mean())
