"""What a run measures, one type per kind of record; a record is a line of JSON and comes back as it was.

Nothing here needs torch or the engine: reports are made of records alone.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise, repeat
from types import UnionType
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

R = TypeVar("R", bound="Record")

LARGEST = 1e100
"""Of a number in a record: sums, means and scales of plots stay finite."""


@dataclass(frozen=True)
class Record:
    """A frozen row. A field named in `OPTIONAL` is left out of the line where it is None."""

    KIND: ClassVar[str] = ""
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, in order; without those that are optional and not there."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: value for key, value in found.items() if value is not None or key not in self.OPTIONAL}

    def to_line(self) -> str:
        """One line of JSON; NaN and infinity are not numbers and may not pass."""
        return json.dumps({"kind": self.KIND, **self.to_dict()}, separators=(",", ":"), allow_nan=False, default=_plain)


@dataclass(frozen=True)
class Setup(Record):
    """The first record: what is fixed before the first step."""

    KIND: ClassVar[str] = "setup"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset(
        {"dataset", "encoder", "num_judged", "split", "most_pulled", "most_pushed"}
    )

    dataset: str | None
    """Its name and the encoder's; the first run folders have neither."""
    encoder: str | None
    num_parameters: int
    points: tuple[int, ...]
    """Per device."""
    labels: tuple[tuple[int, ...], ...] | None
    """Per device; None without labels."""
    edges: tuple[tuple[int, int], ...]
    positions: tuple[tuple[float, float], ...] | None
    num_judged: int | None = None
    """Images behind every accuracy, where few labels, features or a validation split are asked for."""
    split: str | None = None
    """Where they are from, if not from the test split: `validation`."""
    most_pulled: int | None = None
    """Vectors of one image that leave its device in answers to pulls, at most, where they have noise."""
    most_pushed: int | None = None
    """The same in reserves."""


@dataclass(frozen=True)
class Costs(Record):
    """What was spent until then; in a line these figures stand last."""

    bytes_push: int
    bytes_pull: int
    bytes_up: int
    bytes_down: int
    seconds: float
    joules: float

    @property
    def bytes(self) -> int:
        """What all links carried, uplinks included."""
        return self.bytes_d2d + self.bytes_up + self.bytes_down

    @property
    def bytes_d2d(self) -> int:
        """What devices sent to each other."""
        return self.bytes_push + self.bytes_pull

    def to_dict(self) -> dict[str, Any]:
        """As in a file."""
        found = super().to_dict()
        spent = {name: found.pop(name) for name in _TYPES[Costs]}
        return {**found, **spent}


@dataclass(frozen=True)
class Evaluation(Costs):
    """The global encoder at an aggregation, and what was spent until then."""

    KIND: ClassVar[str] = "eval"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset(
        {
            "probe",
            "knn",
            "cka",
            "few",
            "worst_label",
            "worst_device",
            "features_probe",
            "features_knn",
            "features_few",
            "features_alignment",
            "features_uniformity",
            "features_effective_rank",
        }
    )

    step: int
    probe: float | None
    """Accuracies are there where labels are."""
    knn: float | None
    alignment: float
    uniformity: float
    effective_rank: float
    objective: float
    cka: float | None
    """How alike the local models were just before the aggregation; none at the start."""
    few: Mapping[str, float] | None = None
    """Probe accuracy by the number of labels per class, if few were asked for: the mean over five draws."""
    worst_label: float | None = None
    """The least of the accuracies on one label, if asked for, with the first of these numbers."""
    worst_device: float | None = None
    """The least of devices: accuracies on labels, weighted by how many points of each a device has."""
    features_probe: float | None = None
    """The same figures of the features, if they were asked for; their geometry is that of vectors of length one."""
    features_knn: float | None = None
    features_few: Mapping[str, float] | None = None
    features_alignment: float | None = None
    features_uniformity: float | None = None
    features_effective_rank: float | None = None

    @property
    def accuracies(self) -> dict[str, dict[str, float]]:
        """Of probes, by space (`embedding`, `features`) and number of labels per class or `all`, as far as known."""
        spaces = {"embedding": (self.probe, self.few), "features": (self.features_probe, self.features_few)}
        return {space: {**(few or {}), "all": whole} for space, (whole, few) in spaces.items() if whole is not None}


@dataclass(frozen=True)
class Upfront(Costs):
    """What was paid at t = 0, before the first update: reserves pushed, or all that bulk exchange moves."""

    KIND: ClassVar[str] = "upfront"

    step: int


@dataclass(frozen=True)
class Update(Record):
    """One local update: means over all devices."""

    KIND: ClassVar[str] = "train"

    step: int
    loss: float
    triplet: float
    regulariser: float
    weight: float
    active: float
    pulled_share: float
    margin: float


@dataclass(frozen=True)
class Reason(Record):
    """Why one item was chosen; never what it looks like."""

    index: int
    """Its place among the transmitter's points."""
    cluster: int | None
    """Among the transmitter's candidates; None for a policy that looks at none."""
    log_probability: float
    """Under the law that the item was drawn from."""
    macro: float | None
    """Logarithm of the probability of its cluster; None for a policy without stages."""
    micro: float | None
    """Logarithm of its probability inside the cluster."""
    scores: Mapping[str, float]
    """The policy's own figures."""


@dataclass(frozen=True)
class Pull(Record):
    """What one receiver pulled over one link."""

    KIND: ClassVar[str] = "pull"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"new", "reasons"})

    step: int
    transmitter: int
    receiver: int
    items: int
    effective_candidates: float
    held_labels: float | None
    """Share of items whose label the receiver already has; None without labels."""
    centroid_distance: float | None
    """Mean distance of the items to the nearest centroid of the receiver's candidates; None of no items."""
    reasons: tuple[Reason, ...] | None = None
    """Item by item, with `records.explain`."""
    new: int | None = None
    """How many candidates the transmitter found new to the receiver, with adaptive budgets."""


@dataclass(frozen=True)
class Final(Record):
    """The last record: distances between labels under the final encoder, where there are labels."""

    KIND: ClassVar[str] = "final"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"labels", "label_distances", "separation"})

    step: int
    labels: tuple[int, ...] | None = None
    label_distances: tuple[tuple[float, ...], ...] | None = None
    separation: float | None = None


@dataclass(frozen=True)
class Faults(Record):
    """What has become of messages until then, where things go wrong; all are counted from the start of the run."""

    KIND: ClassVar[str] = "faults"

    step: int
    online: float
    """Share of the devices that are not offline at this step."""
    messages: int
    """That parties wanted to send, requests included."""
    unsent: int
    """Of them, those that did not leave: an end of the link was offline, or the link down."""
    late: int
    """Models that missed their aggregation."""
    lost: int
    damaged: int
    refused: int
    """Of the damaged ones, those that their receivers did not use."""

    @property
    def used(self) -> float:
        """Share of the messages that somebody could use; all of none."""
        return 1.0 - (self.unsent + self.late + self.lost + self.refused) / max(1, self.messages)


@dataclass(frozen=True)
class LinkCost(Record):
    """Bytes over one link, by kind and direction; source or target -1 is the server."""

    source: int
    target: int
    kind: str
    direction: str
    bytes: int


@dataclass(frozen=True)
class Done(Record):
    """How the records of a run in another process end if it has a folder."""

    KIND: ClassVar[str] = "done"

    folder: str


@dataclass(frozen=True)
class Failed(Record):
    """How the records of a run in another process end if it has none."""

    KIND: ClassVar[str] = "failed"

    error: str


@dataclass(frozen=True)
class Warned(Record):
    """Something that a person should know of a run in another process, and that stops nothing."""

    KIND: ClassVar[str] = "note"

    text: str


@dataclass(frozen=True)
class Interval(Record):
    """An accuracy, and between what it lies at 95 %."""

    mean: float
    low: float
    high: float

    @property
    def reach(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Yardstick(Record):
    """What one would use instead of a trained encoder, and how far one gets with it."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"note"})

    name: str
    dim: int
    accuracies: Mapping[str, Interval]
    """Of a probe, by the number of labels per class; `all` for all of them."""
    note: str | None = None
    """What was done to it first."""


@dataclass(frozen=True)
class LinkOverlap(Record):
    """How much of what a transmitter holds is new to a receiver, as shares of its points."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"lacked"})

    transmitter: int
    receiver: int
    new: float
    """Estimated from the receiver's reserve."""
    lacked: float | None = None
    """Points whose label the receiver lacks: the truth, which no device knows; None without labels."""


@dataclass(frozen=True)
class Overlap(Record):
    """What neighbours have in common before anything is trained."""

    KIND: ClassVar[str] = "overlap"

    dataset: str
    own: tuple[float | None, ...]
    """Share of each device's points that is new to itself, which is what the estimate says where nothing is new; None
    for a device that pushes no reserve."""
    links: tuple[LinkOverlap, ...]
    """In order of transmitter, then receiver; at least one."""
    bytes_push: int
    """What the estimate moves: reserves and radii, over all links."""

    @property
    def new(self) -> float:
        """Mean over links."""
        return statistics.fmean(link.new for link in self.links)

    @property
    def floor(self) -> float:
        """Mean of what is new to its own holder."""
        return statistics.fmean(share for share in self.own if share is not None)

    @property
    def lacked(self) -> float | None:
        """Mean over links; None without labels."""
        found = [link.lacked for link in self.links if link.lacked is not None]
        return statistics.fmean(found) if found else None

    @property
    def correlation(self) -> float | None:
        """Of estimate and truth over links; None without labels, or where one of both is the same everywhere."""
        pairs = [(link.new, link.lacked) for link in self.links if link.lacked is not None]
        columns = list(zip(*pairs, strict=True))
        if not columns or any(len(set(column)) == 1 for column in columns):
            return None
        return statistics.correlation(*columns)

    def to_dict(self) -> dict[str, Any]:
        """As in a file: figures of all links first."""
        means = {"new": self.new, "floor": self.floor, "lacked": self.lacked, "correlation": self.correlation}
        return {**means, **super().to_dict()}


@dataclass(frozen=True)
class Timings(Record):
    """Wall-clock figures in seconds: the only ones that differ from run to run."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"exchange"})

    selection: tuple[tuple[int, float], ...]
    """Step and duration of every exchange: the slowest device's time for K-means and importance."""
    exchange: float | None
    """Choosing, moving and taking in reserves and items; early run folders do not have it."""
    evaluation: float
    total: float


@dataclass(frozen=True)
class Environment(Record):
    """Where a run was made, and with what."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"engine", "workers", "numerics"})

    python: str
    machine: str
    device: str
    engine: str | None
    """Early run folders name neither the engine, nor the number of its processes, nor the version of its numerics."""
    workers: int | None
    numerics: int | None
    versions: Mapping[str, str]
    """Of packages, by name; in a file they stand beside the other fields."""

    @classmethod
    def of(cls, row: object) -> Self:
        """The environment that a file describes: what is no field is a package."""
        if isinstance(row, dict):
            own = {key: value for key, value in row.items() if key in _TYPES[cls] and key != "versions"}
            row = {**own, "versions": {key: value for key, value in row.items() if key not in own}}
        return read(cls, row)

    def to_dict(self) -> dict[str, Any]:
        """As in a file."""
        found = super().to_dict()
        versions = found.pop("versions")
        return {**found, **versions}


KINDS: dict[str, type[Record]] = {
    item.KIND: item for item in (Setup, Evaluation, Upfront, Update, Pull, Faults, Final, Done, Failed, Warned)
}

_TYPES: dict[type[Record], dict[str, Any]] = {
    kind: {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    for kind in (*KINDS.values(), Costs, Reason, LinkCost, Interval, Yardstick, Timings, Environment)
}
_WORDS = {int: "a whole number", float: "a finite number", str: "text", tuple: "a list of the right length"}
_SHARES = (
    "probe",
    "knn",
    "features_probe",
    "features_knn",
    "mean",
    "low",
    "high",
    "active",
    "pulled_share",
    "held_labels",
    "online",
)
_AMOUNTS = ("seconds", "joules", "selection", "evaluation", "total", "exchange", "separation", "label_distances")
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_SHARES, (0, 1)),
    **dict.fromkeys(_AMOUNTS, (0, LARGEST)),
    **dict.fromkeys(("source", "target"), (-1, LARGEST)),  # the server is -1
}
"""By field; other whole numbers are counts or places, and so not below 0."""


def parse(line: str) -> Record:
    """The record in a line of JSON; what is missing, unknown or of another type is a ValueError."""
    row = from_json(line)
    kind = KINDS.get(str(row.pop("kind", None))) if isinstance(row, dict) else None
    if kind is None:
        raise ValueError(f"{line[:60]!r} is not a record of the kinds {', '.join(KINDS)}")
    return read(kind, row)


def from_json(text: str) -> Any:
    """What `text` describes; what is not JSON, or says something twice, is a ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_unambiguous)
    except json.JSONDecodeError as error:
        raise ValueError(f"{text[:60]!r} is not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError(f"{text[:60]!r} is nested too deeply") from None


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key occurs twice among {', '.join(key for key, _ in pairs)[:60]!r}")
    return found


def read(kind: type[R], row: object) -> R:
    """A record of `kind` from its fields."""
    name, types = kind.KIND or kind.__name__, _TYPES[kind]
    if not isinstance(row, Mapping):
        raise ValueError(f"{row!r:.60} is not a record of kind {name}")
    unknown, missing = row.keys() - types.keys(), types.keys() - row.keys() - kind.OPTIONAL
    if unknown or missing:
        what = f"has unknown fields {sorted(map(str, unknown))}" if unknown else f"lacks the fields {sorted(missing)}"
        raise ValueError(f"a record of kind {name} {what}")
    known = {key: _fitted(types[key], value, key) for key, value in row.items()}
    return kind(**{**dict.fromkeys(kind.OPTIONAL), **known})


def check(found: Sequence[Record], costs: Iterable[LinkCost] = ()) -> None:
    """Refuse records that cannot be those of one finished run, by the line they stand on."""
    kinds = [type(record) for record in found]
    if kinds[:1] != [Setup] or kinds[-1:] != [Final]:
        raise ValueError("the first record is not of kind setup, or the last one not of kind final")
    setup, last = found[0], found[-1]
    assert isinstance(setup, Setup)
    assert isinstance(last, Final)
    seen: set[tuple[object, ...]] = set()
    newest: dict[type[Record], int] = {}
    links = {link for one, other in setup.edges for link in ((one, other), (other, one))}
    for number, record in enumerate(found, start=1):
        wrong = _wrong(record, setup, links, last.step, newest.get(type(record), 0))
        key = _key(record)
        if wrong or key in seen:
            raise ValueError(f"line {number}: {wrong or f'a second record of kind {record.KIND} at the same place'}")
        seen.add(key)
        newest[type(record)] = getattr(record, "step", 0)
    for cost in costs:
        between = (cost.source, cost.target) in links
        if not between and not -1 == min(cost.source, cost.target) < max(cost.source, cost.target) < len(setup.points):
            raise ValueError(f"costs between {cost.source} and {cost.target}, which have no link")
        known = ("push", "pull") if between else ("up",) if cost.target == -1 else ("down",)
        if cost.direction not in known:
            raise ValueError(f"costs from {cost.source} to {cost.target} of direction {cost.direction!r:.40}")


def _wrong(record: Record, setup: Setup, links: set[tuple[int, int]], last: int, newest: int) -> str:
    """What contradicts the setup, the length of the run or the record of this kind before."""
    if isinstance(record, Setup):
        return _wrong_setup(record)
    if isinstance(record, Done | Failed):
        return f"a record of kind {record.KIND} has no place in a run"
    if isinstance(record, Final) and record.label_distances is not None:
        size = len(record.label_distances)
        labels = range(size) if record.labels is None else record.labels
        if len(set(labels)) != size or any(len(row) != size for row in record.label_distances):
            return "label_distances is not a square of the labels"
    if isinstance(record, Pull) and (record.transmitter, record.receiver) not in links:
        return f"a pull between {record.transmitter} and {record.receiver}, which have no link"
    step: int = getattr(record, "step", 0)
    return "" if newest <= step <= last else f"step={step} is not between {newest}, the one before, and {last}, the end"


def _wrong_setup(setup: Setup) -> str:
    size = len(setup.points)
    for name, found in (("labels", setup.labels), ("positions", setup.positions)):
        if found is not None and len(found) != size:
            return f"{name} is of {len(found)} devices, and points of {size}"
    ordered = all(one < other for one, other in pairwise(setup.edges))
    if size == 0 or not ordered or not all(one < other < size for one, other in setup.edges):
        return f"edges are not pairs of {size} devices, in order and each once"
    return ""


def _key(record: Record) -> tuple[object, ...]:
    """What no other record of a run shares."""
    names = ("step", "transmitter", "receiver") if isinstance(record, Evaluation | Update | Pull | Faults) else ()
    return type(record), *(getattr(record, name, None) for name in names)


def _fitted(wanted: Any, value: Any, name: str) -> Any:
    """`value` as the type `wanted` has it: lists become tuples, objects records; anything else must fit."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is UnionType:
        return None if value is None else _fitted(inner[0], value, name)
    if origin is tuple and isinstance(value, list) and (inner[-1] is ... or len(inner) == len(value)):
        kinds = repeat(inner[0]) if inner[-1] is ... else inner
        return tuple(_fitted(kind, item, name) for kind, item in zip(kinds, value, strict=False))
    if origin is Mapping and isinstance(value, dict):
        return {key: _fitted(inner[1], item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(wanted, type) and issubclass(wanted, Record):
        return read(wanted, value)
    # Whole numbers count as numbers, and stay whole, so that a line comes back as it was.
    fits = type(value) in (int, float) and abs(value) <= LARGEST if wanted is float else type(value) is wanted
    if not fits:
        raise ValueError(f"{name}={_shown(value)} is not {_WORDS.get(origin or wanted, 'an object')}")
    low, high = _RANGES.get(name, (0 if wanted is int else -LARGEST, LARGEST))
    if wanted in (int, float) and not low <= value <= high:
        raise ValueError(f"{name}={_shown(value)} is not from {low:g} to {high:g}")
    return value


def _shown(value: object) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # a whole number of thousands of digits
        return "a number that is too large to show"


def _plain(item: Record) -> dict[str, Any]:
    return item.to_dict()
