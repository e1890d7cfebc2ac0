"""How much of the study is done: `smoke` takes minutes, `quick` hours, `full` days; `registered` was announced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from cfcl import config as configs
from cfcl.config import Config
from cfcl.methods import parse

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

Group = Literal[
    "printed", "compared", "swept", "differences", "shares", "bytes", "matched", "frequency", "dimensions",
    "outages",
]  # fmt: skip
"""Of figures: the paper's methods; all methods; along a setting; what methods gain; along shares of data, and bytes; at
equal bytes; along periods of exchange, lengths of embeddings, and what goes wrong."""
TEN = ("evaluation.labels_per_class=[10]", "evaluation.features=false", "evaluation.worst=true")
"""Accuracies are then those of the embedding with ten labels per class."""
TENFOLD = "exchange.num_pulled=10"
ACTIVATIONS = 1.36
"""How much longer a run takes where activations travel."""
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
    seconds: float = 0.0
    """That a run takes on one core, for the plan; 0: not known."""

    def config(self, method: str, seed: int, overrides: Iterable[str]) -> Config:
        """One run."""
        return self._first(method, tuple(overrides)).model_copy(update={"seed": seed})

    @cache  # noqa: B019  # panels live as long as the program
    def _first(self, method: str, overrides: tuple[str, ...]) -> Config:
        """The run of seed 0: that of other seeds differs in nothing else."""
        length = [] if self.steps is None else [f"train.steps={self.steps}"]
        # The name is part of a run's digest, and was that of the dataset before the preset had one of its own.
        name = f"name={self.preset.removesuffix('-study')}"
        base = configs.load(self.preset, [*length, name, *self.changes, "seed=0", *overrides])
        changes = [f"evaluation.every={max(1, self.interval // base.aggregation.period)}"]
        if base.aggregation.num_devices == base.partition.num_devices:
            changes.append("aggregation.num_devices=none")  # the same run under one digest
        return configs.with_method(configs.override(base, changes), method)

    @property
    def words(self) -> str:
        """What it is, in a line."""
        length = [] if self.steps is None else [f"{self.steps:,} updates"]
        labels = ["ten labels per class"] if set(TEN) <= set(self.changes) else []
        changes = [change for change in self.changes if change not in TEN]
        return ", ".join([f"preset {self.preset}", *length, *labels, *changes])

    def cost(self, method: str) -> float:
        """Seconds of one core that a run takes."""
        return self.seconds * (ACTIVATIONS if parse(method).mode == "activations" else 1.0)


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
    exchanges: tuple[int, ...] = ()
    """Steps between exchanges."""
    dimensions: tuple[int, ...] = ()
    """Lengths of embeddings."""
    faults: tuple[tuple[float, float], ...] = ()
    """Rates of devices offline and of messages lost; empty: what faults cost is not part of this profile."""
    reduced: bool = False
    """No yardsticks, and only FedAvg, uniform and CF-CL where a figure sweeps something."""
    regime_seeds: tuple[int, ...] = ()
    placed: Mapping[Group, Mapping[str, int]] = field(default_factory=dict)
    """Panels by kinds of figures, and how many of the seeds each has; empty: as above, and all seeds."""
    order: tuple[tuple[Group, str], ...] = ()
    """Figures and panels whose runs are done first, with all their seeds."""


def _study(dataset: str, interval: int, steps: int | None = None) -> Panel:
    return Panel(f"{dataset}-study", interval, steps)


def _with(panel: Panel, *changes: str, **others: Any) -> Panel:
    """A panel with more changes."""
    return replace(panel, changes=(*panel.changes, *changes), **others)


def _registered() -> Profile:
    """Seeds 200 and up, on which nothing was chosen. What claims are judged by is in `claims.toml`."""
    usps = Panel("usps", 30, changes=TEN, methods=(*EXPLICIT, ORACLE), seconds=55.0)
    common = _with(usps, *COMMON)
    few = ("fedavg", "uniform-explicit", *SCORED, ORACLE)
    against, another = ("uniform-explicit", *SCORED), "exchange.against=another"
    digits = replace(usps, preset="digits", seconds=40.0)
    panels = {
        "usps-common": common,
        "usps": usps,
        "usps-common-dial": _with(common, TENFOLD, methods=DIAL),
        "usps-dial": _with(usps, TENFOLD, methods=DIAL),
        "usps-common-control": _with(common, another, methods=against),
        "usps-control": _with(usps, another, methods=against),
        "usps-common-spread": _with(
            common, "exchange.temperature_scale=spread", methods=("uniform-explicit", "cfcl-explicit")
        ),
        "usps-common-disjoint": _with(usps, "partition.kind=common", "partition.disjoint=true", methods=few),
        "usps-skewed": _with(
            usps,
            *("partition.kind=skewed", "partition.points_per_device=360", "partition.main_share=0.9"),
            methods=few,
        ),
        "usps-dirichlet": _with(usps, "partition.kind=dirichlet", "partition.alpha=0.1", "partition.min_points=120"),
        "usps-ring": _with(common, "graph.kind=ring"),
        "digits-common": _with(digits, "partition.kind=common", "partition.points_per_device=100"),
        "digits": digits,
        "fashion-mnist": replace(usps, preset="fashion-mnist", interval=50, steps=600, seconds=200.0),
        "svhn": replace(usps, preset="svhn", interval=100, steps=1600, seconds=800.0, methods=few[:-1]),
        "usps-study": replace(usps, preset="usps-study", steps=600, seconds=25.0, methods=PAPER),
        "usps-paper": Panel("usps-paper", 30, 600, methods=PAPER, seconds=25.0),
    }
    whole = {"usps-paper": 12, "usps-study": 12}
    compared_in = {
        "usps-common": 12,
        "usps": 12,
        **whole,
        **dict.fromkeys(("usps-common-dial", "usps-dial"), 8),
        **dict.fromkeys(("usps-common-control", "usps-control", "usps-common-spread"), 8),
        **dict.fromkeys(("usps-common-disjoint", "usps-skewed", "usps-dirichlet", "usps-ring"), 8),
        "digits-common": 12,
        "digits": 20,
        "fashion-mnist": 5,
        "svhn": 3,
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
        exchanges=(10, 25, 100),
        dimensions=(4, 16, 64),
        faults=((0.0, 0.0), (0.3, 0.0), (0.6, 0.0), (0.0, 0.2), (0.0, 0.5), (0.3, 0.2)),
        placed={
            "compared": compared_in,
            "differences": compared_in,
            "printed": whole,
            "swept": {"usps-study": 8},
            "shares": {"usps": 8},
            "bytes": {"usps-common": 8},
            "matched": {
                **dict.fromkeys(("usps-common", "usps", "digits-common", "digits"), 12),
                **dict.fromkeys(("usps-dirichlet", "usps-ring"), 8),
            },
            "frequency": {"usps-study": 8},
            "dimensions": dict.fromkeys(whole, 8),
            "outages": {"usps": 3},
        },
        order=(
            ("differences", "usps-common"),
            ("differences", "usps"),
            ("shares", "usps"),
            ("bytes", "usps-common"),
            ("matched", "usps-common"),
            ("matched", "usps"),
            ("printed", "usps-paper"),
            ("printed", "usps-study"),
            ("compared", "usps-paper"),
            ("compared", "usps-study"),
            ("swept", "usps-study"),
            ("frequency", "usps-study"),
            ("dimensions", "usps-study"),
            ("dimensions", "usps-paper"),
        ),
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
