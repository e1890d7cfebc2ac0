"""The server: which models it averages, and how. It never sees a datapoint or an embedding."""

from collections.abc import Iterable, Sequence

import torch

from cfcl import rng
from cfcl.config import Config
from cfcl.core.averaging import weighted_average
from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel
from cfcl.models import Weights


def participants(config: Config, step: int) -> tuple[int, ...]:
    """The devices whose models are averaged at `step`: all, or a uniform draw."""
    everyone, size = config.partition.num_devices, config.aggregation.num_devices
    if size is None or size == everyone:
        return tuple(range(everyone))
    drawn = torch.randperm(everyone, generator=rng.stream(config.seed, "participants", step))[:size]
    return tuple(sorted(drawn.tolist()))


def aggregate(models: Sequence[LocalModel]) -> Weights:
    """The new global model, Eq. (5), by the points each device has trained on; buffers go the same way."""
    ordered = sorted(models, key=lambda model: model.source)
    weights = [model.weight for model in ordered]
    return Weights(
        weighted_average([model.params for model in ordered], weights),
        weighted_average([model.buffers for model in ordered], weights),
    )


def broadcast(model: Weights, devices: Iterable[int], step: int) -> list[GlobalModel]:
    """The global model for each of `devices`."""
    return [GlobalModel(SERVER, device, step, model.params, model.buffers) for device in devices]
