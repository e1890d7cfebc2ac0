"""Settings of what may go wrong between devices: faults, hostile devices and defences, and what must stay private."""

from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, Field, Strict, model_validator

from cfcl.config import complaints
from cfcl.config.fields import MOST, Count, NonNegative, Place, Positive, PositiveCount, Section, Share


def _check_chosen(value: object) -> int | tuple[int, ...]:
    found = tuple(value) if isinstance(value, list | tuple) else value
    numbers = found if isinstance(found, tuple) else (found,)
    if not all(type(number) is int and 0 <= number <= MOST for number in numbers) or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{complaints.shown(value)} is neither a number of devices nor a list of different ones: give 1, or [3, 5]"
        )
    return cast(int | tuple[int, ...], found)


Chosen = Annotated[int | tuple[int, ...], BeforeValidator(_check_chosen)]
AttackKind = Literal[
    "items-noise",
    "items-negative",
    "items-constant",
    "items-far",
    "items-centroids",
    "reserve-noise",
    "reserve-radii",
    "request-all",
    "model-flipped",
    "model-scaled",
    "model-noise",
    "model-weight",
]


class FaultsConfig(Section):
    """What goes wrong on the way, drawn by the seed; all of it happens in the link."""

    offline: Share = 0.0
    """Probability that a device is offline in a round: nothing leaves it and nothing reaches it."""
    offline_steps: PositiveCount | None = None
    """Updates in such a round, after which it is drawn again who is offline; not set: aggregation.period."""
    offline_file: Place | None = None
    """CSV `device,from,to`: offline from one step until before another; an empty `to` is for good."""
    offline_trains: bool = True
    """Whether a device that is offline goes on training by itself."""
    gone: Share = 0.0
    """Probability that a device is lost for good, from a step that is drawn uniformly from the run."""
    straggling: Share = 0.0
    """Probability that a device's model comes too late for an aggregation; it is then not averaged."""
    loss: Share = 0.0
    """Probability that a message is lost on its way."""
    links_file: Place | None = None
    """CSV `source,target,from,to`: the link is down from one step until before another; -1 is the server."""
    damage: Share = 0.0
    """Probability that a message is damaged on its way."""
    damaged: Literal["bytes", "values"] = "bytes"
    """`bytes`: some are flipped, and the receiver's checksum finds it; `values`: floats become NaN, which receivers
    refuse, and pixels become other pixels, which nobody can tell."""
    graphs_file: Place | None = None
    """CSV `from,edges_file`: from each step on, the graph is that of another file of pairs."""

    @property
    def active(self) -> bool:
        """Whether anything can go wrong."""
        chances = self.offline, self.gone, self.straggling, self.loss, self.damage
        files = self.offline_file, self.links_file, self.graphs_file
        return any(chance > 0 for chance in chances) or any(file is not None for file in files)

    @property
    def absences(self) -> bool:
        """Whether devices can be offline."""
        return self.offline > 0 or self.gone > 0 or self.offline_file is not None


class AttackConfig(Section):
    """Hostile devices, for measuring what they can do; in simulation only."""

    devices: Chosen = 0
    """How many devices are hostile, drawn by the seed, or a list of them, such as [3]; 0: none."""
    kind: AttackKind = "items-noise"
    """What they send in place of what they should. Items of noise (`items-noise`), negatives of their images, flat grey
    images, items `strength` times as long, or the receiver's own reserve back (`items-centroids`); a reserve of noise,
    or one that claims to stand for almost nothing (`reserve-radii`); a request for more than the budget; a model with
    the update turned round, enlarged, in a random direction, or one that claims a large weight."""
    strength: Positive | None = None
    """How many times as long, large or much; not set: 1,000,000 for `items-far`, `reserve-radii` and `model-weight`,
    1,000 for `request-all`, 10 for the other kinds of models."""


class DefenceConfig(Section):
    """What a device refuses of what its neighbours send it."""

    range: NonNegative | None = None
    """Refuse items whose brightness, contrast or roughness (mean, deviation and mean step between neighbours of what is
    sent) lies outside the range of the device's own, widened at both ends by this share of it; not set: none."""
    clip: Positive | None = None
    """Longest embedding, or activations, in median lengths of the device's own; longer ones are shortened to it (modes
    `implicit` and `activations`); not set: no limit."""
    cap: PositiveCount | None = None
    """Most items of one neighbour that a device holds, the newest; not set: no limit."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Largest share of one neighbour in the pulled items that a device holds; with too few neighbours for it, all have
    equal parts. Not set: no limit."""


class PrivacyConfig(Section):
    """What may leave a device for its neighbours, and how it is blurred first."""

    raw: Literal["allowed", "never"] = "allowed"
    """`never`: no device sends or takes datapoints, whatever others ask; mode `explicit` is refused."""
    never_devices: Annotated[tuple[Count, ...], Strict(False), Field(max_length=10**4)] = ()
    """Devices that send and take no datapoints, such as [0, 3]; the others exchange without them (mode `explicit`)."""
    clip: Positive | None = None
    """Length to which a longer vector is shortened before it leaves a device: an embedding, or what a layer makes of
    one view (modes `implicit` and `activations`); not set: no vector is."""
    noise: NonNegative = 0.0
    """Standard deviation of Gaussian noise on every entry of such a vector, in units of `clip`; 0 is none."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The probability that epsilon leaves open, where noise is added; it changes no number of a run."""

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if self.noise > 0 and self.clip is None:
            raise ValueError(
                f"noise={self.noise:g} is in units of clip, which is not set: set privacy.clip, such as 1.0, the "
                "length of an embedding that is normalised"
            )
        if len(set(self.never_devices)) < len(self.never_devices):
            raise ValueError(f"never_devices={list(self.never_devices)} names a device twice: name each once")
        return self
