"""How much of the study is done, in three profiles: `smoke` takes minutes, `quick` hours, `full` days."""

from collections.abc import Iterable
from dataclasses import dataclass

from cfcl import config as configs
from cfcl.config import Config


@dataclass(frozen=True)
class Panel:
    """A dataset in a profile: its preset for the study, and what is changed in it for every run."""

    dataset: str
    interval: int
    """Steps between evaluations."""
    steps: int | None = None
    """T; not set: the preset's."""

    def config(self, method: str, seed: int, overrides: Iterable[str]) -> Config:
        """One run."""
        length = [] if self.steps is None else [f"train.steps={self.steps}"]
        # The name is part of a run's digest, and was that of the dataset before the preset had one of its own.
        name = f"name={self.dataset}"
        base = configs.load(f"{self.dataset}-study", [*length, name, f"seed={seed}", *overrides])
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
    reduced: bool = False
    """No yardsticks, and only FedAvg, uniform and CF-CL where a figure sweeps something."""
    regime_seeds: tuple[int, ...] = ()


_SHORT = Panel("usps", interval=50, steps=600)
_PAIR = ("fashion-mnist", "usps")

PROFILES = {
    "smoke": Profile(
        panels={"digits": Panel("digits", interval=20, steps=60)},
        shown=("digits",),
        swept=("digits",),
        seeds=(1, 2),
        pilot=10,
        devices=(2, 10),
        sizes=(5, 20),
        periods=(10, 30),
        labels=(1, 5),
        reduced=True,
    ),
    "quick": Profile(
        panels={
            "fashion-mnist": Panel("fashion-mnist", interval=50, steps=400),
            "usps": Panel("usps", interval=50),
            "usps-short": _SHORT,
            "svhn": Panel("svhn", interval=50, steps=100),
        },
        shown=_PAIR,
        swept=("usps",),
        seeds=(1, 2, 3),
        pilot=10,
        regime_seeds=(100, 101, 102),
    ),
    "full": Profile(
        panels={
            "fashion-mnist": Panel("fashion-mnist", interval=125),
            "usps": Panel("usps", interval=50),
            "usps-short": _SHORT,
            "svhn": Panel("svhn", interval=400),
        },
        shown=(*_PAIR, "svhn"),
        swept=_PAIR,
        seeds=(1, 2, 3, 4, 5),
        pilot=10,
        regime_seeds=(100, 101, 102, 103, 104),
    ),
}
