"""The images nearest to others: where they are looked for, and what is found."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from cfcl.errors import CfclError
from cfcl.use import contact, embedding, search, sources, tables
from cfcl.use.embedding import Space, Vectors, Watch
from cfcl.use.sources import Skipped, Source
from cfcl.use.tables import Table
from cfcl.use.trained import TrainedEncoder

MAX_QUERIES = 50


class Neighbour(NamedTuple):
    """An image that was found."""

    name: str
    distance: float
    image: Image.Image
    """No larger than contact sheets show it; so below."""


class Answer(NamedTuple):
    """A query, and its neighbours, nearest first."""

    name: str
    image: Image.Image
    neighbours: list[Neighbour]


@dataclass(frozen=True)
class Gallery:
    """Images among which others are looked for."""

    source: Source
    """Where the pictures are."""
    table: Table | None = None
    """Their vectors, if they come from a file; else the pictures are embedded."""

    @property
    def num_new(self) -> int:
        """How many images are still to be embedded."""
        return 0 if self.table else len(self.source.names)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.source.names)}

    def vectors(self, encoder: TrainedEncoder, space: Space, *, workers: int, watch: Watch) -> Vectors:
        """A vector for each image; for those from a file, at positions of no meaning."""
        if self.table is None:
            return embedding.collect(self.source, encoder, space=space, workers=workers, watch=watch)
        return Vectors(list(self.table.names), self.table.values, [], [])

    def picture(self, name: str) -> Image.Image:
        """The picture of this name, no larger than it is shown."""
        if name not in self._places:
            raise CfclError(
                f"the embeddings are those of {name!r} too, but it is not among the pictures of --images: give the "
                "folder or file that was embedded"
            )
        return contact.shrunk(self.source.picture(self._places[name], contact.LARGEST))


def find_queries(path: Path) -> Source:
    """The images to look for."""
    found = sources.find(path)
    if len(found.names) > MAX_QUERIES:
        raise CfclError(
            f"{str(path)!r} holds {len(found.names):,} images, but at most {MAX_QUERIES} are looked for at once: give "
            "a smaller folder, or a .txt file with some of their paths"
        )
    return found


def find_gallery(path: Path, images: Path | None, encoder: TrainedEncoder, space: Space) -> Gallery:
    """The images at `path`, or in a file of embeddings there, whose pictures are at `images`."""
    if not tables.is_table(path):
        if images is not None:
            raise CfclError(
                f"--images {str(images)!r} says where the pictures of a file of embeddings are, but --among "
                f"{str(path)!r} is none: leave --images out"
            )
        return Gallery(sources.find(path))
    table = tables.read(path)
    _check_same(path, table, encoder, space)
    if images is None:
        raise CfclError(
            f"--among {str(path)!r} holds embeddings but no pictures: give --images with the folder that was embedded"
        )
    return Gallery(sources.find(images), table)


def answer(
    queries: Source,
    gallery: Gallery,
    encoder: TrainedEncoder,
    number: int,
    *,
    space: Space = "embedding",
    workers: int = 1,
    watch: Watch = lambda done: None,
) -> tuple[list[Answer], list[Skipped]]:
    """For each query the `number` nearest images of the gallery; and what could not be read of either."""
    asked = embedding.collect(queries, encoder, space=space, workers=workers, watch=watch)
    among = gallery.vectors(encoder, space, workers=workers, watch=lambda done: watch(len(queries.names) + done))
    found = search.nearest(search.comparable(asked.values, space), search.comparable(among.values, space), number)
    pictures = {name: gallery.picture(name) for name in sorted({among.names[place] for place in found.positions.flat})}
    answers: list[Answer] = []
    for row, (name, place) in enumerate(zip(asked.names, asked.positions, strict=True)):
        names = [among.names[position] for position in found.positions[row]]
        near = zip(names, found.distances[row].tolist(), strict=True)
        image = contact.shrunk(queries.picture(place, contact.LARGEST))
        answers.append(Answer(name, image, [Neighbour(item, away, pictures[item]) for item, away in near]))
    return answers, [*asked.skipped, *among.skipped]


def rows(answers: Sequence[Answer]) -> list[contact.Row]:
    """What a contact sheet shows of them."""
    return [
        contact.Row(
            "",
            [contact.Cell(item.image, (f"{item.distance:.3f}", item.name)) for item in found.neighbours],
            contact.Cell(found.image, ("query", found.name)),
        )
        for found in answers
    ]


def _check_same(path: Path, table: Table, encoder: TrainedEncoder, space: Space) -> None:
    """Refuse vectors that this encoder did not make; what a file does not say is not held against it."""
    dim = encoder.embedding_dim if space == "embedding" else encoder.feature_dim
    if table.encoder not in (None, encoder.digest):
        raise CfclError(
            f"--among {str(path)!r} was made by another encoder (its digest begins with {table.encoder:.12}, this "
            f"one's with {encoder.digest:.12}): give that one, or run `cfcl embed` with this one"
        )
    if table.space not in (None, space):
        wanted, remedy = (
            ("features", "leave --features out") if space == "features" else ("embeddings", "add --features")
        )
        raise CfclError(
            f"--among {str(path)!r} holds no {wanted}, but {table.space}: {remedy}, or run `cfcl embed` again"
        )
    if table.values.shape[1] != dim:
        raise CfclError(
            f"--among {str(path)!r} holds vectors of {table.values.shape[1]} numbers, and this encoder makes {dim}: "
            "run `cfcl embed` with this one"
        )
