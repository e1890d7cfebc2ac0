"""The neighbours of images as one self-contained page."""

from collections.abc import Sequence
from io import BytesIO

from PIL import Image

from cfcl import page
from cfcl.page import Html, tag
from cfcl.use import contact
from cfcl.use.neighbours import Answer

STYLE = """
.found { display: grid; grid-template-columns: minmax(7rem, 12rem) 1fr; gap: 1rem 1.5rem; align-items: start; }
.near { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 1rem; }
.found img { display: block; max-width: 100%; max-height: 12rem; }
.found .query img { outline: 3px solid #0072B2; outline-offset: 2px; }
.found .small { width: 100%; max-height: none; image-rendering: pixelated; }
.found figcaption { overflow-wrap: anywhere; margin-left: 0; }
.found figcaption b { display: block; font-variant-numeric: tabular-nums; color: CanvasText; }
@media (max-width: 640px) {
  .found { grid-template-columns: 1fr; }
  .found .query { max-width: 9rem; }
  .near { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .75rem; }
}
"""


def render(answers: Sequence[Answer], *, among: str, encoder: str) -> str:
    """The page as text."""
    title = f"Neighbours among {among}"
    told = f"Images of {among} nearest to each query, by Euclidean distance under the encoder {encoder}. Nearest first."
    return page.document(title, tag("h1", title), tag("p", told), *map(_section, answers), style=STYLE)


def _section(found: Answer) -> Html:
    query = tag(
        "figure", _img(found.image, found.name), tag("figcaption", tag("b", "query"), found.name), class_="query"
    )
    near = [
        tag("figure", _img(item.image, item.name), tag("figcaption", tag("b", f"{item.distance:.3f}"), item.name))
        for item in found.neighbours
    ]
    return tag("section", tag("h2", found.name), tag("div", query, tag("div", *near, class_="near"), class_="found"))


def _img(image: Image.Image, name: str) -> Html:
    """Pixel art stays sharp, and without loss; what is larger is a photograph."""
    if max(image.size) <= contact.WORDED_SIDE:
        return page.picture(contact.png(image), "png", name, class_="small")
    image.save(content := BytesIO(), format="JPEG", quality=88)
    return page.picture(content.getvalue(), "jpeg", name)
