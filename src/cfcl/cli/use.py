"""The commands for a trained encoder: embed images, and what follows from that."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cfcl import reading
from cfcl.cli.terminal import complaints, console, user_errors
from cfcl.errors import CfclError

if TYPE_CHECKING:
    from cfcl.use.classify import Classified
    from cfcl.use.embedding import Space
    from cfcl.use.sources import Skipped

SHOWN = 10
"""Skipped images that are named; the rest are counted."""

Images = Annotated[
    Path, typer.Argument(help="A folder of pictures, an .npz file with `images`, or a .txt file with a path per line.")
]
EncoderAt = Annotated[
    Path, typer.Option("--encoder", metavar="RUN", help="A run folder, or the encoder.safetensors of one.")
]
Features = Annotated[
    bool, typer.Option("--features", help="The wider features before the projection head, in place of embeddings.")
]
Threads = Annotated[int, typer.Option("--workers", min=1, help="Threads; their number changes no byte.")]
Device = Annotated[str, typer.Option(help="Where the encoder runs: cpu, cuda, cuda:1, ...")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
CORES = os.cpu_count() or 1


def embed(
    images: Images,
    encoder: EncoderAt,
    out: Annotated[Path, typer.Option(help="The file to write: .npz, .csv or .parquet.")] = Path("embeddings.npz"),
    features: Features = False,
    workers: Threads = CORES,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Embed IMAGES with a trained encoder: one row of numbers for each, under its name.

    Pictures of any size are resized as they were in training. Those that cannot be read are named and left out, and
    the exit code is then 1.

    Example: `cfcl embed photos --encoder runs/digits-cfcl-explicit-s0-1a2b3c --out photos.npz`
    """
    with user_errors():
        check_free(out, force=force)
        from cfcl.use import load_encoder, sources, tables

        trained, source = load_encoder(encoder, device=device), sources.find(images)
        with counting("embedding", len(source.names)) as watch:
            skipped = tables.write(
                out, source, trained, space="features" if features else "embedding", workers=workers, watch=watch
            )
        console.print(f"Written: {out}, {len(source.names) - len(skipped):,} images", soft_wrap=True, highlight=False)
        tell_skipped(skipped)


def classify(
    images: Images,
    encoder: EncoderAt,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with columns `name` and `label`, at least two of each class. Not given: only choose."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The table of predictions to write, .csv.")] = Path("predictions.csv"),
    number: Annotated[
        int, typer.Option("--next", min=0, max=1000, help="How many images to name as next to label.")
    ] = 20,
    embedding: Annotated[
        bool, typer.Option("--embedding", help="Use the short embeddings in place of the features.")
    ] = False,
    workers: Threads = CORES,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Label a few of IMAGES by hand, and have the rest predicted, with how sure that is and what to label next.

    Begin without --labels: it names the images that stand for most of the others, in OUT-next.csv, a table to fill in,
    and shows them in OUT-next.png. Give the filled table as --labels, look at the accuracy, add labels, repeat.

    Example: `cfcl classify photos --labels labels.csv --encoder runs/digits-cfcl-explicit-s0-1a2b3c`
    """
    with user_errors():
        following, sheet = (out.with_name(f"{out.stem}-next{suffix}") for suffix in (".csv", ".png"))
        written = [*([out] if labels is not None else []), *([following, sheet] if number else [])]
        if not written:
            raise CfclError("--next 0 without --labels leaves nothing to do: give either")
        check_free(*written, force=force)
        from cfcl.use import classify as classifying
        from cfcl.use import labels as labelling
        from cfcl.use import load_encoder, output, sources
        from cfcl.use.embedding import collect

        output.check_suffix(out, "--out", ".csv")
        given = None if labels is None else labelling.read(labels)
        trained, source = load_encoder(encoder, device=device), sources.find(images)
        with counting("embedding", len(source.names)) as watch:
            space: Space = "embedding" if embedding else "features"
            vectors = collect(source, trained, space=space, workers=workers, watch=watch)
        known = None
        if given is not None:
            known = labelling.match(given, vectors.names, [item.name for item in vectors.skipped])
            found = classifying.classify(vectors, known)
            classifying.write(out, found.predictions)
            console.print(_classes_table(found), _told(found), highlight=False)
            console.print(f"Predictions: {out}", soft_wrap=True, highlight=False)
        if number:
            chosen = classifying.to_label(vectors, known, number)
            classifying.write_blank(following, [vectors.names[place] for place in chosen])
            classifying.write_sheet(sheet, classifying.rows(source, vectors, chosen))
            console.print(f"To label next: {following}, shown in {sheet}", soft_wrap=True, highlight=False)
        tell_skipped(vectors.skipped)


def _classes_table(found: "Classified") -> Table:
    """How many images of each class: as labelled, and as predicted."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("class")
    for title in ("labelled", "predicted", "mean confidence"):
        table.add_column(title, justify="right")
    for label, count in zip(found.classes, found.given, strict=True):
        sure = [item.confidence for item in found.predictions if item.label == label]
        table.add_row(label, f"{count:,}", f"{len(sure):,}", f"{100 * sum(sure) / len(sure):.0f} %" if sure else "–")
    return table


def _told(found: "Classified") -> str:
    fitted, size = found.fitted, sum(found.given)
    low, high = (100 * end for end in fitted.interval)
    return (
        f"Cross-validated accuracy on the {size:,} labelled images ({fitted.num_folds} folds): "
        f"{100 * fitted.accuracy:.1f} %, 95 % interval {low:.0f} to {high:.0f} %."
    )


def check_free(*outs: Path | None, force: bool) -> None:
    """Refuse to write over files that are there."""
    for out in outs:
        if out is not None and reading.exists(out) and not force:
            raise CfclError(f"{str(out)!r} exists already: give --force to replace it, or another --out")


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over so many images; what it yields hears how many are done."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(what, total=total, rate="")

        def watch(done: int) -> None:
            speed = bars.tasks[0].speed
            bars.update(task, completed=done, rate=f"{speed:,.0f} images/s" if speed else "")

        yield watch


def tell_skipped(skipped: "Sequence[Skipped]") -> None:
    """Name what was left out, and end with exit code 1 if there was any."""
    if not skipped:
        return
    for item in skipped[:SHOWN]:
        complaints.print(f"skipped: {item.why}")
    more = f", {len(skipped) - SHOWN:,} of them not named here" if len(skipped) > SHOWN else ""
    counted = "1 image" if len(skipped) == 1 else f"{len(skipped):,} images"
    complaints.print(f"{counted} skipped{more}; all others are in the result")
    raise typer.Exit(1)
