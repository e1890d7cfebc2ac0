"""The server: which models it averages, how, and what it makes of that. It never sees a datapoint or an embedding."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import AggregationConfig, Config
from cfcl.core import optimisers
from cfcl.core.averaging import accumulate, drawn_back, trimmed_mean
from cfcl.core.optimisers import Moments
from cfcl.errors import CfclError
from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel, ModelBlock
from cfcl.models import Weights

ADAM_DECAY, ADAM_FLOOR = 0.99, 1e-3
"""Of the server's Adam: decay of the squares, and what is added to their root."""


@dataclass(frozen=True)
class ServerState:
    """What the server knows; where its work is spread over processes, each has one for its own devices."""

    model: Weights
    """The global model."""
    serves: tuple[int, ...]
    """The devices whose models come here."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """What is averaged besides the model."""
    models: tuple[LocalModel, ...] = ()
    """Those that have arrived at this aggregation, where the rule needs all at once."""
    total: Tensor | None = None
    """Their sum, or a block of the result of another rule."""
    moments: Moments | None = None
    """Of the server's optimiser, if it has one."""
    smooth: Weights | None = None
    """The moving average of the global model, if there is one."""

    @property
    def result(self) -> Weights:
        """The model that is judged, and left behind."""
        return self.model if self.smooth is None else self.smooth

    @property
    def first(self) -> bool:
        """Whether the sum starts here."""
        return 0 in self.serves or not self.serves


def begin(
    settings: AggregationConfig, model: Weights, serves: Sequence[int], extras: Mapping[str, Tensor]
) -> ServerState:
    """The server before the first step."""
    zeros = torch.zeros_like(model.params)
    return ServerState(
        model,
        tuple(serves),
        extras,
        moments=None if settings.server == "average" else Moments(zeros, zeros, 0),
        smooth=model if settings.ema > 0 else None,
    )


def participants(config: Config, step: int) -> tuple[int, ...]:
    """The devices whose models are averaged at `step`: all, or a uniform draw."""
    everyone, size = config.partition.num_devices, config.aggregation.num_devices
    if size is None or size == everyone:
        return tuple(range(everyone))
    return tuple(rng.places(everyone, size, config.seed, "participants", step).tolist())


def needs_all(config: Config) -> bool:
    """Whether the rule looks at all models at once, parameter by parameter; the mean of Eq. (5) is a sum."""
    return config.aggregation.rule != "mean" or config.aggregation.clip is not None


def start(state: ServerState) -> Tensor:
    """An empty sum: parameters, buffers, extras, and the sum of weights as the last entry."""
    return torch.zeros(sum(map(len, _parts(state.model, state.extras))) + 1, dtype=torch.float64)


def add(total: Tensor, message: LocalModel) -> None:
    """Add one model to the sum of Eq. (5), in place; the order of models decides the bits."""
    accumulate(total[:-1], _flat(message), message.weight)
    total[-1] += message.weight


def finish(state: ServerState, total: Tensor) -> ServerState:
    """The new global model, Eq. (5), from the sum of all; the old one if no model has arrived."""
    if total[-1] == 0:
        return replace(state, total=None)
    parts = _parts(state.model, state.extras)
    exact = torch.split(total[:-1] / total[-1], [len(part) for part in parts])
    means = [mean.to(part) for mean, part in zip(exact, parts, strict=True)]
    return replace(
        state, model=Weights(*means[:2]), extras=dict(zip(sorted(state.extras), means[2:], strict=True)), total=None
    )


def stack(state: ServerState) -> Tensor:
    """The models that have arrived, one row each in order of device, with a one behind each."""
    rows = [torch.cat([_flat(model), torch.ones(1)]) for model in state.models]
    return torch.stack(rows) if rows else torch.zeros(0, len(start(state)))


def measure(config: Config, state: ServerState) -> Tensor | None:
    """[models, 2]: weight and distance from the global model of those that have arrived, if models are clipped."""
    if config.aggregation.clip is None:
        return None
    centre = torch.cat(_parts(state.model, state.extras)).cpu().double()
    found = [[model.weight, float((_flat(model).double() - centre).norm())] for model in state.models]
    return torch.tensor(found, dtype=torch.float64).view(-1, 2)


def clipped(config: Config, state: ServerState, block: ModelBlock) -> Tensor:
    """The block's entries of models that are no further from the global one than `clip` times the median distance."""
    if config.aggregation.clip is None or len(block.entries) == 0:
        return block.entries
    assert block.measures is not None
    distances = block.measures[:, 1]
    centre = torch.cat([*(part.cpu() for part in _parts(state.model, state.extras)), torch.ones(1)])
    centre = centre[block.first : block.first + block.entries.shape[1]]
    return drawn_back(
        block.entries, centre, distances, most=config.aggregation.clip * statistics.median(distances.tolist())
    )


def combine(config: Config, entries: Tensor, weights: Tensor | None = None) -> Tensor:
    """What the rule makes of a block of all models' entries, as `finish` takes it: zeros if no model has arrived.

    Only the mean asks for `weights`.
    """
    total = torch.zeros(entries.shape[1], dtype=torch.float64)
    if config.aggregation.rule == "mean":
        assert weights is not None
        for model, weight in zip(entries, weights.tolist(), strict=True):
            accumulate(total, model, weight)
        return total
    if len(entries) == 0:
        return total
    return trimmed_mean(entries, 0.5 if config.aggregation.rule == "median" else config.aggregation.trim)


def improve(settings: AggregationConfig, before: ServerState, after: ServerState) -> ServerState:
    """The server when it has made its own step from the model of `before` towards the average, that of `after`."""
    if after.model is before.model:  # no model has arrived
        return after
    params, moments = _step(settings, before, after.model.params)
    model = Weights(params, after.model.buffers)
    smooth = before.smooth
    if smooth is not None:
        smooth = Weights(*(torch.lerp(new, old, settings.ema) for new, old in zip(model, smooth, strict=True)))
    return replace(after, model=model, moments=moments, smooth=smooth)


def _step(settings: AggregationConfig, state: ServerState, average: Tensor) -> tuple[Tensor, Moments | None]:
    """New global parameters, with the way from the average back to the old ones as gradient."""
    if state.moments is None:
        return average, None
    params = state.model.params
    if settings.server == "momentum":
        rate = settings.server_rate or 1.0
        return optimisers.momentum_update(
            params, params - average, state.moments, learning_rate=rate, momentum=settings.server_momentum
        )
    betas, rate = (settings.server_momentum, ADAM_DECAY), settings.server_rate or 0.01
    return optimisers.adam_update(
        params, params - average, state.moments, learning_rate=rate, betas=betas, eps=ADAM_FLOOR
    )


def aggregate(models: Sequence[LocalModel]) -> Weights:
    """The average of a list of models, Eq. (5), by the points each device has trained on, in order of device."""
    if not models:
        raise CfclError("no model has arrived, so there is nothing to average: give at least one")
    first = models[0]
    state = ServerState(Weights(first.params, first.buffers), (), extras=first.extras)
    total = start(state)
    for model in sorted(models, key=lambda model: model.source):
        add(total, model)
    return finish(state, total).model


def broadcast(state: ServerState, step: int) -> list[GlobalModel]:
    """The global model for each device that the server serves."""
    model = state.model
    return [GlobalModel(SERVER, device, step, model.params, model.buffers, state.extras) for device in state.serves]


def _flat(message: LocalModel) -> Tensor:
    return torch.cat([part.cpu() for part in _parts(Weights(message.params, message.buffers), message.extras)])


def _parts(model: Weights, extras: Mapping[str, Tensor]) -> list[Tensor]:
    return [model.params, model.buffers, *(extras[name] for name in sorted(extras))]
