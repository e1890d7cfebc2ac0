"""Runs and comparisons: from configs to results and run folders."""

import json
import platform
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from torch import nn

from cfcl import config as configs
from cfcl import reading, records
from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.objectives import Loss
from cfcl.protocol.snapshot import Tree
from cfcl.records import Environment, Evaluation, LinkCost, Record, Setup, Timings
from cfcl.runs import card, cards, folders, resuming, shelf
from cfcl.runs.checkpoints import Note
from cfcl.runs.folders import Writer
from cfcl.sim import engines, given, stopping
from cfcl.sim.engines import Engine
from cfcl.sim.simulation import Simulation, Snapshot, never
from cfcl.use import Origin, TrainedEncoder

Watch = Callable[[Record], None]

COLLAPSED = 1.5
"""The effective rank below which embeddings are as good as all the same."""


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
    loss: Loss | None = None,
    out: str | Path | None = None,
    device: str = "cpu",
    workers: int | None = None,
    engine: Engine = "sharded",
    plotted: bool = True,
    trace: str | Path | None = None,
    watch: Watch = lambda record: None,
    note: Note = warnings.warn,
) -> Result:
    """Run `config`; with `out`, write a run folder below it, with plots. `watch` sees every record as it appears.

    The devices are shared among `workers` processes, by default one per core. Neither their number nor the engine
    (`loop` is the reference) changes a byte of the records. Under torchrun its processes share the devices, and only
    the first one has records and writes.

    A `dataset` (see `cfcl.data.datasets.from_torch`) takes the place of the one that `config.data` names, and a
    `module` that turns images into embeddings takes that of `config.model.encoder`, with the weights it has. A `loss`
    of the embeddings of two views, `(z0, z1) -> scalar`, takes that of `config.train.objective`. `trace` is a file for
    every message of every step, one line each.

    A run folder that is not finished holds checkpoints: the same call again, or `resume`, goes on from the newest, and
    the end is the same to the byte. SIGINT and SIGTERM end the run after the step at hand, with a checkpoint.
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
        stopping.caught() if out is not None else nullcontext(never) as stop,
        _tracing(trace) as tracer,
        engines.start(
            config,
            device=device,
            dataset=dataset,
            module=module,
            loss=loss,
            workers=workers,
            engine=engine,
            trace=tracer,
            saved=out is not None,
            stop=stop,
        ) as simulation,
    ):
        if out is None or not simulation.group.leads:
            return _result(simulation, tuple(_played(simulation, None, watch, note)), None)
        handed = any(item is not None for item in (dataset, module, loss))
        with resuming.opened(config, Path(out), note, anew=handed) as writer:
            known, before = resuming.known(simulation, writer, note)
            with writer.writing():
                found = tuple(_played(simulation, before, watch, note, writer))
                return _finished(simulation, writer, (*known, *found), note, plotted=plotted)


def resume(
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    data_path: str | Path | None = None,
    **options: Any,
) -> Result:
    """Go on with the unfinished run in `folder`: its end is the same to the byte as if nothing had happened.

    `data_dir` and `data_path` say where the data are now, if they have moved; data that have changed are refused. The
    `options` are those of `simulate`; a `dataset`, a `module` and a `loss` must be those that the run began with.
    """
    partial, config = folders.unfinished(Path(folder))
    if data_dir is None and config.data.dir is not None and not reading.is_folder(reading.expanded(config.data.dir)):
        config = configs.override(config, ["data.dir=none"])  # so that the usual places are searched
    moved = {"data.dir": data_dir, "data.path": data_path}
    config = configs.override(config, [f"{key}={value}" for key, value in moved.items() if value is not None])
    return simulate(config, out=partial, **options)


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


def comparison_name(config: Config) -> str:
    """What the folder of a comparison is called: the same for all methods and seeds of otherwise equal runs."""
    common = configs.with_method(configs.override(config, ["seed=0"]), "uniform-explicit")
    return f"{config.name}-compare-{common.digest[:6]}"


def finished(plan: Sequence[Config], folder: Path) -> list[Path]:
    """The folders of those runs of a `plan` that are finished in `folder`."""
    found = shelf.finished(folder)
    return [found[run.digest] for run in plan if run.digest in found]


def lacking(plan: Sequence[Config], folder: Path) -> list[Config]:
    """Those runs of a `plan` that are not finished in `folder`."""
    found = shelf.finished(folder)
    return [run for run in plan if run.digest not in found]


@contextmanager
def _tracing(path: str | Path | None) -> Iterator[Callable[[str], None] | None]:
    """What writes a line to `path`, which is made with the first one: of several processes only one has lines."""
    if path is None:
        yield None
        return
    if reading.exists(Path(path)):
        raise CfclError(f"--trace {str(path)!r} exists already: choose another file")
    with ExitStack() as stack:
        files: list[IO[str]] = []

        def write(line: str) -> None:
            try:
                if not files:
                    files.append(stack.enter_context(Path(path).open("x", encoding="utf-8")))
                files[0].write(f"{line}\n")
            except OSError as error:
                reason = f"cannot write the trace to {str(path)!r}: {error.strerror}"
                raise CfclError(f"{reason}; choose another file") from None

        yield write


def _played(
    simulation: Simulation, before: Tree | None, watch: Watch, note: Note, writer: Writer | None = None
) -> Iterator[Record]:
    """The records to come, written down with the checkpoints between them."""
    for item in simulation.play(before):
        if isinstance(item, Snapshot):
            assert writer is not None
            resuming.save(simulation, writer, item)
            continue
        if writer is not None:
            writer.record(item)
        watch(item)
        if isinstance(item, Evaluation) and item.step > 0 and item.effective_rank < COLLAPSED:
            note(
                f"at step {item.step} the embeddings use {item.effective_rank:.2f} directions: the encoder collapses "
                "(raise train.margin, weaken [augment], or lower train.learning_rate)"
            )
        yield item


def _finished(
    simulation: Simulation, writer: Writer, found: tuple[Record, ...], note: Note, *, plotted: bool
) -> Result:
    """The result, when all of it is in the folder."""
    result = _result(simulation, found, writer.folder)
    result.encoder.save(writer.partial / "encoder.safetensors")
    writer.json("costs.json", [cost.to_dict() for cost in result.costs])
    writer.json("timings.json", result.timings.to_dict())
    writer.json("environment.json", _environment(simulation).to_dict())
    _describe(writer.partial, result.encoder, note)
    if plotted:
        _plot(writer.partial, note)
    return result


def _describe(folder: Path, encoder: TrainedEncoder, note: Note) -> None:
    try:
        cards.write_beside(folder, encoder)
    except Exception as error:  # a page is no reason to lose a run
        (folder / card.FILE).unlink(missing_ok=True)
        note(f"the card could not be written ({type(error).__name__}: {error}); all else is there")


def _plot(folder: Path, note: Note) -> None:
    from cfcl.runs import plots  # loads matplotlib, which a run without plots need not wait for

    try:
        plots.draw_run(folders.load(folder), folder / "plots")
    except Exception as error:  # a picture is no reason to lose a run
        shutil.rmtree(folder / "plots", ignore_errors=True)
        note(f"the plots could not be drawn ({type(error).__name__}: {error}); all else is there")


def _result(simulation: Simulation, found: tuple[Record, ...], folder: Path | None) -> Result:
    return Result(
        config=simulation.config,
        records=found,
        encoder=_encoder(simulation, found),
        costs=tuple(records.read(LinkCost, row) for row in simulation.ledger.table()),
        timings=simulation.timings,
        folder=folder,
    )


def _encoder(simulation: Simulation, found: Sequence[Record]) -> TrainedEncoder:
    config, world = simulation.config, simulation.world
    # Data may be elsewhere, and called otherwise, when a run goes on; their digest stays.
    begun = next((record.dataset for record in found if isinstance(record, Setup)), None)
    origin = Origin(
        config=config.digest if config.data.path is None else configs.override(config, ["data.path=images"]).digest,
        method=config.method,
        seed=config.seed,
        step=config.train.steps,
        dataset=begun or world.dataset.name,
        data=world.dataset.digest,
    )
    return TrainedEncoder(world.setting.encoder, simulation.model, classes=world.dataset.classes, origin=origin)


def _environment(simulation: Simulation) -> Environment:
    names = ("cfcl", "torch", "numpy", "scikit-learn")
    return Environment(
        python=platform.python_version(),
        machine=platform.machine(),
        device=str(simulation.world.setting.encoder.device),
        engine="loop" if simulation.reference else "sharded",
        workers=simulation.group.size,
        numerics=configs.NUMERICS,
        versions={name: metadata.version(name) for name in names},
    )
