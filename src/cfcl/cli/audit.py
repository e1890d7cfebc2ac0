"""The command that finds out how much neighbours can see of what they are sent."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from cfcl.cli.data import DataDir
from cfcl.cli.terminal import console, user_errors
from cfcl.cli.use import check_free
from cfcl.errors import CfclError

SETS = ("digits", "usps", "fashion-mnist", "svhn", "none")


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run; its data must be here.")],
    out: Annotated[
        Path, typer.Option(help="Folder for audit.html, the page to read, and audit.png, .csv and .json.")
    ] = Path("audit"),
    images: Annotated[int, typer.Option(min=20, max=10_000, help="Private images that are attacked.")] = 1000,
    steps: Annotated[
        int, typer.Option(min=1, max=100_000, help="Training steps of each network; few are quick.")
    ] = 400,
    layers: Annotated[
        str, typer.Option(help="Comma-separated stages of the encoder, such as block1,embedding; not given: all.")
    ] = "",
    other: Annotated[
        str | None,
        typer.Option(
            help="A second set that the attacker may have instead: digits, usps, fashion-mnist, svhn, or none. Not "
            "given: digits, and none for digits themselves."
        ),
    ] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(help="Also attack what travels with this much noise (see privacy.noise); may be repeated."),
    ] = None,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the verdict.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing audit.")] = False,
) -> None:
    """Attack a finished run, to find out how much of an image a neighbour can see in what it is sent.

    A network learns to turn embeddings and activations back into images, from public images alone: half of the test
    split, and another set. It is then tried on images of devices, for every layer that may travel, as floats, in 8 bits
    and with noise. A second test asks whether the encoder gives away which images it learned from.

    The page says for each layer whether images can be seen, whether their kind can be told, or neither, and shows them.

    Example: `cfcl audit runs/usps-cfcl-implicit-s0-1a2b3c --layers block1,embedding --noise 0.5 --out audit`
    """
    with user_errors():
        from cfcl.audit import auditing, shown

        check_free(*(out / name for name in shown.FILES), force=force)
        options = auditing.Options(
            images=images,
            steps=steps,
            layers=tuple(word.strip() for word in layers.split(",") if word.strip()),
            other=_other(run, other),
            noise=_checked(noise or []),
        )
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            task = bars.add_task("audit", total=None)
            found, pictures = auditing.audit(
                run,
                options,
                data_dir=data_dir,
                watch=lambda what, done, total: bars.update(task, description=what, completed=done, total=total),
            )
        shown.write(out, found, pictures)
        if as_json:
            print(found.as_json())
            return
        from cfcl.audit import findings

        head, rows = findings.table(found)
        table = Table(*head, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for row in rows:
            table.add_row(*row)
        console.print(table, "")
        for sentence in found.verdicts():
            console.print(f"- {sentence}", highlight=False)
        console.print(f"Written: {out / 'audit.html'}", soft_wrap=True, highlight=False)


def _other(run: Path, given: str | None) -> str | None:
    """The second set of the attacker."""
    if given is not None and given not in SETS:
        raise CfclError(f"--other {given!r:.60} is no set that the attacker could have: choose from {', '.join(SETS)}")
    if given is None:
        from cfcl.runs import folders

        return None if folders.config_at(run).data.dataset == "digits" else "digits"
    return None if given == "none" else given


def _checked(levels: list[float]) -> tuple[float, ...]:
    for level in levels:
        if not 0.0 < level <= 1e6:
            raise CfclError(f"--noise {level:g} is not above 0 and at most 1e6: give another number")
    return tuple(levels)
