"""A study as Markdown, for a README that lies beside the figures' files."""

import re

from cfcl import __version__
from cfcl.errors import CfclError
from cfcl.shown import Markdown, markdown_table
from cfcl.shown import as_markdown as _plain
from cfcl.study import captions, claims, report, verdicts
from cfcl.study.captions import Chapter
from cfcl.study.claims import Judgement
from cfcl.study.report import Part, Report

table = markdown_table

_COLOURS = {verdicts.SUPPORTED: "🟦", verdicts.CONTRADICTED: "🟧", verdicts.NO_DIFFERENCE: "🟪"}
"""Colours that colour-blind readers tell apart; what is open is white."""
MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")
"""Around a table of verdicts in another document."""


def render(found: Report) -> str:
    """The page as text."""
    newest, *others = found
    parts = [f"# {_plain(newest.title)}", _plain(newest.lead)]
    parts += [f"![{_plain(report.HERO)}](hero.png)"] if newest.hero else []
    parts += [*map(_plain, report.notes(found)), *_settings(newest), *_verdicts(newest)]
    parts += map(_plain, captions.HOW)
    parts += [text for item in newest.chapters for text in _chapter(item)]
    for part in others:
        parts += [f"# {_plain(part.title)}", _plain(part.lead), *_verdicts(part)]
        parts += [text for item in part.chapters for text in _chapter(item)]
    parts += ["## Files", "\n".join(f"- [{name}]({name}): {what}" for name, what in report.FILES.items())]
    parts.append(f"Written by cfcl {__version__}.")
    return "\n\n".join(parts) + "\n"


def insert_verdicts(part: Part, text: str, source: str, link: str) -> str:
    """`text` with a summary of the verdicts between the lines of `MARKS`, in place of what stands there.

    It has three lines: the paper's claims, ours, and a `link` to the page that has them all.
    """
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (begin and end):
        raise CfclError(
            f"{source!r} has no place for verdicts: write the lines {MARKS[0]} and {MARKS[1]} where they go"
        )
    whole = f"[Every claim with its tests, its runs and its command]({link}). {_plain(part.missing)}".strip()
    lines = "\n".join(f"- {line}" for line in [*map(_plain, part.counts or [claims.NONE]), whole])
    return "\n\n".join([before + begin, lines, end + after])


def _settings(part: Part) -> list[str]:
    """In which claims are judged."""
    rows = report.settings(part)
    return [_folded("The settings, panel by panel", table(report.SETTINGS, rows))] if rows else []


def _verdicts(part: Part) -> list[str]:
    if not part.rows:
        return []
    rows = [
        [*row[:2], _marked(item.verdict), *row[3:], _sources(part, item)]
        for item, row in zip(part.tried, part.rows, strict=True)
    ]
    tests = table(claims.DETAILS, [_test(row) for row in claims.details(part.tried)])
    judged = ["## Verdicts", _plain(report.RULE), table(report.HEAD, rows)]
    return [*judged, _folded("Every test, claim by claim", tests)]


def _marked(verdict: str) -> str:
    """A verdict with its symbol and its colour."""
    return f"{_COLOURS.get(verdict, '⬜')} {verdicts.MARKS[verdict]} {verdict}"


def _test(row: list[str]) -> list[str]:
    return [_marked(cell) if name == "verdict" else cell for name, cell in zip(claims.DETAILS, row, strict=True)]


def _sources(part: Part, item: Judgement) -> Markdown:
    """Where the runs behind a claim are, and what does them; nothing, if there are none."""
    if not item.findings:
        return Markdown()
    figure = item.claim.figure
    lines = [_code(line).replace("|", "\\|") for line in part.commands(item)]
    if figure not in part.study.figures:
        return Markdown(" ".join(lines))
    return Markdown(
        " ".join([f"[{figure}](#{figure}{captions.suffix(part.older)}) in [cells.csv](cells.csv):", *lines])
    )


def _chapter(item: Chapter) -> list[str]:
    parts = [f'<a id="{item.name}"></a>', f"## {_plain(item.title)}"]
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
