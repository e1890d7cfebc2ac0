"""The command that tells how much neighbours have in common, before anything is trained."""

from pathlib import Path
from typing import Annotated

import typer

from cfcl import reading
from cfcl.cli.data import DataDir, Overrides, load_config, overrides_with
from cfcl.cli.terminal import console, note, user_errors
from cfcl.cli.use import Force, check_free
from cfcl.config import Config, override


def overlap(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|FOLDER",
            help="A preset, a TOML file, - for TOML on standard input, or the folder of a run, whose config is used.",
        ),
    ] = "digits",
    overrides: Overrides = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Also write a heat map (.png) or the numbers (.csv, .json); may be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where tensors live: cpu, cuda, cuda:1, ...")] = "cpu",
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")] = False,
    force: Force = False,
) -> None:
    """Tell how much of each neighbour's data a device lacks, before any training.

    Every device shows its neighbours a reserve with radii, as with method cover, and they say which share of their own
    data lies outside. Method, mode, model and training of CONFIG do not matter. Labels are used for a check only.

    Example: `cfcl overlap usps --set partition.kind=common --out overlap.png --out overlap.csv`
    """
    with user_errors():
        outs = out or []
        check_free(*outs, force=force)
        wanted = _config(spec, overrides_with(overrides, data_dir))
        from cfcl.runs import overlap as shown
        from cfcl.sim import overlap as computing
        from cfcl.use import output

        shown.check_places(outs, wanted.partition.num_devices)
        if wanted.exchange.mode != "explicit":
            note(f"reserves are images here, which exchange.mode={wanted.exchange.mode!r} would not move")
        with console.status("overlap") as status:
            found = computing.measure(wanted, torch_device=device, watch=status.update)
        for file in outs:
            output.write(file, shown.content(found, file))
        if as_json:
            print(found.to_line())
            return
        for part in (*shown.tables(found), *shown.sentences(found)):
            console.print(part)
        if outs:
            console.print(f"Written: {', '.join(map(str, outs))}", soft_wrap=True, highlight=False)


def _config(spec: str, changes: list[str]) -> Config:
    """The config that `spec` names, with `changes`: a run's own where it is a folder."""
    if not reading.is_folder(Path(spec)):
        return load_config(spec, changes)
    from cfcl.runs import folders

    return override(folders.config_at(Path(spec)), changes)
