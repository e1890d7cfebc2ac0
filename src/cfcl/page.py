"""HTML in one file: no template engine, nothing fetched, and no script but the one that a page is given."""

import hashlib
import html
import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from cfcl.shown import visible

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What a browser may do with a page, whatever got into it: show our styles and pictures, and nothing else."""

STYLE = """
:root { color-scheme: light dark; --line: #d5d8dc; --soft: #f4f5f7; --muted: #5b6470; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4048; --soft: #1d2127; --muted: #a3acb8; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; border-bottom: 2px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
p { max-width: 46rem; margin: .5rem 0; }
.lead { font-size: 1.1rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
.wide { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { background: var(--soft); white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
.words th, .words td { text-align: left; }
.words td:last-child { white-space: normal; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
figure { margin: 0; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; padding: 4px; }
.figures > figure:only-child { grid-column: 1 / -1; max-width: 40rem; }
figcaption { font-size: .875rem; color: var(--muted); margin: .35rem .25rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); border: 1px solid var(--line);
  border-radius: 6px; padding: .75rem; font-size: .8125rem; line-height: 1.45; }
summary { cursor: pointer; margin: .5rem 0; }
.stacked td:first-child, .words.stacked td { white-space: normal; }
.words.stacked td { vertical-align: top; padding: .35rem .5rem; }
td code { display: block; color: var(--muted); font-size: .75rem; overflow-wrap: anywhere; }
@media (min-width: 48rem) { .words.stacked td:last-child { min-width: 17rem; } }
@media (max-width: 48rem) {
  .stacked thead { display: none; }
  .stacked table, .stacked tbody, .stacked tr { display: block; }
  .stacked tr { border-bottom: 2px solid var(--line); padding: .5rem 0; }
  .stacked td { display: grid; grid-template-columns: 6rem minmax(0, 1fr); border: 0; padding: .1rem 0;
    text-align: left; white-space: normal; }
  .stacked td::before { content: attr(data-head); color: var(--muted); }
  .stacked td[data-head=""] { display: block; font-weight: 600; }
  .stacked td:empty { display: none; }
  .stacked td > * { grid-column: 2; justify-self: start; }
}
.verdict { border: 1.5px solid; border-radius: 4px; padding: 0 .4em; white-space: nowrap; font-size: .8125rem; }
.good { color: light-dark(#0a4f9c, #8cc2ff); } .bad { color: light-dark(#a63c00, #ffa06b); }
.even { color: light-dark(#5b3f8c, #c9b3ff); } .open { color: var(--muted); border-style: dashed; }
"""


class Html(str):
    """Markup: everything else is escaped before it enters a page."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str) -> Html:
    """An element; a trailing underscore in an attribute's name is dropped, an inner one becomes a hyphen."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Elements and texts one after another."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False, stacked: bool = False) -> Html:
    """A table that scrolls where it is too wide; numbers stand to the right, `words` to the left.

    One that is `stacked` wraps its words, and on a narrow page puts the cells of a row below each other.
    """
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    cells = (zip(row, head, strict=True) for row in rows)
    body = tag(
        "tbody",
        *(
            tag("tr", *(tag("td", cell, **({"data_head": name} if stacked else {})) for cell, name in row))
            for row in cells
        ),
    )
    return tag("div", tag("table", top, body), class_="wide" + " words" * words + " stacked" * stacked)


def figure(svg: str, title: str, caption: str) -> Html:
    """An inline SVG (our own, so it is not escaped) with its caption; `title` is read out instead of it."""
    named = svg.replace("<svg ", f'<svg role="img" aria-label="{_escaped(title)}" ', 1)
    return tag("figure", Html(named), tag("figcaption", caption))


def picture(content: bytes, kind: str, title: str, **attributes: str) -> Html:
    """A picture, in the page itself; `kind` is png or jpeg, and `title` is read out instead of it."""
    address = f"data:image/{kind};base64,{b64encode(content).decode()}"
    return Html(tag("img", src=address, alt=title, **attributes).removesuffix("</img>"))


def data(value: Any, **attributes: str) -> Html:
    """What a page's script reads: JSON that a browser does not run, whatever is in it."""
    text = json.dumps(value, separators=(",", ":"))  # in ASCII, so that nothing hidden is in it
    return tag("script", Html(text.replace("<", "\\u003c")), type="application/json", **attributes)


def document(title: str, *body: str, style: str = "", script: str = "") -> str:
    """A whole page; of scripts it runs the one that is given, and no other that got into it."""
    policy = POLICY
    if script:
        policy += f"; script-src 'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        body = (*body, tag("script", Html(script)))
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            tag("title", title),
            tag("style", Html(STYLE + style)),
        ]
    )
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', *body), lang='en')}\n"


def _escaped(text: str) -> str:
    return html.escape(visible(text, keep="\n"))
