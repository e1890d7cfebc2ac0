"""What a device knows, and what all devices of a run share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from cfcl.config import Config
from cfcl.core.clustering import Clusters
from cfcl.core.optimisers import Moments
from cfcl.errors import CfclError
from cfcl.exchange.links import Budgets
from cfcl.exchange.messages import PullRequest, Reserve
from cfcl.exchange.policies import Policy
from cfcl.models import Encoder, Weights
from cfcl.objectives import Objective
from cfcl.schedule import Schedule

Lacks = Callable[[int, Tensor, int], Tensor]
"""Whether a receiver lacks the labels of a transmitter's points, from transmitter, positions and receiver."""


@dataclass(frozen=True)
class Setting:
    """What all devices of a run share."""

    config: Config
    encoder: Encoder
    policy: Policy
    schedule: Schedule
    budgets: Budgets
    objective: Objective
    lacks: Lacks | None = None
    """For policies that cheat, in simulation."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """State of devices besides the model, as it is at the start."""

    @property
    def averaged(self) -> Mapping[str, Tensor]:
        """What of it is averaged with the model."""
        return self.extras if self.config.aggregation.target == "average" else {}

    @property
    def explicit(self) -> bool:
        """Whether datapoints travel."""
        return self.config.exchange.mode == "explicit"

    @property
    def layer(self) -> str | None:
        """The stage whose activations travel, if any do."""
        return self.config.exchange.layer if self.config.exchange.mode == "activations" else None

    def permits(self, *devices: int) -> bool:
        """Whether the mode's items may pass between `devices`: datapoints only if each of them allows it."""
        return not self.explicit or all(map(self.allows_raw, devices))

    def allows_raw(self, device: int) -> bool:
        """Whether a device sends and takes datapoints."""
        return self.config.privacy.raw == "allowed" and device not in self._never

    @cached_property
    def _never(self) -> frozenset[int]:
        return frozenset(self.config.privacy.never_devices)

    @property
    def adaptive(self) -> bool:
        """Whether receivers ask for more where more is new, which the policy must be able to tell."""
        return self.config.exchange.budget == "adaptive" and self.policy.newness is not None

    @property
    def joins(self) -> bool:
        """Whether what is pulled joins batches; else it is embeddings, which enter the loss."""
        return self.config.exchange.mode != "implicit"


@dataclass(frozen=True, eq=False)
class Points:
    """A device's own datapoints: places in a store that all devices of a process share."""

    store: UInt8[Tensor, "all channels height width"]
    places: Int[Tensor, " points"]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, positions: Tensor) -> UInt8[Tensor, "taken channels height width"]:
        return self.store[self.places[positions]]

    def all(self) -> UInt8[Tensor, "points channels height width"]:
        """Every one of them, copied out of the store."""
        return self.store[self.places]

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.store.device


@dataclass(frozen=True)
class Candidates:
    """What a device may send at this exchange, Eq. (7) and (14)."""

    positions: Tensor
    """Places in its own points, followed by what it pulled before (candidates `relay`)."""
    payload: Tensor
    """What would be sent of each: a datapoint, an embedding, or the activations of two views."""
    embeddings: Tensor
    """Under the importance model; the payload of blind policies is not embedded, and this is empty."""
    rows: Tensor | None
    """Each as one row of numbers, for policies that measure distances between them."""
    clusters: Clusters
    """Clusters of the embeddings, a batch of one."""


@dataclass(frozen=True)
class DeviceState:
    """Everything a device knows. Tensors in it are never changed in place."""

    id: int
    points: Points
    weights: Weights
    moments: Moments
    anchor: Weights
    """The last global model."""
    pulled: Tensor
    """What came from neighbours: datapoints, embeddings, or activations of two views."""
    sources: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """The neighbour that sent each of them."""
    pulled_at: int = 0
    own_reserve: Mapping[int, Tensor] = field(default_factory=dict)
    """Positions of the points that stand for its data, by the size of the reserve; chosen once."""
    reserves: Mapping[int, Reserve] = field(default_factory=dict)
    """The newest reserve of every neighbour."""
    heard: Mapping[int, int] = field(default_factory=dict)
    """When each neighbour last sent items: such a one has this device's reserve, if it needs one."""
    requests: tuple[PullRequest, ...] = ()
    """What neighbours ask for at this exchange."""
    asked: Mapping[int, int] = field(default_factory=dict)
    """How many items it asks of each neighbour at this exchange."""
    candidates: Candidates | None = None
    sent: Mapping[int, Tensor] = field(default_factory=dict)
    """Positions of the points that each neighbour got and keeps, for policies that remember."""
    news: Mapping[int, int] = field(default_factory=dict)
    """How many candidates of each neighbour were new to this device when it last said so, with adaptive budgets."""
    margin: float = 0.0
    """The dynamic margin, Eq. (24)."""
    points_seen: int = 0
    """Sum of |D_i^t| over the updates since the last aggregation."""
    updates: int = 0
    """Number of those updates."""
    active: float = 1.0
    """Share of the last batch that moved the model."""
    scaler: float = 0.0
    """That of FedEMA, set at the first aggregation."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """State besides the model, such as a momentum target."""


def start(setting: Setting, device: int, store: Tensor, places: Tensor) -> DeviceState:
    """A device with the points of `store` at `places` that has just received the initial global model (Alg. 1)."""
    initial = setting.encoder.initial
    return DeviceState(
        id=device,
        points=Points(store, places.to(store.device)),
        weights=initial,
        moments=fresh_moments(initial),
        anchor=initial,
        pulled=no_items(setting),
        extras=setting.extras,
    )


def check(setting: Setting, state: DeviceState) -> None:
    """Refuse a device that holds too few points for its batches or for what it would have to offer."""
    exchange, train = setting.config.exchange, setting.config.train
    within = setting.objective.two_views or train.negatives == "batch"
    if within and train.batch_size > len(state.points):
        remedy = "" if setting.objective.two_views else ", or set train.negatives='drawn'"
        raise CfclError(
            f"train.batch_size={train.batch_size} exceeds the {len(state.points)} points of device {state.id}, but "
            f"negatives of the same batch must be other points: lower it{remedy}"
        )
    if setting.policy.choose is None:
        return
    if setting.policy.offer is not None:
        largest = max([exchange.num_reserve, *(reserve for _, reserve in setting.budgets.special.values())])
        _check_size("num_reserve", largest, state)
    if setting.policy.when == "periodic":
        _check_size("num_candidates", setting.budgets.candidates(state.id), state)
    _check_size("num_clusters", exchange.num_clusters, state)


def fresh_moments(weights: Weights) -> Moments:
    """Moments before the first update."""
    return Moments(torch.zeros_like(weights.params), torch.zeros_like(weights.params), 0)


def no_embeddings(setting: Setting) -> Tensor:
    """An empty batch of embeddings."""
    encoder = setting.encoder
    return torch.zeros(0, encoder.embedding_dim, dtype=torch.float32, device=encoder.device)


def no_items(setting: Setting) -> Tensor:
    """An empty batch of what this run's mode exchanges."""
    encoder = setting.encoder
    if setting.layer is not None:
        return torch.zeros(0, 2, *encoder.shapes[setting.layer], dtype=torch.float32, device=encoder.device)
    if not setting.explicit:
        return no_embeddings(setting)
    return torch.zeros(0, *encoder.image_shape, dtype=torch.uint8, device=encoder.device)


def _check_size(name: str, value: int, state: DeviceState) -> None:
    if value > len(state.points):
        raise CfclError(
            f"exchange.{name}={value} exceeds the {len(state.points)} points of device {state.id}: lower "
            f"exchange.{name}, use fewer devices, or raise partition.min_points"
        )
