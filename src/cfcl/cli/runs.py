"""The commands for run folders: go on with one, list them, make a report."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cfcl import records
from cfcl.cli.data import DataDir
from cfcl.cli.terminal import console, note, user_errors
from cfcl.config import Config

if TYPE_CHECKING:
    from cfcl.runs.suites import Result
    from cfcl.use import TrainedEncoder

RUNS = Path("runs")

Device = Annotated[str, typer.Option(help="Where tensors live: cpu, cuda, cuda:1, ...")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes that share the devices; default: one per core.")]
Engine = Annotated[
    Literal["sharded", "loop"], typer.Option(help="loop is the slow reference; both write the same bytes.")
]
Centralised = Annotated[
    bool,
    typer.Option(
        help="Also train one model on all the data, on as many images as all devices see together; as long as a run."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print every record as a JSON line instead of the progress bar.")]
Trace = Annotated[Path | None, typer.Option(help="Also write every message to this file: from, to, kind, step, bytes.")]


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of the run, with or without its ending .partial.")],
    device: Device = "cpu",
    data_dir: DataDir = None,
    data_path: Annotated[Path | None, typer.Option(help="Where your own images are now, if they have moved.")] = None,
    workers: Workers = None,
    engine: Engine = "sharded",
    as_json: AsJson = False,
    trace: Trace = None,
) -> None:
    """Go on with an unfinished run from its newest checkpoint; it ends with the same bytes as if it had never stopped.

    The number of workers may differ from before. `cfcl runs` lists what is unfinished.

    Example: `cfcl resume runs/digits-cfcl-explicit-s0-1a2b3c.partial`
    """
    with user_errors():
        from cfcl.runs import folders, suites

        if folders.tidied(folder):
            console.print(f"Finished already: {folder}", soft_wrap=True)
            return
        wanted = folders.unfinished(folder)[1]

        def simulate(**seen: Callable[..., None]) -> "Result":
            return suites.resume(
                folder,
                data_dir=data_dir,
                data_path=data_path,
                device=device,
                workers=workers,
                engine=engine,
                trace=trace,
                **seen,
            )

        follow(simulate, wanted, as_json=as_json)


def list_runs(
    folder: Annotated[Path, typer.Argument(help="A folder of run folders; all below it are listed.")] = RUNS,
) -> None:
    """List run folders: state, step, size, and the command that goes on with what is not finished.

    Example: `cfcl runs`
    """
    with user_errors():
        from cfcl.runs import overview, progress

        found = overview.below(folder)
        console.print(progress.runs_table(found) if found else f"There are no run folders below {str(folder)!r}.")
        for entry in found:
            if entry.command:
                console.print(entry.command, soft_wrap=True)


def make_report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that contain run folders.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing page.")] = False,
) -> None:
    """Make one self-contained HTML page from run folders; runs that are not finished are listed as such.

    Example: `cfcl report runs --out report.html`
    """
    with user_errors():
        from cfcl.runs import folders, overview, report

        unfinished = overview.unfinished(runs)
        page = report.write(folders.find(runs, needed=not unfinished), out, unfinished=unfinished, force=force)
        console.print(f"Report: {page}", soft_wrap=True)


def follow(simulate: Callable[..., "Result"], wanted: Config, *, as_json: bool) -> None:
    """Do a run and show it: as a bar and a table, or as JSON lines."""
    from cfcl.runs import faults, folders, privacy, progress

    if as_json:
        result = simulate(watch=lambda record: print(record.to_line(), flush=True), note=note)
        if result.folder is not None:  # else one of torchrun's processes, but not the one that writes
            print(records.Done(str(result.folder)).to_line(), flush=True)
        return
    with progress.RunProgress(console, wanted) as bar:
        result = simulate(watch=bar.watch, note=note)
    if result.folder is None:
        return
    split = "validation" if wanted.data.validation > 0 else "test"
    console.print(progress.run_table(result.evaluations, split))
    if few := progress.few_table(result.evaluations, split):
        console.print(few)
    if told := faults.told(result.records):
        console.print(told, soft_wrap=True, highlight=False)
    if wanted.privacy.noise > 0:
        for sentence in privacy.sentences(folders.load(result.folder)):
            console.print(sentence, highlight=False)
    console.print(f"Run folder: {result.folder}", soft_wrap=True, highlight=False)


def training(wanted: bool, out: Path | None, device: str) -> "Callable[[Config], TrainedEncoder] | None":
    """What trains a model with a bar, if that is `wanted`; with `out`, a folder lets it go on after a stop."""
    return partial(_trained, out=out, device=device) if wanted else None


def _trained(config: Config, *, out: Path | None, device: str) -> "TrainedEncoder":
    from cfcl.runs import progress, suites

    with progress.RunProgress(console, config) as bar:
        result = suites.simulate(config, out=out, device=device, plotted=False, watch=bar.watch, note=note)
    if out is not None:
        shutil.rmtree(out)
    return result.encoder
