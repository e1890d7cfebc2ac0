"""Which runs belong together: one curve per method and setting, one run per seed in it."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfcl import config as configs
from cfcl.config import Config
from cfcl.records import Evaluation, Pull, Record
from cfcl.runs.folders import Run
from cfcl.shown import visible

Series = Mapping[str, Sequence[Run]]
"""Runs by the name of their curve, one per seed."""

_EXCHANGE = ("exchange.", "regulariser.")


@dataclass(frozen=True)
class Band:
    """A mean with a band around it."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def by_name(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs by `config.name`, in order of appearance."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.config.name, []).append(run)
    return groups


def series(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by method, and by the settings besides method and seed in which they are not as usual; FedAvg first.

    A seed counts once: the same config gives the same records, so a repeated run is left out.
    """
    common = usual(runs)
    found: dict[str, dict[int, Run]] = {}
    for run in sorted(runs, key=lambda run: (run.config.method != "fedavg", run.config.seed)):
        own = identity(run)
        unusual = [f"{key}={show(own[key])}" for key in common if key in own and own[key] != common[key]]
        label = ", ".join([run.config.method, *unusual])
        found.setdefault(label, {}).setdefault(run.config.seed, run)
    return {label: list(seeds.values()) for label, seeds in found.items()}


def usual(runs: Sequence[Run]) -> dict[str, Any]:
    """Where runs differ in more than method and seed, the most frequent values."""
    tables = [identity(run) for run in runs]
    counts = {key: Counter(table[key] for table in tables if key in table) for key in differences(tables)}
    return {key: count.most_common(1)[0][0] for key, count in counts.items()}


def identity(run: Run) -> dict[str, Any]:
    """What is behind a curve besides method and seed: settings (FedAvg has none about exchanges), and the numerics.

    Runs of two versions of the numerics are two curves, as they would be with another setting.
    """
    idle = [f"{section}.{key}" for section, keys in configs.UNCOUNTED.items() for key in keys]
    ignored = ("name", "seed", "exchange.method", "exchange.mode", *idle)
    found = {
        key: value
        for key, value in settings(run.config).items()
        if key not in ignored and not (run.config.method == "fedavg" and key.startswith(_EXCHANGE))
    }
    return {**found, "numerics": run.environment.numerics or 1}


def base_of(run: Run, runs: Iterable[Run]) -> list[Run]:
    """The FedAvg runs that differ from `run` in nothing but the exchange and the seed."""
    shared = {key: value for key, value in identity(run).items() if not key.startswith(_EXCHANGE)}
    return [other for other in runs if other.config.method == "fedavg" and identity(other) == shared]


def settings(config: Config) -> dict[str, Any]:
    """Every field as `section.key` and its value."""
    return {f"{section}.{key}".lstrip("."): value for section, key, value, _ in configs.fields(config)}


def differences(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that do not have one value in all tables that hold them, in order of appearance."""
    values: dict[str, list[Any]] = {}
    for table in tables:
        for key, value in table.items():
            values.setdefault(key, []).append(value)
    return [key for key, found in values.items() if any(value != found[0] for value in found)]


def show(value: Any) -> str:
    """A setting for people."""
    if value is None:
        return "not set"
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if isinstance(value, bool) else visible(str(value))


def seconds(run: Run, at: Evaluation) -> float:
    """Delay as of an evaluation: the model's seconds, and the time measured for selection before it."""
    return at.seconds + selection_seconds(run, at.step)


def selection_seconds(run: Run, step: int) -> float:
    """Measured selection time before `step`: an evaluation comes before the exchange of its own step."""
    return sum((duration for when, duration in run.timings.selection if when < step), start=0.0)


def final(run: Run) -> Evaluation:
    """The last evaluation."""
    return run.evaluations[-1]


def over_steps(runs: Sequence[Run], kind: type[Record], key: str) -> Band | None:
    """Mean of a recorded figure at the steps that all runs have, between its extremes over seeds.

    For pulls the mean is over links too, and the band holds the middle 80 % of them.
    """
    found = [_values(run.of(kind), key) for run in runs]
    steps = [step for step in found[0] if all(step in other for other in found)]
    if not steps:
        return None
    values = [[value for run in found for value in run[step]] for step in steps]
    bands = [_middle(sorted(group)) if kind is Pull else (min(group), max(group)) for group in values]
    return Band(
        x=[float(step) for step in steps],
        mean=[statistics.fmean(group) for group in values],
        low=[low for low, _ in bands],
        high=[high for _, high in bands],
    )


def _values(found: Iterable[Any], key: str) -> dict[int, list[float]]:
    """The figure `key` of records that have a step, where it was measured; `few.10` is entry 10 of the figure `few`."""
    name, _, entry = key.partition(".")
    values: dict[int, list[float]] = {}
    for record in found:
        value = getattr(record, name)
        value = value.get(entry) if entry and value is not None else value
        if value is not None:
            values.setdefault(record.step, []).append(float(value))
    return values


def _middle(ordered: Sequence[float]) -> tuple[float, float]:
    """The 10 % and the 90 % quantile, by linear interpolation."""
    if len(ordered) == 1:
        return ordered[0], ordered[0]
    tenths = statistics.quantiles(ordered, n=10, method="inclusive")
    return tenths[0], tenths[-1]
