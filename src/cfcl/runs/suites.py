"""Runs and comparisons: from configs to results and run folders."""

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from torch import nn

from cfcl import config as configs
from cfcl import records
from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.models import TrainedEncoder
from cfcl.records import Environment, Evaluation, LinkCost, Record, Timings
from cfcl.runs import folders
from cfcl.sim import engines, given
from cfcl.sim.engines import Engine
from cfcl.sim.simulation import Simulation

Watch = Callable[[Record], None]


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    config: Config
    records: tuple[Record, ...]
    """Every record, in order."""
    encoder: TrainedEncoder
    """The final global encoder."""
    costs: tuple[LinkCost, ...]
    """Bytes by link, kind and direction."""
    timings: Timings
    folder: Path | None
    """Where it was written, if it was."""

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The learning curve."""
        return tuple(record for record in self.records if isinstance(record, Evaluation))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One row per evaluation: `pandas.DataFrame(result.metrics)` is the learning curve."""
        return self.of(Evaluation.KIND)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind (setup, eval, train, pull or final) as plain dicts."""
        found = [json.loads(record.to_line()) for record in self.records if kind == record.KIND]
        return [{key: value for key, value in row.items() if key != "kind"} for row in found]


def simulate(
    config: Config,
    *,
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    out: str | Path | None = None,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine = "sharded",
    plotted: bool = True,
    trace: str | Path | None = None,
    watch: Watch = lambda record: None,
) -> Result:
    """Run `config`; with `out`, write a run folder below it, with plots. `watch` sees every record as it appears.

    The devices are shared among `workers` processes, by default one per core. Neither their number nor the engine
    (`loop` is the reference) changes a byte of the records. Under torchrun its processes share the devices, and only
    the first one has records and writes.

    A `dataset` (see `cfcl.data.datasets.from_torch`) takes the place of the one that `config.data` names, and a
    `module` that turns images into embeddings takes that of `config.model.encoder`, with the weights it has. `trace`
    is a file for every message of every step, one line each.
    """
    given.check(
        config=config,
        dataset=dataset,
        module=module,
        out=out,
        device=device,
        workers=workers,
        engine=engine,
        trace=trace,
    )
    with (
        _tracing(trace) as tracer,
        engines.start(
            config, device=device, dataset=dataset, module=module, workers=workers, engine=engine, trace=tracer
        ) as simulation,
    ):
        if out is None or not simulation.group.leads:
            return _result(simulation, tuple(_played(simulation, watch)), None)
        with folders.Writer(config, Path(out)) as writer:

            def see(record: Record) -> None:
                writer.record(record)
                watch(record)

            result = _result(simulation, tuple(_played(simulation, see)), writer.folder)
            result.encoder.save(writer.partial / "encoder.safetensors")
            writer.json("costs.json", [cost.to_dict() for cost in result.costs])
            writer.json("timings.json", result.timings.to_dict())
            writer.json("environment.json", _environment(device, engine, simulation.group.size).to_dict())
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


@contextmanager
def _tracing(path: str | Path | None) -> Iterator[Callable[[str], None] | None]:
    """What writes a line to `path`, which is made with the first one: of several processes only one has lines."""
    if path is None:
        yield None
        return
    if Path(path).exists():
        raise CfclError(f"--trace {str(path)!r} exists already: choose another file")
    with ExitStack() as stack:
        files: list[IO[str]] = []

        def write(line: str) -> None:
            if not files:
                files.append(stack.enter_context(Path(path).open("x", encoding="utf-8")))
            files[0].write(f"{line}\n")

        try:
            yield write
        except OSError as error:
            raise CfclError(f"cannot write the trace to {str(path)!r}: {error.strerror}; choose another file") from None


def _played(simulation: Simulation, watch: Watch) -> Iterable[Record]:
    for record in simulation.rows():
        watch(record)
        yield record


def _result(simulation: Simulation, found: tuple[Record, ...], folder: Path | None) -> Result:
    clocks = simulation.clocks
    return Result(
        config=simulation.config,
        records=found,
        encoder=TrainedEncoder(simulation.world.setting.encoder, simulation.model),
        costs=tuple(records.read(LinkCost, row) for row in simulation.ledger.table()),
        timings=Timings(tuple(clocks.selection), clocks.exchange, clocks.evaluation, clocks.total),
        folder=folder,
    )


def _environment(device: str, engine: str, workers: int) -> Environment:
    names = ("cfcl", "torch", "numpy", "scikit-learn")
    return Environment(
        python=platform.python_version(),
        machine=platform.machine(),
        device=device,
        engine=engine,
        workers=workers,
        numerics=configs.NUMERICS,
        versions={name: metadata.version(name) for name in names},
    )
