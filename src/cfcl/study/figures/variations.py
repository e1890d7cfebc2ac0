"""What makes selection matter: one setting changed at a time, the same for every method, on seeds of its own."""

from typing import NamedTuple

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


class Variation(NamedTuple):
    """One change."""

    name: str
    methods: tuple[str, ...]
    """Those that feel it, and so run again; what they are compared with may be in the base."""
    overrides: tuple[str, ...]


def _change(methods: tuple[str, ...], name: str, *overrides: str) -> Variation:
    return Variation(name, methods, overrides)


_ALL = ("fedavg", *EXPLICIT)
_SELECTING, _SCORED, _REGULARISED = ("cfcl-explicit",), ("cfcl-implicit",), IMPLICIT[:2]

VARIATIONS = (
    _change(EVERYTHING, BASE),
    _change(EXPLICIT, "buffer kept", "exchange.buffer=keep"),
    _change(EXPLICIT, "buffer of 200", "exchange.buffer=limit", "exchange.buffer_size=200"),
    _change(EXPLICIT, "n = 2", "exchange.num_pulled=2"),
    _change(EXPLICIT, "n = 2, buffer kept", "exchange.num_pulled=2", "exchange.buffer=keep"),
    _change(EXPLICIT, "n = 1, buffer kept", "exchange.num_pulled=1", "exchange.buffer=keep"),
    _change(EXPLICIT, "n = 30", "exchange.num_pulled=30"),
    _change(EXPLICIT, "union batches", "train.composition=union"),
    _change(EXPLICIT, "pulled negatives only", "train.composition=negatives_only"),
    _change(EXPLICIT, "a quarter of the batch remote", "train.remote_fraction=0.25"),
    _change(_ALL, "margin 1", "train.margin=1.0"),
    _change(_ALL, "margin 1, n = 2, buffer kept", "train.margin=1.0", "exchange.num_pulled=2", "exchange.buffer=keep"),
    _change(_ALL, "free embeddings, margin 1", "train.margin=1.0", "model.normalise=false"),
    _change(_ALL, "T_a = 25", "aggregation.period=25"),
    _change(EXPLICIT, "T_p = 100", "exchange.period=100"),
    _change(_ALL, "one label a device", "partition.labels_per_device=1"),
    _change(_ALL, "five labels a device", "partition.labels_per_device=5"),
    _change(EXPLICIT, "degree 3", "graph.degree=3"),
    _change(_SELECTING, "temperature 40 to 100", "exchange.temperature_start=40", "exchange.temperature_end=100"),
    _change(
        _SELECTING,
        "temperature 1, of the spread",
        "exchange.temperature_start=1",
        "exchange.temperature_end=1",
        "exchange.temperature_scale=spread",
    ),
    _change(_SELECTING, "temperature 4 to 10, of the spread", "exchange.temperature_scale=spread"),
    _change(_SELECTING, "softmax over all", "exchange.softmax=global"),
    _change(_SELECTING, "4 clusters", "exchange.num_clusters=4"),
    _change(_SELECTING, "30 clusters", "exchange.num_clusters=30"),
    _change(_SELECTING, "400 candidates", "exchange.num_candidates=400"),
    _change(_SELECTING, "reserve of 50", "exchange.num_reserve=50"),
    _change(_SCORED, "Eq. 16 by point", "exchange.score=literal_point"),
    _change(_SCORED, "Eq. 16 as the text says", "exchange.score=text"),
    _change(_SCORED, "Eq. 16 as drafted", "exchange.score=draft"),
    _change(_SCORED, "overlap around 0", "exchange.overlap_mean=0.0"),
    _change(_SCORED, "overlap around 2", "exchange.overlap_mean=2.0"),
    _change(_SCORED, "overlap three times as wide", "exchange.overlap_std=1.5"),
    _change(_REGULARISED, "regulariser summed, weight 0.02", "regulariser.reduction=sum", "regulariser.weight=0.02"),
    _change(_REGULARISED, "regulariser summed, weight 0.1", "regulariser.reduction=sum", "regulariser.weight=0.1"),
    _change(_REGULARISED, "regulariser's weight 0.3", "regulariser.weight=0.3"),
    _change(_REGULARISED, "regulariser's weight 3", "regulariser.weight=3.0"),
    _change(_REGULARISED, "regulariser's weight 10", "regulariser.weight=10.0"),
    _change(("fedavg", *IMPLICIT), "margin 1, regulariser's weight 3", "train.margin=1.0", "regulariser.weight=3.0"),
    _change(_REGULARISED, "radius doubled", "regulariser.radius_factor=2.0"),
    _change(_REGULARISED, "no staleness", "regulariser.staleness_factor=0.0"),
    _change(IMPLICIT, "buffer of 200, implicit", "exchange.buffer=limit", "exchange.buffer_size=200"),
)


def leaves(name: object, method: str) -> bool:
    """Whether a variation leaves the runs of `method` as they are in the base, so that they are not done again."""
    return any(method not in item.methods for item in VARIATIONS if item.name == name)


def overrides(variation: Variation, method: str) -> list[str]:
    """What differs from the preset; methods without exchange share runs where only it or its regulariser varies."""
    alone = method in ALONE
    felt = [item for item in variation.overrides if not (alone and item.startswith(("exchange.", "regulariser.")))]
    return [*COMMON, *felt]
