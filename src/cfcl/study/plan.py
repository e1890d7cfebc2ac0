"""Which runs each figure needs, in three profiles: `smoke` takes minutes, `quick` hours, `full` days."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.study import regime
from cfcl.study.bundle import Cell, Value

MODES = ("explicit", "implicit")
COMPARED = ("cfcl", "uniform", "kmeans", "bulk")
OURS = ("novel",)
"""Selection rules of our own."""
YARDSTICKS = ("oracle-explicit", "oracle-implicit", "centralised")
METHODS = ("fedavg", *(f"{method}-{mode}" for mode in MODES for method in (*COMPARED, *OURS)))
PILOTED = "uniform-"
"""The methods that set the milestones."""
CFCL = tuple(f"cfcl-{mode}" for mode in MODES)

Settings = dict[str, Value]
Place = tuple[str, Settings, list[str]]
"""A method, what a figure calls its place, and the overrides that take it there."""


@dataclass(frozen=True)
class Panel:
    """A dataset in a profile: a preset, and what is changed in it for every run."""

    preset: str
    interval: int
    """Steps between evaluations."""
    steps: int | None = None
    """T; not set: the preset's."""

    def config(self, method: str, seed: int, overrides: Iterable[str]) -> Config:
        """One run."""
        length = [] if self.steps is None else [f"train.steps={self.steps}"]
        base = configs.load(self.preset, [*length, f"seed={seed}", *overrides])
        changes = [f"evaluation.every={max(1, self.interval // base.aggregation.period)}"]
        if base.aggregation.num_devices == base.partition.num_devices:
            changes.append("aggregation.num_devices=none")  # the same run under one digest
        return configs.with_method(configs.override(base, changes), method)


@dataclass(frozen=True)
class Profile:
    """How much of the study is done."""

    panels: dict[str, Panel]
    """By name; the first ones listed in `shown` unless others are asked for."""
    shown: dict[str, tuple[str, ...]]
    """The panels of each figure."""
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
_PAIR, _ONE = ("fashion-mnist", "usps"), ("usps",)

PROFILES = {
    "smoke": Profile(
        panels={"digits": Panel("digits", interval=20, steps=60)},
        shown=dict.fromkeys(("fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11"), ("digits",)),
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
        shown={
            **dict.fromkeys(("fig4", "fig5", "fig6", "fig7"), _PAIR),
            **dict.fromkeys(("fig8", "fig9", "fig10", "fig11", "regime"), _ONE),
        },
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
        shown={
            **dict.fromkeys(("fig4", "fig5", "fig6", "fig7"), (*_PAIR, "svhn")),
            **dict.fromkeys(("fig8", "fig9", "fig10", "fig11", "regime"), _PAIR),
        },
        seeds=(1, 2, 3, 4, 5),
        pilot=10,
        regime_seeds=(100, 101, 102, 103, 104),
    ),
}


def plan(
    profile: Profile,
    figures: Sequence[str],
    panels: Sequence[str] = (),
    seeds: Sequence[int] = (),
    overrides: Sequence[str] = (),
) -> list[tuple[Cell, Config]]:
    """The runs of `figures`, all panels and seeds of the profile unless some are named; seed by seed, the pilot first.

    `overrides` say where things are, and so change no digest.
    """
    found = [item for figure in figures for item in _cells(profile, figure, panels, seeds, overrides)]
    return _ordered(profile, found)


def merged(profile: Profile, cells: Iterable[Cell]) -> list[Cell]:
    """Cells of several plans, each once, in the order of one plan; without those that would be other runs today."""
    named = {(cell.figure, cell.panel, cell.seed, cell.digest) for cell in cells}
    found: list[tuple[Cell, Config]] = []
    for figure, panel in itertools.product(profile.shown, profile.panels):
        seeds = {seed for one, other, seed, _ in named if (one, other) == (figure, panel)}
        if seeds:
            found += _cells(profile, figure, [panel], sorted(seeds - {profile.pilot}), [])
    return [cell for cell, _ in _ordered(profile, found) if (cell.figure, cell.panel, cell.seed, cell.digest) in named]


def _ordered(profile: Profile, found: Iterable[tuple[Cell, Config]]) -> list[tuple[Cell, Config]]:
    return sorted(found, key=lambda item: (item[0].seed != profile.pilot, item[0].seed))


def check(profile: Profile, figures: Sequence[str], panels: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse what the profile does not have."""
    if profile.pilot in seeds:
        raise CfclError(
            f"--seeds {profile.pilot} is the pilot, which sets milestones and is not reported: choose others"
        )
    for figure in figures:
        if figure not in FIGURES:
            raise CfclError(f"{figure!r} is not a figure of the study: choose from {', '.join(FIGURES)}, or all")
        if figure not in profile.shown:
            raise CfclError(f"{figure!r} is not part of this profile: choose another --profile")
    for panel in panels:
        if panel not in profile.panels:
            raise CfclError(f"--panels {panel!r} is not in this profile: choose from {', '.join(profile.panels)}")


def _cells(
    profile: Profile, figure: str, panels: Sequence[str], seeds: Sequence[int], places: Sequence[str]
) -> Iterator[tuple[Cell, Config]]:
    usual = profile.regime_seeds if figure == "regime" else profile.seeds
    for name in panels or profile.shown[figure]:
        for seed in [*([profile.pilot] if figure == "fig6" else []), *(seeds or usual)]:
            for method, settings, overrides in FIGURES[figure](profile):
                if seed == profile.pilot and not method.startswith(PILOTED):
                    continue
                run = profile.panels[name].config(method, seed, [*places, *overrides])
                yield Cell(figure, name, method, settings, seed, run.digest), run


def _maps(profile: Profile) -> list[Place]:
    return [(method, {}, []) for method in ("fedavg", *CFCL)]


def _curves(profile: Profile) -> list[Place]:
    return [(method, {}, []) for method in (*METHODS, *(() if profile.reduced else YARDSTICKS))]


def _costs(profile: Profile) -> list[Place]:
    return [(method, {}, []) for method in METHODS]


def _models(profile: Profile) -> list[Place]:
    """Selections are made under the final model of FedAvg."""
    return [("fedavg", {}, [])]


def _devices(profile: Profile) -> list[Place]:
    words = [f"{method}-{mode}" for mode in MODES for method in ("cfcl", "uniform")] if profile.reduced else METHODS[1:]
    return [
        (method, {"devices": number}, [f"aggregation.num_devices={number}"])
        for number in profile.devices
        for method in ("fedavg", *words)
    ]


def _reserves(profile: Profile) -> list[Place]:
    return [
        (method, {"reserve": kind, "size": size}, [f"exchange.reserve={kind}", f"exchange.num_reserve={size}"])
        for size in profile.sizes
        for kind in ("kmeans", "random")
        for method in CFCL
    ]


def _importance(profile: Profile) -> list[Place]:
    return [
        (
            method,
            {"importance": model, "period": period},
            [f"exchange.importance_model={model}", f"aggregation.period={period}"],
        )
        for period in profile.periods
        for model in ("global", "local")
        for method in CFCL
    ]


def _heterogeneity(profile: Profile) -> list[Place]:
    return [
        (
            method,
            {"labels": labels, "degree": degree},
            [f"partition.labels_per_device={labels}", f"graph.degree={degree}"],
        )
        for labels in profile.labels
        for degree in profile.degrees
        for method in CFCL
    ]


def _variations(profile: Profile) -> list[Place]:
    return [
        (method, {"variation": change.name}, regime.overrides(change, method))
        for change in regime.VARIATIONS
        for method in change.methods
    ]


FIGURES: dict[str, Callable[[Profile], list[Place]]] = {
    "fig4": _maps,
    "fig5": _curves,
    "fig6": _costs,
    "fig7": _models,
    "fig8": _devices,
    "fig9": _reserves,
    "fig10": _importance,
    "fig11": _heterogeneity,
    "regime": _variations,
}
