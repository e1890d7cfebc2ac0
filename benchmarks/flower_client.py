"""A client of Flower's that does what a device of ours does in one round of federated averaging.

With CFCL_BENCH_TRANSFORMS=batch it has our own batched augmentation; with `sample`, a DataLoader that transforms image
by image, as people write it.
"""

import os
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from flwr.client import Client, NumPyClient
from flwr.common import Context
from plain import Triplets, endless
from torch.nn import functional
from torch.utils.data import DataLoader

from cfcl import config, rng
from cfcl.data.augment import augment
from cfcl.models import networks
from cfcl.sim import world

Arrays = list[np.ndarray]


@cache
def scene() -> world.World:
    """Data and partition, once per process."""
    return world.build(config.load(os.environ["CFCL_BENCH_PRESET"], ["exchange.method=fedavg"]))


@cache
def module() -> torch.nn.Module:
    """The same network in torch's usual layout, once per process."""
    layers = networks.build(scene().config.model, scene().dataset.image_shape, torch.Generator()).children()
    return torch.nn.Sequential(*[layer for layer in layers if not isinstance(layer, networks.ChannelsLast)])


def weights() -> Arrays:
    """The network's tensors."""
    return [value.detach().numpy() for value in module().state_dict().values()]


@cache
def loader(number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Batches of one client, image by image, once per process."""
    wanted, part = scene().config, scene().parts[number]
    data = Triplets(scene().dataset.train_images[part], wanted.augment)
    return endless(DataLoader(data, wanted.train.batch_size, shuffle=True, drop_last=True))


class Device(NumPyClient):
    """One client: a round of local updates, with our own batched augmentation and torch's fused Adam."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fit(self, parameters: Arrays, settings: dict[str, int]) -> tuple[Arrays, int, dict[str, float]]:
        """Train on from `parameters`."""
        torch.set_num_threads(1)
        wanted, model = scene().config, module()
        keys = model.state_dict().keys()
        model.load_state_dict({key: torch.tensor(value) for key, value in zip(keys, parameters, strict=True)})
        optimiser = torch.optim.Adam(model.parameters(), lr=wanted.train.learning_rate, fused=True)
        part, images = scene().parts[self.number], scene().dataset.train_images
        stream = rng.stream(0, "flower", self.number, settings["round"])
        for _ in range(wanted.aggregation.period):
            if os.environ["CFCL_BENCH_TRANSFORMS"] == "sample":
                anchors, positives, negatives = next(loader(self.number))
            else:
                places = torch.randint(len(part), (2, wanted.train.batch_size), generator=stream)
                anchors, negatives = (images[part[row]].float().div_(255) for row in places)
                positives = augment(anchors, wanted.augment, stream)
            first, second, third = functional.normalize(model(torch.cat([anchors, positives, negatives]))).chunk(3)
            near, far = (first - second).square().sum(-1), (first - third).square().sum(-1)
            optimiser.zero_grad()
            (near - far + wanted.train.margin).clamp_min(0).mean().backward()
            optimiser.step()
        return weights(), len(part), {}


def client_fn(context: Context) -> Client:
    """The client that Flower asks for."""
    return Device(int(context.node_config["partition-id"])).to_client()
