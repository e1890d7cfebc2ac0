"""A study as one self-contained page."""

from cfcl import __version__, page
from cfcl.page import Html, tag
from cfcl.study import captions, claims, report, verdicts
from cfcl.study.captions import Chapter
from cfcl.study.claims import Judgement
from cfcl.study.figures.figure import Picture
from cfcl.study.report import Part, Report

_COLOURS = {verdicts.SUPPORTED: "good", verdicts.CONTRADICTED: "bad", verdicts.NO_DIFFERENCE: "even"}
"""Classes of the page's style; what is open has none of its own."""


def render(found: Report) -> str:
    """The page as text."""
    newest, *others = found
    judged = [("Verdicts", "verdicts")] if newest.rows else []
    chapters = [(item.title, item.name) for item in newest.chapters]
    apart = [(part.title, _anchor(part)) for part in others]
    return page.document(
        newest.title,
        tag("h1", newest.title),
        tag("p", newest.lead, class_="lead"),
        *_hero(newest),
        *(tag("p", note) for note in report.notes(found)),
        *_settings(newest),
        tag("nav", *(tag("a", name, href=f"#{to}") for name, to in (*judged, *chapters, *apart, ("Files", "files")))),
        _verdicts(newest),
        *map(_chapter, newest.chapters),
        *(_older(part) for part in others),
        _files(),
    )


def _hero(part: Part) -> list[Html]:
    """The picture that stands for a study, and where there is more of it."""
    if part.hero is None:
        return []
    more = tag("a", "All settings and numbers", href="#gains")
    return [page.figure(_scaled(part.hero), report.HERO, page.join([f"{report.HERO}. ", more, "."]))]


def _settings(part: Part) -> list[Html]:
    """In which claims are judged."""
    rows = report.settings(part)
    table = page.table(report.SETTINGS, rows, words=True, stacked=True)
    return [_fold("The settings, panel by panel", table)] if rows else []


def _anchor(part: Part) -> str:
    return f"verdicts{captions.suffix(part.older)}"


def _older(part: Part) -> Html:
    head = [tag("h1", part.title), tag("p", part.lead, class_="lead")]
    return page.join([*head, _verdicts(part), *map(_chapter, part.chapters)])


def _verdicts(part: Part) -> Html:
    rows = [
        [*row[:2], _badge(item.verdict), *row[3:], _sources(part, item)]
        for item, row in zip(part.tried, part.rows, strict=True)
    ]
    folded = [
        _fold(
            f"Claim {item.claim.id}: {item.counts}",
            page.table(claims.DETAILS[1:], [_test(row[1:]) for row in claims.details([item])], words=True),
        )
        for item in part.tried
        if item.findings
    ]
    judged = [
        tag("h2", "Verdicts"),
        page.table(report.HEAD, rows, words=True, stacked=True),
        tag("p", report.RULE),
        _fold("Every test, claim by claim", *folded),
    ]
    how = [] if part.older else [tag("p", text) for text in captions.HOW]
    return tag("section", *(judged if rows else []), *how, id=_anchor(part))


def _badge(verdict: str) -> Html:
    """A verdict with its symbol and its colour."""
    return tag("strong", f"{verdicts.MARKS[verdict]} {verdict}", class_=f"verdict {_COLOURS.get(verdict, 'open')}")


def _test(row: list[str]) -> list[str]:
    return [_badge(cell) if name == "verdict" else cell for name, cell in zip(claims.DETAILS[1:], row, strict=True)]


def _sources(part: Part, item: Judgement) -> Html:
    """Where the runs behind a claim are, and what does them; nothing, if there are none."""
    if not item.findings:
        return Html()
    figure = item.claim.figure
    lines = [tag("code", line) for line in part.commands(item)]
    if figure not in part.study.figures:
        return tag("div", *lines)
    chapter = tag("a", figure, href=f"#{figure}{captions.suffix(part.older)}")
    return tag("div", chapter, " in ", tag("a", "cells.csv", href="cells.csv"), *lines)


def _fold(summary: str, *children: str) -> Html:
    return tag("details", tag("summary", summary), *children)


def _chapter(item: Chapter) -> Html:
    parts: list[str] = [tag("h2", item.title)]
    if item.picture is None:
        parts += [tag("p", item.caption), tag("p", item.nothing)]
    else:
        alone = tag("a", "The picture alone", href=f"{item.name}.svg")
        parts.append(page.figure(_scaled(item.picture), item.title, page.join([f"{item.caption} ", alone, "."])))
    if item.table.rows:
        numbers = page.table(item.table.head, item.table.rows)
        long = len(item.table.rows) > report.LONG
        parts.append(_fold(f"The numbers: {len(item.table.rows)} rows", numbers) if long else numbers)
    if item.missing:
        lines = tag("ul", *(tag("li", line) for line in item.missing))
        parts.append(_fold("Missing runs", lines))
    versions = tag("p", f"Versions: {'; '.join(item.versions) or 'no run, so none'}.")
    commands = [tag("pre", "\n".join(item.commands))] if item.commands else []
    return tag("section", *parts, *commands, versions, id=item.name)


def _scaled(drawn: Picture) -> str:
    """The figure as wide as its page, but not larger than it was drawn."""
    return drawn.svg.replace("<svg ", f'<svg style="max-width: {6.5 * drawn.inches:.1f}rem" ', 1)


def _files() -> Html:
    rows = [[tag("a", name, href=name), what] for name, what in report.FILES.items()]
    return tag(
        "section",
        tag("h2", "Files"),
        tag("p", "All of this page is made from the files beside it:"),
        page.table(["File", "What it holds"], rows, words=True),
        tag("p", f"Figures are numbered as in the paper. This page was made by cfcl {__version__}."),
        id="files",
    )
