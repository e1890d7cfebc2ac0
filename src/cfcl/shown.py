"""Text that a person is shown, on a terminal or in a page: it says what it says, and does nothing else."""

import html
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import Task, TextColumn
from rich.status import Status
from rich.text import Text


def visible(text: str, *, keep: str = "") -> str:
    """`text` with Python's escapes for whatever is not printed but obeyed, hidden or impossible to encode.

    That is line breaks, escape sequences, marks that turn the direction of writing, and undecodable bytes in the names
    of files; what is in `keep` stays.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else repr(letter)[1:-1] for letter in text)


def command(*words: str) -> str:
    """A line that a shell takes for these words, whatever is in them."""
    return " ".join(shlex.quote(word) if word.isprintable() else _ansi_quoted(word) for word in words)


def as_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in one line: no link, no code, no mark-up."""
    line = " ".join(visible(text, keep="\n\t").split())
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", html.escape(line, quote=False))


class Markdown(str):
    """Mark-up: everything else is escaped before it enters a table."""

    __slots__ = ()


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of `rows`, in Markdown."""
    plain = [[cell if isinstance(cell, Markdown) else as_markdown(cell) for cell in row] for row in (head, *rows)]
    lines = [plain[0], ["---"] * len(head), *plain[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _ansi_quoted(word: str) -> str:
    """`word` as `$'...'`, byte by byte where it is not printable."""
    letters = (
        f"\\{letter}" if letter in "\\'" else letter if letter.isprintable() else _as_bytes(letter) for letter in word
    )
    return f"$'{''.join(letters)}'"


def _as_bytes(letter: str) -> str:
    # What could not be decoded in the name of a file is the byte itself.
    errors = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in letter.encode(errors=errors))


class Terminal(Console):
    """A console that takes every string for words: no markup, no emoji codes, nothing that a terminal would obey.

    Styles come with `rich.text.Text`, which is for our own words only.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The string as it is shown; also those in tables."""
        return super().render_str(visible(text), **options)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """A line that says what is going on."""
        return super().status(Text(visible(status)) if isinstance(status, str) else status, **options)


class Words(TextColumn):
    """A column of a progress bar that takes every string for words."""

    def render(self, task: Task) -> Text:
        """What the column's format makes of `task`."""
        return Text(visible(self.text_format.format(task=task)))
