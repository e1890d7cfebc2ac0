"""The commands for a trained encoder: embed images, and what follows from that."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cfcl import reading
from cfcl.errors import CfclError
from cfcl.terminal import complaints, console, user_errors

if TYPE_CHECKING:
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
        complaints.print(f"skipped {item.name}: {item.why}")
    more = f", {len(skipped) - SHOWN:,} of them not named here" if len(skipped) > SHOWN else ""
    complaints.print(f"{len(skipped):,} images could not be read and were skipped{more}")
    raise typer.Exit(1)
