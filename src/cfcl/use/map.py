"""A map of many images: where each lies, which are almost the same, and which stand alone, as one page."""

import os.path
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from typing import Any

from PIL import Image

from cfcl import page
from cfcl.page import Html, tag
from cfcl.shown import visible
from cfcl.use import atlas, contact, overview, search
from cfcl.use.embedding import Space, Vectors, Watch
from cfcl.use.overview import Outlier, Pair
from cfcl.use.search import Floats
from cfcl.use.sources import Source

MAX_DRAWN = 5_000
MAX_PAIRS, MAX_OUTLIERS = 50, 20
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#882255", "#F0E442", "#6B5B00", "#B8BDC4",
)  # fmt: skip
"""Of sub-folders: those of Okabe and Ito, which colour-blind readers can tell apart, and three more; grey is the last,
for the rest of them where there are more."""


@dataclass(frozen=True)
class Map:
    """All that the page shows. Numbers are positions in the list of drawn images."""

    names: list[str]
    places: list[int]
    """Where each of them stands in the source."""
    points: Floats
    pairs: list[Pair]
    outliers: list[Outlier]
    num_images: int
    """Of which `names` are drawn."""
    num_pairs: int
    """Of which `pairs` are listed."""


def draw(vectors: Vectors, space: Space) -> Map:
    """The map of all vectors, or of as many as can be drawn: those that are listed, and others spread out."""
    values = search.comparable(vectors.values, space)
    near = search.nearest(values, values, overview.NEIGHBOURS, itself=False)
    pairs, alone = overview.near_duplicates(near), overview.outliers(near, MAX_OUTLIERS)
    listed = [item for pair in pairs[:MAX_PAIRS] for item in pair[:2]] + [item.position for item in alone]
    chosen = overview.spread(values, MAX_DRAWN, listed)
    number = {position: place for place, position in enumerate(chosen)}
    return Map(
        names=[vectors.names[position] for position in chosen],
        places=[vectors.positions[position] for position in chosen],
        points=overview.plane(values[chosen]),
        pairs=[Pair(number[pair.first], number[pair.second], pair.distance) for pair in pairs[:MAX_PAIRS]],
        outliers=[Outlier(number[item.position], item.distance) for item in alone],
        num_images=len(values),
        num_pairs=len(pairs),
    )


def thumbnails(found: Map, source: Source, *, workers: int, watch: Watch) -> list[Image.Image]:
    """The drawn images, as large as there is room for on the page."""
    side = atlas.side(len(found.places))

    def small(place: int) -> Image.Image:
        return contact.shrunk(source.picture(place, side), side)

    images: list[Image.Image] = []
    with ThreadPoolExecutor(workers) as pool:
        for image in pool.map(small, found.places):
            images.append(image)
            watch(len(images))
    return images


def groups(names: Sequence[str]) -> list[str]:
    """The sub-folder of each image, below the folder that all share; nothing for those that lie beside them."""
    folders = [name.rpartition("/")[0] for name in names]
    absolute = {folder.startswith("/") for folder in folders}
    shared = os.path.commonpath(folders) if len(absolute) == 1 else ""
    return [folder.removeprefix(shared).strip("/").partition("/")[0] for folder in folders]


def legend(names: Sequence[str]) -> tuple[list[tuple[str, str, int]], list[int]]:
    """Label, colour and size of each group, by name, and which one each image is in; none if all are in one.

    Where there are more groups than colours, the smallest share one.
    """
    found = groups(names)
    counts = sorted(Counter(found).items(), key=lambda item: (-item[1], item[0]))
    if len(counts) == 1:
        return [], [-1] * len(names)
    kept = sorted(counts if len(counts) <= len(COLOURS) else counts[: len(COLOURS) - 1])
    entries = [
        (name or "(in no sub-folder)", colour, size) for (name, size), colour in zip(kept, COLOURS, strict=False)
    ]
    if rest := counts[len(kept) :]:
        entries.append((f"{len(rest)} more sub-folders", COLOURS[-1], sum(size for _, size in rest)))
    place = {name: number for number, (name, _) in enumerate(kept)}
    return entries, [place.get(name, len(kept)) for name in found]


def render(found: Map, images: Sequence[Image.Image], *, title: str, encoder: str) -> str:
    """The page as text."""
    packed = atlas.pack(images)
    entries, members = legend(found.names)
    data: dict[str, Any] = {
        "cell": packed.cell, "columns": packed.columns, "rows": packed.rows, "sharp": packed.kind == "png",
        "x": found.points[:, 0].round(5).tolist(), "y": found.points[:, 1].round(5).tolist(),
        "sizes": packed.sizes, "names": [visible(name) for name in found.names],
        "groups": [(visible(name), colour, size) for name, colour, size in entries], "members": members,
        "pairs": [(pair.first, pair.second, f"{pair.distance:.3f}") for pair in found.pairs],
        "outliers": [(item.position, f"{item.distance:.3f}") for item in found.outliers],
    }  # fmt: skip
    return page.document(
        f"Map of {title}",
        _head(found, title, encoder),
        Html(_text("map.html")),
        tag("div", *(page.picture(content, packed.kind, "") for content in packed.pages), id="atlases", hidden=""),
        page.data(data, id="data"),
        style=_text("map.css"),
        script=_text("map.js") + _text("map_parts.js"),
    )


def _text(name: str) -> str:
    return resources.files("cfcl.use").joinpath(name).read_text(encoding="utf-8")


def _head(found: Map, title: str, encoder: str) -> Html:
    drawn = f"{found.num_images:,} images"
    if found.num_images > len(found.names):
        drawn = f"{len(found.names):,} of {found.num_images:,} images, chosen to lie far apart,"
    pairs = (
        f"{found.num_pairs:,} pair{'s' * (found.num_pairs > 1)} of near-duplicates"
        if found.pairs
        else "no near-duplicates"
    )
    if found.num_pairs > len(found.pairs):
        pairs += f", the nearest {len(found.pairs)} of which are listed"
    told = f"{drawn} under the encoder {encoder}; {pairs}. Images that it takes for similar lie side by side. Neither "
    told += "the axes nor distances between far groups have a meaning."
    return tag("header", tag("h1", f"Map of {title}"), tag("p", told))
