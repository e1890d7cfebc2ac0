"""How much of the study is done: `smoke` takes minutes, `quick` hours, `full` days; `registered` was announced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cfcl import config as configs
from cfcl.config import Config

PAPER = ("fedavg", *(f"{policy}-{mode}" for mode in ("explicit", "implicit") for policy in
                     ("cfcl", "uniform", "kmeans", "bulk")))  # fmt: skip
"""The methods that the paper compares."""
EXPLICIT = ("fedavg", "uniform-explicit", "kmeans-explicit", "bulk-explicit", "cfcl-explicit", "cover-explicit")
SCORED = ("cfcl-explicit", "cover-explicit")
"""Those that look at a reserve."""
ORACLE = "oracle-explicit"
DIAL = tuple(
    f"{policy}-{mode}" for mode in ("activations", "implicit") for policy in ("uniform", "cfcl", "cover", "oracle")
)
"""What is pulled is dropped at the next exchange, so that there may be more of it."""

Group = Literal["printed", "compared", "swept", "differences", "shares", "bytes", "outages"]
"""Of figures: the paper's methods; all methods; along a setting; what methods gain; along shares of data, bytes, and
what goes wrong."""
TEN = ("evaluation.labels_per_class=[10]", "evaluation.features=false")
"""Accuracies are then those of the embedding with ten labels per class."""
TENFOLD = "exchange.num_pulled=10"
COMMON = ("partition.kind=common", "partition.points_per_device=360")
"""Eight of ten points of every device are of one label, the same for all."""


@dataclass(frozen=True)
class Panel:
    """A setting in which methods are compared: a preset, and what is changed in it for every run."""

    preset: str
    interval: int
    """Steps between evaluations."""
    steps: int | None = None
    """T; not set: the preset's."""
    changes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    """Those that are compared in it; empty: a figure's own."""

    def config(self, method: str, seed: int, overrides: Iterable[str]) -> Config:
        """One run."""
        length = [] if self.steps is None else [f"train.steps={self.steps}"]
        # The name is part of a run's digest, and was that of the dataset before the preset had one of its own.
        name = f"name={self.preset.removesuffix('-study')}"
        base = configs.load(self.preset, [*length, name, *self.changes, f"seed={seed}", *overrides])
        changes = [f"evaluation.every={max(1, self.interval // base.aggregation.period)}"]
        if base.aggregation.num_devices == base.partition.num_devices:
            changes.append("aggregation.num_devices=none")  # the same run under one digest
        return configs.with_method(configs.override(base, changes), method)


@dataclass(frozen=True)
class Profile:
    """How much of the study is done."""

    panels: dict[str, Panel]
    """By name."""
    shown: tuple[str, ...]
    """The panels of a figure, unless others are asked for."""
    swept: tuple[str, ...]
    """The same where a figure sweeps a setting."""
    seeds: tuple[int, ...]
    pilot: int
    """The seed that sets the milestones and is reported nowhere."""
    devices: tuple[int, ...] = (2, 4, 6, 8, 10)
    sizes: tuple[int, ...] = (5, 10, 20, 50, 100)
    periods: tuple[int, ...] = (10, 25, 50, 100)
    labels: tuple[int, ...] = (1, 2, 3, 5, 8)
    degrees: tuple[int, ...] = (2, 8)
    shares: tuple[float, ...] = ()
    """Of common data; empty: the figures of redundant data are not part of this profile."""
    faults: tuple[tuple[float, float], ...] = ()
    """Rates of devices offline and of messages lost; empty: what faults cost is not part of this profile."""
    reduced: bool = False
    """No yardsticks, and only FedAvg, uniform and CF-CL where a figure sweeps something."""
    regime_seeds: tuple[int, ...] = ()
    placed: Mapping[Group, Mapping[str, int]] = field(default_factory=dict)
    """Panels by kinds of figures, and how many of the seeds each has; empty: as above, and all seeds."""


def _study(dataset: str, interval: int, steps: int | None = None) -> Panel:
    return Panel(f"{dataset}-study", interval, steps)


def _registered() -> Profile:
    """Seeds 200 and up, on which nothing was chosen. What claims are judged by is in `claims.toml`."""
    short = (*EXPLICIT, ORACLE)
    panels = {
        "usps": Panel("usps", 30, changes=TEN, methods=short),
        "usps-common": Panel("usps", 30, changes=(*TEN, *COMMON), methods=short),
        "usps-dial": Panel("usps", 30, changes=(*TEN, TENFOLD), methods=DIAL),
        "usps-common-dial": Panel("usps", 30, changes=(*TEN, *COMMON, TENFOLD), methods=DIAL),
        "usps-common-control": Panel(
            "usps", 30, changes=(*TEN, *COMMON, "exchange.against=another"), methods=("uniform-explicit", *SCORED)
        ),
        "usps-control": Panel(
            "usps", 30, changes=(*TEN, "exchange.against=another"), methods=("uniform-explicit", *SCORED)
        ),
        "usps-common-spread": Panel(
            "usps",
            30,
            changes=(*TEN, *COMMON, "exchange.temperature_scale=spread"),
            methods=("uniform-explicit", "cfcl-explicit"),
        ),
        "usps-paper": Panel("usps-paper", 30, 600, methods=PAPER),
        "usps-study": Panel("usps-study", 30, 600, changes=TEN, methods=PAPER),
        "usps-dirichlet": Panel(
            "usps",
            30,
            changes=(*TEN, "partition.kind=dirichlet", "partition.alpha=0.1", "partition.min_points=120"),
            methods=short,
        ),
        "usps-ring": Panel("usps", 30, changes=(*TEN, *COMMON, "graph.kind=ring"), methods=short),
        "digits-common": Panel(
            "digits", 30, changes=(*TEN, "partition.kind=common", "partition.points_per_device=100"), methods=short
        ),
        "digits": Panel("digits", 30, changes=TEN, methods=short),
        "fashion-mnist": Panel("fashion-mnist", 50, 600, changes=TEN, methods=short),
        "svhn": Panel(
            "svhn",
            100,
            1600,
            changes=TEN,
            methods=("fedavg", "uniform-explicit", "cfcl-explicit", "cover-explicit"),
        ),
    }  # fmt: skip
    whole = {"usps-paper": 12, "usps-study": 12}
    compared_in = {
        "usps-common": 12,
        "usps": 12,
        **whole,
        "usps-common-dial": 8,
        "usps-dial": 8,
        "usps-common-control": 8,
        "usps-control": 8,
        "usps-common-spread": 8,
        "digits": 20,
        "digits-common": 12,
        "usps-dirichlet": 8,
        "usps-ring": 8,
        "fashion-mnist": 5,
        "svhn": 2,
    }
    return Profile(
        panels=panels,
        shown=tuple(compared_in),
        swept=("usps-study",),
        seeds=tuple(range(200, 220)),
        pilot=299,
        devices=(2, 6, 10),
        sizes=(5, 20, 100),
        periods=(10, 25, 100),
        labels=(1, 3, 8),
        shares=(0.0, 0.5, 0.8, 0.9),
        faults=((0.0, 0.0), (0.3, 0.0), (0.6, 0.0), (0.0, 0.2), (0.0, 0.5), (0.3, 0.2)),
        placed={
            "compared": compared_in,
            "differences": compared_in,
            "printed": whole,
            "swept": {"usps-study": 8},
            "shares": {"usps": 8},
            "bytes": {"usps-common": 4},
            "outages": {"usps": 3},
        },
    )


_SHORT = _study("usps", 50, 600)
_PAIR = ("fashion-mnist", "usps")

PROFILES = {
    "smoke": Profile(
        panels={"digits": _study("digits", 30, 60)},
        shown=("digits",),
        swept=("digits",),
        seeds=(1, 2),
        pilot=10,
        devices=(2, 10),
        sizes=(5, 20),
        periods=(10, 30),
        labels=(1, 5),
        faults=((0.0, 0.0), (0.3, 0.2)),
        reduced=True,
    ),
    "quick": Profile(
        panels={
            "fashion-mnist": _study("fashion-mnist", 50, 400),
            "usps": _study("usps", 50),
            "usps-short": _SHORT,
            "svhn": _study("svhn", 50, 100),
        },
        shown=_PAIR,
        swept=("usps",),
        seeds=(1, 2, 3),
        pilot=10,
        regime_seeds=(100, 101, 102),
    ),
    "full": Profile(
        panels={
            "fashion-mnist": _study("fashion-mnist", 125),
            "usps": _study("usps", 50),
            "usps-short": _SHORT,
            "svhn": _study("svhn", 400),
        },
        shown=(*_PAIR, "svhn"),
        swept=_PAIR,
        seeds=(1, 2, 3, 4, 5),
        pilot=10,
        regime_seeds=(100, 101, 102, 103, 104),
    ),
    "registered": _registered(),
}
