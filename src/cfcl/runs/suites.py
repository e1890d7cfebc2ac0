"""Runs and comparisons: from configs to results and run folders."""

import json
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import nn

from cfcl import config as configs
from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.models import TrainedEncoder
from cfcl.runs import folders
from cfcl.sim import engines
from cfcl.sim.engines import Engine, Simulation

Row = dict[str, Any]
Watch = Callable[[Row], None]


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    config: Config
    rows: list[Row]
    """Every record, in order."""
    encoder: TrainedEncoder
    """The final global encoder."""
    costs: list[Row]
    """Bytes by link, kind and direction."""
    timings: Row
    folder: Path | None
    """Where it was written, if it was."""

    @property
    def metrics(self) -> list[Row]:
        """One row per evaluation: `pandas.DataFrame(result.metrics)` is the learning curve."""
        return self.of("eval")

    def of(self, kind: str) -> list[Row]:
        """The records of one kind: setup, eval, train, pull or final."""
        return [{key: value for key, value in row.items() if key != "kind"} for row in self.rows if row["kind"] == kind]


def simulate(
    config: Config,
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    out: Path | None = None,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine = "sharded",
    plotted: bool = True,
    watch: Watch = lambda row: None,
) -> Result:
    """Run `config`; with `out`, write a run folder below it, with plots. `watch` sees every record as it appears.

    The devices are shared out among `workers` processes, by default one per core; neither their number nor the engine
    (`loop` is the reference) changes a byte of the records. Under torchrun its processes share them, and the first
    one alone has records and writes.

    A `dataset` (see `cfcl.data.datasets.from_torch`) takes the place of the one that `config.data` names, and a
    `module` that turns images into embeddings takes that of `config.model.encoder`, with the weights it has.
    """
    with engines.start(
        config, device=device, dataset=dataset, module=module, workers=workers, engine=engine
    ) as simulation:
        if out is None or not simulation.group.leads:
            return _result(simulation, list(_played(simulation, watch)), None)
        with folders.Writer(config, out) as writer:

            def see(row: Row) -> None:
                writer.row(row)
                watch(row)

            rows = list(_played(simulation, see))
            result = _result(simulation, rows, writer.folder)
            result.encoder.save(writer.partial / "encoder.safetensors")
            writer.json("costs.json", result.costs)
            writer.json("timings.json", result.timings)
            writer.json("environment.json", _environment(device, engine, simulation.group.size))
            if plotted:
                from cfcl.runs import plots  # loads matplotlib, which a run without plots need not wait for

                plots.draw_run(folders.load(writer.partial), writer.partial / "plots")
        return result


def plan(config: Config, methods: Sequence[str], seeds: Sequence[int]) -> list[Config]:
    """One config per method and seed; runs of one seed are paired."""
    if not methods or not seeds:
        raise CfclError("a comparison needs at least one method and one seed: give --methods and --seeds")
    found = [
        configs.with_method(configs.override(config, [f"seed={seed}"]), method) for seed in seeds for method in methods
    ]
    for item in found:
        policies.find(item.exchange.method)
    return list(dict.fromkeys(found))


def summarise(runs: Iterable[folders.Run]) -> list[Row]:
    """One row per method: mean final figures over seeds, and the paired difference in accuracy to FedAvg."""
    by_method: dict[str, dict[int, Row]] = {}
    for run in runs:
        by_method.setdefault(run.config.method, {})[run.config.seed] = run.of("eval")[-1]
    base = by_method.get("fedavg", {})
    return [_summary(method, finals, base) for method, finals in by_method.items()]


def _summary(method: str, finals: dict[int, Row], base: dict[int, Row]) -> Row:
    def mean(key: str) -> float | None:
        values = [row[key] for row in finals.values() if key in row]
        return statistics.fmean(values) if values else None

    probes = [row["probe"] for row in finals.values() if "probe" in row]
    both = [(row, base[seed]) for seed, row in finals.items() if seed in base]
    gains = [mine["probe"] - theirs["probe"] for mine, theirs in both if "probe" in mine and "probe" in theirs]
    return {
        "method": method,
        "seeds": len(finals),
        "probe": mean("probe"),
        "probe_spread": statistics.stdev(probes) if len(probes) > 1 else None,
        "over_fedavg": statistics.fmean(gains) if gains and method != "fedavg" else None,
        "knn": mean("knn"),
        "uniformity": mean("uniformity"),
        "cka": mean("cka"),
        "push_bytes": mean("bytes_push"),
        "pull_bytes": mean("bytes_pull"),
        "uplink_bytes": mean("bytes_up"),
        "seconds": mean("seconds"),
    }


def _played(simulation: Simulation, watch: Watch) -> Iterable[Row]:
    for row in simulation.rows():
        # A record is what can be read back: tuples become lists here as they do on disk.
        record = json.loads(folders.dump(row))
        watch(record)
        yield record


def _result(simulation: Simulation, rows: list[Row], folder: Path | None) -> Result:
    return Result(
        config=simulation.config,
        rows=rows,
        encoder=TrainedEncoder(simulation.world.setting.encoder, simulation.model),
        costs=[dict(row) for row in simulation.ledger.table()],
        timings=asdict(simulation.timings),
        folder=folder,
    )


def _environment(device: str, engine: str, workers: int) -> Row:
    names = ("cfcl", "torch", "numpy", "scikit-learn")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device,
        "engine": engine,
        "workers": workers,
        "numerics": configs.NUMERICS,
        **{name: metadata.version(name) for name in names},
    }
