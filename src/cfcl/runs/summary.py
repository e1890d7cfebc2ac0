"""What runs came to: one line per method or curve, means over seeds, differences within them."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scipy.special import stdtrit

from cfcl.records import Interval
from cfcl.runs.folders import Run
from cfcl.runs.series import base_of, final, selection_seconds, series


@dataclass(frozen=True)
class Summary:
    """Final figures of runs that differ in their seed alone: means, if nothing else is said."""

    label: str
    method: str
    seed_numbers: frozenset[int]
    probe: float | None
    """Accuracies are there where labels are."""
    probe_spread: float | None
    """Standard deviation; None of one seed."""
    gains: tuple[float, ...]
    """Probe accuracy over FedAvg, seed by seed; none for FedAvg itself."""
    knn: float | None
    cka: float | None
    bytes_push: float
    bytes_pull: float
    bytes_up: float
    seconds: float
    """Of the delay model."""
    selection: float
    """Measured seconds."""
    joules: float
    split: str = "test"
    """Where the images behind accuracies are from: `test` or `validation`."""
    accuracies: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    """Of probes, by space and number of labels, where the number of images behind them is known."""

    @property
    def seeds(self) -> int:
        """How many."""
        return len(self.seed_numbers)

    @property
    def probe_doubt(self) -> float | None:
        """What stands after ±: half of the 95 % interval where it is known, else the spread over seeds."""
        known = self.accuracies.get("embedding", {}).get("all")
        return self.probe_spread if known is None else known.reach

    @property
    def over_fedavg(self) -> float | None:
        """The mean gain."""
        return statistics.fmean(self.gains) if self.gains else None


def by_method(runs: Iterable[Run]) -> list[Summary]:
    """One line per method, in order of appearance; the runs differ in method and seed alone."""
    found: dict[str, dict[int, Run]] = {}
    for run in runs:
        found.setdefault(run.config.method, {})[run.config.seed] = run
    base = list(found.get("fedavg", {}).values())
    return [_summary(method, list(group.values()), base) for method, group in found.items()]


def by_curve(runs: Sequence[Run]) -> list[Summary]:
    """One line per curve, compared with the FedAvg runs of the same settings."""
    return [_summary(label, group, base_of(group[0], runs)) for label, group in series(runs).items()]


def _summary(label: str, group: Sequence[Run], base: Iterable[Run]) -> Summary:
    finals = [final(run) for run in group]
    probes = [last.probe for last in finals if last.probe is not None]
    return Summary(
        label=label,
        method=group[0].config.method,
        seed_numbers=frozenset(run.config.seed for run in group),
        probe=_mean(probes),
        probe_spread=statistics.stdev(probes) if len(probes) > 1 else None,
        gains=_gains(group, base),
        knn=_mean([last.knn for last in finals if last.knn is not None]),
        cka=_mean([last.cka for last in finals if last.cka is not None]),
        bytes_push=statistics.fmean(last.bytes_push for last in finals),
        bytes_pull=statistics.fmean(last.bytes_pull for last in finals),
        bytes_up=statistics.fmean(last.bytes_up for last in finals),
        seconds=statistics.fmean(last.seconds for last in finals),
        selection=statistics.fmean(selection_seconds(run, final(run).step) for run in group),
        joules=statistics.fmean(last.joules for last in finals),
        split=group[0].setup.split or "test",
        accuracies=_accuracies(group),
    )


def interval(values: Sequence[float], num_images: int) -> Interval:
    """The mean of accuracies, one a seed, with its 95 % interval over seeds and over test images.

    Seeds count by Student's law, images by the normal one: all seeds share them, so their variance p(1-p)/n stays
    whole. A single seed says nothing of others: its interval counts the images alone.
    """
    mean, number = statistics.fmean(values), len(values)
    images = float(stdtrit(math.inf, 0.975)) ** 2 * mean * (1 - mean) / num_images
    seeds = float(stdtrit(number - 1, 0.975)) ** 2 * statistics.variance(values) / number if number > 1 else 0.0
    reach = math.sqrt(images + seeds)
    return Interval(mean, mean - reach, mean + reach)


def _accuracies(group: Sequence[Run]) -> dict[str, dict[str, Interval]]:
    size = group[0].setup.num_judged
    if size is None:
        return {}
    found = [final(run).accuracies for run in group]
    return {
        space: {labels: interval([run[space][labels] for run in found], size) for labels in by}
        for space, by in found[0].items()
    }


def _gains(group: Sequence[Run], base: Iterable[Run]) -> tuple[float, ...]:
    if group[0].config.method == "fedavg":
        return ()
    found = {run.config.seed: final(run).probe for run in base}
    pairs = [(final(run).probe, found.get(run.config.seed)) for run in group]
    return tuple(mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None)


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
