"""The `cfcl data` commands: list, fetch and show image sets."""

import json
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn
from rich.table import Table

from cfcl import config, reading
from cfcl.cli.terminal import console, user_errors
from cfcl.errors import CfclError
from cfcl.shown import Words

app = typer.Typer(
    name="data", help="List, fetch, show and save image sets.", no_args_is_help=True, rich_markup_mode="markdown"
)

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated. `none` unsets."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with the files of published sets; default: $CFCL_DATA_DIR, then the user's cache."),
]


def overrides_with(overrides: list[str] | None, data_dir: Path | None) -> list[str]:
    """The overrides, and the one that `--data-dir` stands for."""
    # Quoted, so that a folder called 7 or none stays a folder.
    given = [] if data_dir is None else [f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}"]
    return [*(overrides or ()), *given]


def load_config(spec: str, overrides: list[str] | None) -> config.Config:
    """The run that a preset, a TOML file or, for -, standard input describes."""
    if spec == "-":
        return config.parse(config.read_input(), overrides or (), source="standard input")
    from cfcl.data import fit  # which a report need not wait for

    return fit.load(spec, overrides or ())


@app.command("list")
def list_sets(data_dir: DataDir = None) -> None:
    """List the image sets: what they are, and whether they are here.

    Example: `cfcl data list`
    """
    with user_errors():
        from cfcl.data import catalogue

        table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
        for title in ("name", "train / test", "image", "MB", "files", "licence"):
            table.add_column(title, no_wrap=True)
        table.add_row("digits", "1,438 / 359", "1×8×8", "–", "in scikit-learn", "BSD-3-Clause")
        folders = {entry.name: catalogue.locate(entry, data_dir) for entry in catalogue.SETS.values()}
        for entry in catalogue.SETS.values():
            folder = folders[entry.name]
            table.add_row(
                entry.name,
                f"{entry.num_train:,} / {entry.num_test:,}",
                "×".join(map(str, entry.image_shape)),
                f"{entry.num_bytes / 1e6:.1f}",
                "not here"
                if folder is None
                else "not as published"
                if catalogue.altered(entry, folder)
                else "as published",
                entry.licence,
            )
        console.print(table)
        for name, folder in folders.items():
            if folder is not None:
                console.print(f"{name} is in {folder}", soft_wrap=True)
        console.print(
            "`cfcl data fetch NAME` gets one; `cfcl run own --set data.path=FOLDER` takes images of your own."
        )


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="fashion-mnist, usps or svhn.")],
    data_dir: DataDir = None,
) -> None:
    """Download a published set; an interrupted download is resumed.

    Example: `cfcl data fetch usps`
    """
    with user_errors("interrupted; the same command resumes the download"):
        from cfcl.data import catalogue
        from cfcl.data.fetch import fetch as fetch_set

        entry = catalogue.find_set(name)
        folder = catalogue.home(data_dir) / entry.name
        console.print(f"{entry.description}. Licence: {entry.licence}.")
        with _download_bar() as bars:
            tasks = {file.name: bars.add_task(file.name, total=file.num_bytes, start=False) for file in entry.files}

            def show(file: str, done: int, total: int) -> None:
                bars.start_task(tasks[file])
                bars.update(tasks[file], completed=done, total=total)

            fetched = fetch_set(entry, folder, progress=show)
            for file in set(tasks) - set(fetched):
                bars.update(tasks[file], description=f"{file} (was here already)", visible=True)
        console.print(
            f"{entry.name}: {len(fetched)} of {len(tasks)} files fetched, all as published, in {folder}",
            soft_wrap=True,
        )


@app.command()
def show(
    spec: Annotated[str, typer.Argument(help="A dataset (digits, usps, folder...), a preset, or a TOML file.")],
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("sheet.png"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing picture.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write a contact sheet of a dataset: one row of images per label.

    Example: `cfcl data show folder --set data.path=photos --set data.layout=classes`
    """
    with user_errors():
        wanted = _data_config(spec, overrides_with(overrides, data_dir))
        if reading.exists(out) and not force:
            raise CfclError(f"{str(out)!r} exists already: give --force to replace it, or another --out")
        from cfcl.data import datasets
        from cfcl.use import contact, output

        dataset = datasets.load(wanted)
        output.write(out, contact.png(contact.sheet(contact.of_dataset(dataset))))
        labels = f"{dataset.num_classes} labels" if dataset.num_classes else "no labels"
        console.print(
            f"{dataset.name}: {len(dataset.train_images):,} training and {len(dataset.test_images):,} test images of "
            f"{'×'.join(map(str, dataset.image_shape))}, {labels}. Contact sheet: {out}",
            soft_wrap=True,
        )


@app.command()
def save(
    spec: Annotated[str, typer.Argument(help="A dataset (digits, usps, folder...), a preset, or a TOML file.")],
    out: Annotated[Path, typer.Option(help="The new folder for the pictures.")],
    split: Annotated[Literal["test", "train"], typer.Option(help="Which images.")] = "test",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write the images of a dataset as PNG files, with a table `labels.csv` beside them, to try things on.

    Example: `cfcl data save digits --out photos`, then `cfcl embed photos --encoder RUN`
    """
    with user_errors():
        wanted = _data_config(spec, overrides_with(overrides, data_dir))
        from cfcl.data import datasets, saving

        dataset = datasets.load(wanted)
        with Progress(Words("{task.description}"), BarColumn(), console=console, transient=True) as bars:
            task = bars.add_task("writing", total=None)
            number = saving.save(dataset, split, out, watch=lambda done: bars.update(task, completed=done))
        console.print(f"Written: {number:,} pictures in {out}", soft_wrap=True, highlight=False)


def _data_config(spec: str, overrides: list[str]) -> config.DataConfig:
    names = get_args(config.DataConfig.model_fields["dataset"].annotation)
    if spec in names:
        return config.parse(f'[data]\ndataset = "{spec}"\n', overrides, source=spec).data
    from cfcl.data import fit  # which a report need not wait for

    return fit.load(spec, overrides).data


def _download_bar() -> Progress:
    columns = (Words("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=console)
