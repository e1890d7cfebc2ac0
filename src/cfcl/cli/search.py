"""The commands that look at many images at once: the neighbours of one, and a map of all."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cfcl.cli.terminal import console, user_errors
from cfcl.cli.use import CORES, Device, EncoderAt, Features, Force, Images, Threads, check_free, counting, tell_skipped

if TYPE_CHECKING:
    from cfcl.use.embedding import Space
    from cfcl.use.neighbours import Answer

LISTED = 10
"""Neighbours that are printed; the files show all."""


def neighbours(
    image: Annotated[
        Path,
        typer.Argument(help="A picture; or up to 50 in a folder, in an .npz file with `images`, or listed in a .txt."),
    ],
    among: Annotated[
        Path,
        typer.Option(help="Where to look: a folder, an .npz file, a .txt list, or what `cfcl embed` wrote of them."),
    ],
    encoder: EncoderAt,
    out: Annotated[Path, typer.Option(help="The contact sheet to write, a .png file.")] = Path("neighbours.png"),
    html: Annotated[Path | None, typer.Option(help="Also write a page with the same images, an .html file.")] = None,
    number: Annotated[int, typer.Option(min=1, max=100, help="Neighbours of each image.")] = 10,
    features: Features = False,
    images: Annotated[
        Path | None, typer.Option(help="If --among is a file of embeddings: the folder or file that was embedded.")
    ] = None,
    workers: Threads = CORES,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Find the images nearest to IMAGE, and draw them beside it, nearest first.

    Distances are Euclidean, between embeddings, or between --features scaled to length one. An image that is in the
    gallery itself is its own nearest neighbour, at distance 0. What cannot be read is named and left out, and the exit
    code is then 1.

    Example: `cfcl neighbours cat.jpg --among photos --encoder runs/digits-cfcl-explicit-s0-1a2b3c --html cat.html`
    """
    with user_errors():
        check_free(out, html, force=force)
        from cfcl.use import contact, load_encoder, output
        from cfcl.use import neighbours as finding

        output.check_suffix(out, "--out", ".png")
        if html is not None:
            output.check_suffix(html, "--html", ".html")
        trained, queries = load_encoder(encoder, device=device), finding.find_queries(image)
        space: Space = "features" if features else "embedding"
        gallery = finding.find_gallery(among, images, trained, space)
        with counting("embedding", len(queries.names) + gallery.num_new) as watch:
            answers, skipped = finding.answer(
                queries, gallery, trained, number, space=space, workers=workers, watch=watch
            )
        sheet = contact.png(contact.sheet(finding.rows(answers)))
        if html is not None:
            from cfcl.use import neighbours_page

            text = neighbours_page.render(answers, among=among.resolve().name, encoder=encoder.resolve().name)
            output.write(html, text.encode())
        output.write(out, sheet)
        console.print(_table(answers))
        written = f"{out} and {html}" if html is not None else str(out)
        console.print(f"Written: {written}", soft_wrap=True)
        tell_skipped(skipped)


def draw_map(
    images: Images,
    encoder: EncoderAt,
    out: Annotated[Path, typer.Option(help="The page to write, an .html file.")] = Path("map.html"),
    features: Features = False,
    workers: Threads = CORES,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Draw a map of IMAGES as one page for a browser: what the encoder takes for similar lies side by side.

    The page lists near-duplicates and outliers too, and colours the images by sub-folder if there are some. It needs
    no network. At most 5,000 images are drawn; of more, those listed and others that lie far apart. What cannot be
    read is named and left out, and the exit code is then 1.

    Example: `cfcl map photos --encoder runs/digits-cfcl-explicit-s0-1a2b3c --out photos.html`
    """
    with user_errors():
        check_free(out, force=force)
        from cfcl.use import embedding, load_encoder, output, sources
        from cfcl.use import map as mapping

        output.check_suffix(out, "--out", ".html")
        space: Space = "features" if features else "embedding"
        trained, source = load_encoder(encoder, device=device), sources.find(images)
        with counting("embedding", len(source.names)) as watch:
            vectors = embedding.collect(source, trained, space=space, workers=workers, watch=watch)
        with console.status(f"placing {len(vectors.names):,} images"):
            found = mapping.draw(vectors, space)
        with counting("thumbnails", len(found.names)) as watch:
            small = mapping.thumbnails(found, source, workers=workers, watch=watch)
        text = mapping.render(found, small, title=images.resolve().name, encoder=encoder.resolve().name)
        output.write(out, text.encode())
        console.print(
            f"Written: {out}, {len(found.names):,} of {found.num_images:,} images, {found.num_pairs:,} pairs of "
            "near-duplicates",
            soft_wrap=True,
        )
        tell_skipped(vectors.skipped)


def _table(answers: "Sequence[Answer]") -> Table:
    """The neighbours of one image, or the nearest one of each."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    if len(answers) == 1:
        table.add_column("distance", justify="right")
        table.add_column(f"nearest to {answers[0].name}", overflow="fold")
        for item in answers[0].neighbours[:LISTED]:
            table.add_row(f"{item.distance:.3f}", item.name)
        return table
    for title in ("image", "nearest"):
        table.add_column(title, overflow="fold")
    table.add_column("distance", justify="right")
    for found in answers:
        first = found.neighbours[0]
        table.add_row(found.name, first.name, f"{first.distance:.3f}")
    return table
