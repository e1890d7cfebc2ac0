"""What makes selection matter: one setting changed at a time, the same for every method, on seeds of its own."""

from dataclasses import dataclass

from cfcl.methods import ALONE

STEPS = 600
"""Long enough to tell methods apart, short enough for hundreds of runs."""

BASE = "base"
"""The variation that changes nothing."""
COMMON = (
    f"train.steps={STEPS}",
    "aggregation.period=10",
    "train.margin=0.5",
    "exchange.buffer=purge",
    "exchange.num_pulled=10",
    "exchange.num_candidates=100",
)
"""What all variations start from, whatever the preset says."""

EXPLICIT = ("uniform-explicit", "cfcl-explicit", "novel-explicit", "oracle-explicit")
IMPLICIT = ("uniform-implicit", "cfcl-implicit", "novel-implicit", "oracle-implicit")
EVERYTHING = (
    "fedavg",
    "centralised",
    *EXPLICIT,
    "kmeans-explicit",
    "bulk-explicit",
    *IMPLICIT,
    "kmeans-implicit",
    "bulk-implicit",
)


@dataclass(frozen=True)
class Variation:
    """One change."""

    name: str
    overrides: tuple[str, ...]
    methods: tuple[str, ...]


def _training(name: str, *overrides: str, fedavg: bool = False) -> Variation:
    """A change that every explicit method feels, so that all run again; and FedAvg, if it feels it too."""
    return Variation(name, overrides, (*(("fedavg",) if fedavg else ()), *EXPLICIT))


def _selecting(name: str, *overrides: str) -> Variation:
    """A change in CF-CL's selection alone: what it is compared with is in `base`."""
    return Variation(name, overrides, ("cfcl-explicit",))


def _regularised(name: str, *overrides: str) -> Variation:
    return Variation(name, overrides, IMPLICIT[:2])


def _scored(name: str, *overrides: str) -> Variation:
    return Variation(name, overrides, ("cfcl-implicit",))


VARIATIONS = (
    Variation(BASE, (), EVERYTHING),
    _training("buffer kept", "exchange.buffer=keep"),
    _training("buffer of 200", "exchange.buffer=limit", "exchange.buffer_size=200"),
    _training("n = 2", "exchange.num_pulled=2"),
    _training("n = 2, buffer kept", "exchange.num_pulled=2", "exchange.buffer=keep"),
    _training("n = 1, buffer kept", "exchange.num_pulled=1", "exchange.buffer=keep"),
    _training("n = 30", "exchange.num_pulled=30"),
    _training("union batches", "train.composition=union"),
    _training("pulled negatives only", "train.composition=negatives_only"),
    _training("a quarter of the batch remote", "train.remote_fraction=0.25"),
    _training("margin 1", "train.margin=1.0", fedavg=True),
    _training(
        "margin 1, n = 2, buffer kept",
        "train.margin=1.0",
        "exchange.num_pulled=2",
        "exchange.buffer=keep",
        fedavg=True,
    ),
    _training("free embeddings, margin 1", "train.margin=1.0", "model.normalise=false", fedavg=True),
    _training("T_a = 25", "aggregation.period=25", fedavg=True),
    _training("T_p = 100", "exchange.period=100"),
    _training("one label a device", "partition.labels_per_device=1", fedavg=True),
    _training("five labels a device", "partition.labels_per_device=5", fedavg=True),
    _training("degree 3", "graph.degree=3"),
    _selecting("temperature 40 to 100", "exchange.temperature_start=40", "exchange.temperature_end=100"),
    _selecting(
        "temperature 1, of the spread",
        "exchange.temperature_start=1",
        "exchange.temperature_end=1",
        "exchange.temperature_scale=spread",
    ),
    _selecting("temperature 4 to 10, of the spread", "exchange.temperature_scale=spread"),
    _selecting("softmax over all", "exchange.softmax=global"),
    _selecting("4 clusters", "exchange.num_clusters=4"),
    _selecting("30 clusters", "exchange.num_clusters=30"),
    _selecting("400 candidates", "exchange.num_candidates=400"),
    _selecting("reserve of 50", "exchange.num_reserve=50"),
    _scored("Eq. 16 by point", "exchange.score=literal_point"),
    _scored("Eq. 16 as the text says", "exchange.score=text"),
    _scored("Eq. 16 as drafted", "exchange.score=draft"),
    _scored("overlap around 0", "exchange.overlap_mean=0.0"),
    _scored("overlap around 2", "exchange.overlap_mean=2.0"),
    _scored("overlap three times as wide", "exchange.overlap_std=1.5"),
    _regularised("regulariser summed, weight 0.02", "regulariser.reduction=sum", "regulariser.weight=0.02"),
    _regularised("regulariser summed, weight 0.1", "regulariser.reduction=sum", "regulariser.weight=0.1"),
    _regularised("regulariser's weight 0.3", "regulariser.weight=0.3"),
    _regularised("regulariser's weight 3", "regulariser.weight=3.0"),
    _regularised("regulariser's weight 10", "regulariser.weight=10.0"),
    Variation(
        "margin 1, regulariser's weight 3", ("train.margin=1.0", "regulariser.weight=3.0"), ("fedavg", *IMPLICIT)
    ),
    _regularised("radius doubled", "regulariser.radius_factor=2.0"),
    _regularised("no staleness", "regulariser.staleness_factor=0.0"),
    Variation("buffer of 200, implicit", ("exchange.buffer=limit", "exchange.buffer_size=200"), IMPLICIT),
)


def leaves(name: object, method: str) -> bool:
    """Whether a variation leaves the runs of `method` as they are in the base, so that they are not done again."""
    return any(method not in item.methods for item in VARIATIONS if item.name == name)


def overrides(variation: Variation, method: str) -> list[str]:
    """What differs from the preset; methods without exchange share runs where only it or its regulariser varies."""
    alone = method in ALONE
    felt = [item for item in variation.overrides if not (alone and item.startswith(("exchange.", "regulariser.")))]
    return [*COMMON, *felt]
