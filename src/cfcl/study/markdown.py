"""A study as Markdown, for a README that lies beside the figures' files."""

import re

from cfcl import __version__
from cfcl.errors import CfclError
from cfcl.shown import as_markdown as _plain
from cfcl.shown import markdown_table
from cfcl.study import captions, claims, report
from cfcl.study.captions import Chapter
from cfcl.study.report import Part, Report

table = markdown_table

MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")
"""Around a table of verdicts in another document."""


def render(found: Report) -> str:
    """The page as text."""
    newest, *others = found
    parts = [f"# {_plain(newest.title)}", _plain(newest.lead), *map(_plain, report.notes(found)), *_verdicts(newest)]
    parts += map(_plain, captions.HOW)
    parts += [text for item in newest.chapters for text in _chapter(item)]
    for part in others:
        parts += [f"# {_plain(part.title)}", _plain(part.lead), *_verdicts(part)]
        parts += [text for item in part.chapters for text in _chapter(item)]
    parts += ["## Files", "\n".join(f"- [{name}]({name}): {what}" for name, what in report.FILES.items())]
    parts.append(f"Written by cfcl {__version__}.")
    return "\n\n".join(parts) + "\n"


def insert_verdicts(part: Part, text: str, source: str) -> str:
    """`text` with the table of verdicts between the lines of `MARKS`, in place of what stands there."""
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (begin and end):
        raise CfclError(
            f"{source!r} has no place for verdicts: write the lines {MARKS[0]} and {MARKS[1]} where they go"
        )
    return "\n\n".join([before + begin, _plain(part.lead), table(report.HEAD, part.rows), end + after])


def _verdicts(part: Part) -> list[str]:
    if not part.rows:
        return []
    tests = table(claims.DETAILS, claims.details(part.judgements))
    judged = ["## Verdicts", _plain(report.RULE), table(report.HEAD, part.rows)]
    return [*judged, _folded("Every test, claim by claim", tests)]


def _chapter(item: Chapter) -> list[str]:
    parts = [f"## {_plain(item.title)}"]
    parts += [f"![{_plain(item.title)}]({item.name}.png)"] if item.picture else []
    parts += [_plain(item.caption)] if item.picture else [_plain(item.caption), _plain(item.nothing)]
    if item.table.rows:
        numbers = table(item.table.head, item.table.rows)
        long = len(item.table.rows) > report.LONG
        parts.append(_folded(f"The numbers: {len(item.table.rows)} rows", numbers) if long else numbers)
    if item.missing:
        lines = "\n".join(f"- {_plain(line)}" for line in item.missing)
        parts.append(_folded("Missing runs", lines))
    parts += [_code(command) for command in item.commands]
    parts.append(f"Versions: {_plain('; '.join(item.versions) or 'no run, so none')}.")
    return parts


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{_plain(summary)}</summary>\n\n{text}\n\n</details>"


def _code(text: str) -> str:
    """Printable text as code, between more backticks than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"
