"""Studies made by hand: curves of probe accuracies put where a figure wants them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cfcl.config import NUMERICS
from cfcl.study.bundle import Cell, Evaluated, Measured, Selection, Study

Spot = tuple[Any, ...]
"""Figure, panel, method, and a pair for each swept setting: `("fig8", "usps", "cfcl-explicit", ("devices", 2))`."""

PILOT = 0
"""The seed of the pilot; runs have the seeds 1, 2, and so on."""


def record(
    probes: Sequence[float],
    *,
    every: int = 10,
    push: int = 50,
    pull: int = 150,
    up: int = 100,
    seconds: float = 0.1,
    selection: float = 0.0,
    cka: float = 0.5,
    **others: Any,
) -> Measured:
    """A run evaluated every `every` steps from 0; bytes and seconds are those of one step, kNN is half the probe."""
    evaluations = tuple(
        Evaluated(
            step=step,
            probe=probe,
            knn=probe / 2,
            cka=cka,
            bytes_push=push * step,
            bytes_pull=pull * step,
            bytes_up=up * step,
            seconds=seconds * step,
            selection=selection * step,
        )
        for step, probe in zip(range(0, every * len(probes), every), probes, strict=True)
    )
    run = Measured(
        digest="made",
        preset="digits",
        method="cfcl-explicit",
        seed=1,
        steps=every * (len(probes) - 1),
        separation=None,
        effective_candidates=25.0,
        num_candidates=50,
        held_labels=0.25,
        false_negatives=0.125,
        centroid_distance=0.75,
        active=0.5,
        pulled_share=0.25,
        versions="cfcl 0.1, torch 2.6",
        numerics=NUMERICS,
        evaluations=evaluations,
    )
    return replace(run, **others)


def study(
    places: Mapping[Spot, Sequence[Sequence[float] | Measured | None]],
    *,
    milestones: Mapping[str, Sequence[float]] | None = None,
    selections: Sequence[Selection] = (),
    **about: Any,
) -> Study:
    """A study with a curve or a record per seed at each place, None where the run is missing.

    The models of selections have no records.
    """
    cells, runs = [], {}
    for (figure, panel, method, *pairs), curves in places.items():
        settings = dict(pairs)
        for seed, curve in enumerate(curves, start=PILOT + 1):
            digest = "-".join([figure, panel, method, *map(str, settings.values()), str(seed)])
            cells.append(Cell(figure, panel, method, settings, seed, digest))
            if curve is None:
                continue
            run = curve if isinstance(curve, Measured) else record(curve)
            runs[digest] = replace(run, digest=digest, preset=panel, method=method, seed=seed)
    models = dict.fromkeys((item.panel, item.seed, item.digest) for item in selections)
    cells += [Cell("fig7", panel, "fedavg", {}, seed, digest) for panel, seed, digest in models]
    return Study(
        about={
            "profile": "made",
            "pilot": PILOT,
            "numerics": NUMERICS,
            "notes": [],
            "milestones": {name: list(values) for name, values in (milestones or {}).items()},
            **about,
        },
        cells=tuple(cells),
        runs=runs,
        selections=tuple(selections),
    )


def selection(method: str, *, distance: float, held: float, **others: Any) -> Selection:
    """What a policy selects in the first world of `digits`: three items in the second bin, seven in the fifth."""
    item = Selection(
        digest="model",
        panel="digits",
        seed=1,
        method=method,
        items=10,
        distance=distance,
        held=held,
        histogram=(0, 3, 0, 0, 7),
    )
    return replace(item, **others)
