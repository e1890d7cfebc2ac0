"""The command line: parse, call one function, print."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from cfcl import __version__, config
from cfcl.cli import audit, data, export, overlap, runs, search, study, use
from cfcl.cli.data import DataDir, Overrides, load_config, overrides_with
from cfcl.cli.runs import RUNS, AsJson, Centralised, Device, Engine, Trace, Workers
from cfcl.cli.study import parse_seeds
from cfcl.cli.terminal import complaints, console, note, user_errors
from cfcl.cli.usage import Commands
from cfcl.errors import CfclError

TRAIN, USE, STUDY, SETTINGS = "Train and compare", "Use an encoder", "The paper's study", "Settings and data"
"""Groups of commands in the help."""
DEMO_METHODS = "fedavg,uniform-explicit,cfcl-explicit,cfcl-implicit"

app = typer.Typer(
    name="cfcl",
    cls=Commands,
    help="Unsupervised federated learning with device-to-device exchange.\n\n"
    "Start with `cfcl run digits`, then `cfcl compare digits`. `cfcl presets` lists ready-made runs and "
    "`cfcl config digits` explains every setting; change one with --set section.key=value.\n\n"
    "A run leaves an encoder: `cfcl map photos --encoder RUN` shows what it makes of a folder of pictures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Spec = Annotated[
    str, typer.Argument(help="A preset (see `cfcl presets`), a TOML file, or - for TOML on standard input.")
]
Out = Annotated[Path, typer.Option(help="Folder into which run folders are written.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, print sizes, bytes, memory and time, and write nothing.")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cfcl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before any command."""


@app.command(rich_help_panel=TRAIN)
def run(
    spec: Spec = "digits",
    overrides: Overrides = None,
    out: Out = RUNS,
    device: Device = "cpu",
    data_dir: DataDir = None,
    workers: Workers = None,
    engine: Engine = "sharded",
    as_json: AsJson = False,
    trace: Trace = None,
    dry_run: DryRun = False,
) -> None:
    """Simulate SPEC and write one run folder: config, metrics, costs, encoder and plots.

    Stop it when you like: the same command, or `cfcl resume FOLDER`, goes on, and ends with the same bytes.

    Example: `cfcl run digits --set exchange.mode=implicit --set seed=3`
    """
    with user_errors():
        changes = overrides_with(overrides, data_dir)
        wanted = load_config(spec, changes)
        _tell(spec, wanted, changes, [wanted])
        from cfcl.runs import suites

        if dry_run:
            _show_plan(wanted, device, 1 if engine == "loop" else workers)
            return
        simulate = partial(suites.simulate, wanted, out=out, device=device, workers=workers, engine=engine, trace=trace)
        runs.follow(simulate, wanted, as_json=as_json)


@app.command(rich_help_panel=TRAIN)
def compare(
    spec: Spec = "digits",
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated: fedavg, or METHOD-MODE with cfcl, uniform, kmeans, bulk, our own novel and cover, "
            "and explicit, implicit; for reference oracle-MODE, which sees labels, and centralised."
        ),
    ] = DEMO_METHODS,
    seeds: Annotated[
        str, typer.Option(help="Comma-separated, or a range such as 0-4; runs of one seed are paired.")
    ] = "0",
    overrides: Overrides = None,
    out: Out = RUNS,
    device: Device = "cpu",
    data_dir: DataDir = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of runs at the same time.")] = os.cpu_count() or 1,
    centralised: Centralised = True,
    dry_run: DryRun = False,
) -> None:
    """Run several methods on the same data, graph, initial model and batches; end with a table and a report.

    Stop it when you like: the same command goes on. With more methods or seeds it does only what is new.

    Example: `cfcl compare digits --methods fedavg,cfcl-explicit --seeds 0-2`
    """
    with user_errors(study.STOPPED):
        changes = overrides_with(overrides, data_dir)
        base = load_config(spec, changes)
        from cfcl.runs import baselines, dry, folders, forecast, progress, report, shelf, suites, summary
        from cfcl.runs.jobs import run_many
        from cfcl.sim import engines, group

        if group.launched():
            raise CfclError("compare starts its own processes, one per run: call it without torchrun")
        plan = suites.plan(base, [word.strip() for word in methods.split(",") if word.strip()], parse_seeds(seeds))
        _tell(spec, base, changes, plan)
        if dry_run:
            more = [baselines.centralised(plan[0])] if centralised and base.evaluation.labels_per_class else []
            forecasts = forecast.look([*plan, *more], device=device)
            console.print(dry.common_table(forecasts[0]), dry.compare_table(forecasts, at_once=workers))
            return
        folder = out / suites.comparison_name(base)
        for item in suites.lacking(plan, folder):
            engines.check(item, device)  # refuses an impossible run before any folder exists
        with shelf.opened(folder):
            todo = suites.lacking(plan, folder)
            if len(todo) < len(plan):
                note(f"{len(plan) - len(todo)} of {len(plan)} runs are finished in {str(folder)!r} and not repeated")
            with progress.CompareProgress(console, todo) as bars:
                outcomes = run_many(todo, out=folder, num_workers=workers, device=device, watch=bars.watch)
            done = [folders.load(path) for path in suites.finished(plan, folder)]
            if done:
                train = runs.training(centralised, folder / baselines.CENTRALISED, device)
                with _yardsticks() as show:
                    instead = baselines.kept(plan[0], folder, train=train, watch=show)
                console.print(*progress.compare_tables(summary.by_method(done), instead))
                page = report.write(done, folder / "report.html", force=True)
                console.print(f"Report: {page}", soft_wrap=True)
        failed = [outcome for outcome in outcomes if outcome.folder is None]
        for outcome in failed:
            complaints.print(f"failed: {outcome.config.method}, seed {outcome.config.seed}: {outcome.error}")
        if failed:
            raise typer.Exit(1)


@app.command("baselines", rich_help_panel=TRAIN)
def show_baselines(
    spec: Spec = "digits",
    overrides: Overrides = None,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers to this file, .csv or .json.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    centralised: Centralised = True,
    device: Device = "cpu",
) -> None:
    """Print what you would use instead of an encoder trained by devices, and how far you would get with it.

    Raw pixels, principal components, every stage of the untrained encoder, and one model trained on all the data, each
    under a linear probe with all labels and with few of each class.

    Example: `cfcl baselines usps --out baselines.csv`
    """
    with user_errors():
        changes = overrides_with(overrides, data_dir)
        wanted = load_config(spec, changes)
        if out is not None and (out.suffix not in (".csv", ".json") or (out.exists() and not force)):
            raise CfclError(
                f"--out {str(out)!r} exists, or ends neither in .csv nor in .json: give another, or --force"
            )
        from cfcl.runs import baselines, progress, yardsticks

        train = runs.training(centralised, None, device)
        with _yardsticks() as show:
            found = baselines.measure(wanted, train=train, watch=show)
        console.print(progress.labels_table([], found, "validation" if wanted.data.validation > 0 else "test"))
        if out is not None:
            yardsticks.write(out, found)
            console.print(f"Written: {out}", soft_wrap=True, highlight=False)


app.command(rich_help_panel=TRAIN)(overlap.overlap)
app.command(rich_help_panel=TRAIN)(runs.resume)
app.command("runs", rich_help_panel=TRAIN)(runs.list_runs)
app.command("report", rich_help_panel=TRAIN)(runs.make_report)
app.command(rich_help_panel=USE)(use.embed)
app.command(rich_help_panel=USE)(search.neighbours)
app.command("map", rich_help_panel=USE)(search.draw_map)
app.command(rich_help_panel=USE)(use.classify)
app.command(rich_help_panel=USE)(export.export)
app.command(rich_help_panel=USE)(export.card)
app.command(rich_help_panel=USE)(audit.audit)
app.command(rich_help_panel=STUDY)(study.reproduce)
app.command(rich_help_panel=STUDY)(study.redraw)


@app.command(rich_help_panel=SETTINGS)
def presets() -> None:
    """List the ready-made runs."""
    with user_errors():
        for name, description in config.presets().items():
            console.print(Text(f"{name:<20}", "bold"), description, soft_wrap=True)


@app.command("config", rich_help_panel=SETTINGS)
def show_config(spec: Spec = "digits", overrides: Overrides = None) -> None:
    """Print the full TOML of SPEC; a comment above each setting explains it.

    Example: `cfcl config digits > mine.toml`, edit it, `cfcl run mine.toml`
    """
    with user_errors():
        typer.echo(config.to_toml(load_config(spec, overrides), explain=True), nl=False)


app.add_typer(data.app, rich_help_panel=SETTINGS)


def main() -> None:
    """Entry point of the `cfcl` command."""
    app()


def _tell(spec: str, wanted: config.Config, changes: list[str], runs: list[config.Config]) -> None:
    """Name the settings that the user chose and that no run uses."""
    settings = config.given(spec, wanted, changes)
    for line in [*config.replaced(settings, wanted, runs), *config.notes(settings, runs)]:
        note(line)


@contextmanager
def _yardsticks() -> Iterator[Callable[[str], None]]:
    """What shows the name of a yardstick beside a spinner, which appears with the first name."""
    status = console.status("")

    def show(name: str) -> None:
        status.update(f"yardsticks: {name}")
        status.start()

    try:
        yield show
    finally:
        status.stop()


def _show_plan(wanted: config.Config, device: str, workers: int | None) -> None:
    from cfcl.runs import dry, forecast
    from cfcl.sim import engines, group

    if group.launched() and os.environ.get("RANK", "0") != "0":
        return  # the first of torchrun's processes tells
    given = int(os.environ["WORLD_SIZE"]) if group.launched() else workers
    size = engines.num_processes(wanted, given, alone=device != "cpu")
    (found,) = forecast.look([wanted], device=device, num_workers=size)
    console.print(dry.table(found))
