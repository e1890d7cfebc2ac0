"""The commands that hand an encoder on: as an ONNX file, and with a card that says what it is."""

from pathlib import Path
from typing import Annotated

import typer

from cfcl.cli.data import DataDir
from cfcl.cli.terminal import console, user_errors
from cfcl.cli.use import Features, Force, check_free
from cfcl.errors import CfclError

RunAt = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or the encoder.safetensors of one.")]


def export(
    run: RunAt,
    out: Annotated[Path, typer.Option(help="The file to write; it ends in .onnx.")] = Path("encoder.onnx"),
    features: Features = False,
    force: Force = False,
) -> None:
    """Write the encoder of RUN as an ONNX file, which runs without cfcl and without torch.

    It takes uint8 pixels [batch, channels, height, width] of the encoder's own size and gives float32 vectors: scaling,
    standardisation and the unit sphere are inside. Its metadata say the size, how to resize and which classes there
    are. It is written only if onnxruntime computes with it what the encoder does, to 0.00001.

    Example: `cfcl export runs/digits-cfcl-explicit-s0-1a2b3c --out digits.onnx`
    """
    with user_errors():
        from cfcl.use import export as exports
        from cfcl.use import load_encoder

        exports.check_place(out)
        check_free(out, force=force)
        _check_finished(run)
        encoder = load_encoder(run)
        size = exports.write(encoder, out, space="features" if features else "embedding")
        shape = ", ".join(map(str, encoder.image_shape))
        dim = encoder.feature_dim if features else encoder.embedding_dim
        console.print(
            f"Written: {out}, {size:,} bytes: uint8 [batch, {shape}] to float32 [batch, {dim}]",
            soft_wrap=True, highlight=False,
        )  # fmt: skip


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file, which ends in .md, and do not print it.")
    ] = None,
    yardsticks: Annotated[
        bool, typer.Option("--yardsticks", help="Also measure what you would use instead; takes a while.")
    ] = False,
    data_dir: DataDir = None,
    force: Force = False,
) -> None:
    """Print the card of RUN: what its encoder is, learned from, is worth, what devices sent, and what is not known.

    Where the data are on this machine it has accuracies by class, which the card.md in the folder of a run has not.

    Example: `cfcl card runs/digits-cfcl-explicit-s0-1a2b3c --yardsticks --out card.md`
    """
    with user_errors():
        if out is not None and out.suffix.lower() != ".md":
            raise CfclError(f"--out {str(out)!r} does not end in .md, but a card is Markdown: give such as card.md")
        check_free(out, force=force)
        _check_finished(run)
        from cfcl.runs import cards, folders

        found = folders.load(run)
        with console.status("card") as status:
            text = cards.make(
                found,
                out=out,
                measured=yardsticks,
                data_dir=data_dir,
                watch=lambda name: status.update(f"card: {name}"),
            )
        if out is None:
            typer.echo(text, nl=False)
            return
        cards.write(text, out)
        console.print(f"Written: {out}", soft_wrap=True, highlight=False)


def _check_finished(run: Path) -> None:
    """Refuse the folder of a run that has not ended."""
    from cfcl.runs import folders
    from cfcl.shown import command

    partial = folders.unfinished_at(run)
    if partial is not None:
        go_on = command("cfcl", "resume", str(partial))
        raise CfclError(f"the run in {str(partial)!r} is not finished, so it has no encoder yet: `{go_on}` goes on")
