"""A study as one self-contained page."""

from cfcl import __version__, page
from cfcl.page import Html, tag
from cfcl.study import captions, claims, report, verdicts
from cfcl.study.captions import Chapter
from cfcl.study.figures.figure import Picture
from cfcl.study.report import Part, Report

_COLOURED = {
    verdicts.MARKS[verdict]: name
    for verdict, name in (
        (verdicts.SUPPORTED, "good"),
        (verdicts.CONTRADICTED, "bad"),
        (verdicts.NO_DIFFERENCE, "even"),
        (verdicts.UNDECIDED, "open"),
        (verdicts.NOT_RUN, "open"),
    )
}
"""Classes of the page's style, by mark."""


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
        *(tag("p", note) for note in report.notes(found)),
        tag("nav", *(tag("a", name, href=f"#{to}") for name, to in (*judged, *chapters, *apart, ("Files", "files")))),
        _verdicts(newest),
        *map(_chapter, newest.chapters),
        *(_older(part) for part in others),
        _files(),
    )


def _anchor(part: Part) -> str:
    return f"verdicts{captions.suffix(part.older)}"


def _older(part: Part) -> Html:
    head = [tag("h1", part.title), tag("p", part.lead, class_="lead")]
    return page.join([*head, _verdicts(part), *map(_chapter, part.chapters)])


def _verdicts(part: Part) -> Html:
    rows = []
    for claim, whose, verdict, sentence, tests, differences, needs in part.rows:
        word = tag("strong", verdict, class_=_COLOURED[verdict[0]])
        rows.append([claim, whose, word, _wrapped(sentence), _wrapped(tests), _wrapped(differences), needs])
    folded = [
        _fold(
            f"Claim {item.claim.id}: {item.counts}",
            page.table(claims.DETAILS[1:], [row[1:] for row in claims.details([item])], words=True),
        )
        for item in part.judgements
        if item.findings
    ]
    judged = [
        tag("h2", "Verdicts"),
        page.table(report.HEAD, rows, words=True),
        tag("p", report.RULE),
        _fold("Every test, claim by claim", *folded),
    ]
    how = [] if part.older else [tag("p", text) for text in captions.HOW]
    return tag("section", *(judged if rows else []), *how, id=_anchor(part))


def _wrapped(text: str) -> Html:
    return tag("div", text, style="min-width: 9rem; white-space: normal")


def _fold(summary: str, *children: str) -> Html:
    return tag("details", tag("summary", summary), *children)


def _chapter(item: Chapter) -> Html:
    parts: list[str] = [tag("h2", item.title)]
    if item.picture is None:
        parts += [tag("p", item.caption), tag("p", item.nothing)]
    else:
        parts.append(tag("div", page.figure(_scaled(item.picture), item.title, item.caption), class_="wide"))
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
    """The figure as wide as its page, but never so narrow that its text cannot be read: then it scrolls."""
    limits = f"min-width: {4.6 * drawn.inches:.1f}rem; max-width: {6.5 * drawn.inches:.1f}rem"
    return drawn.svg.replace("<svg ", f'<svg style="{limits}" ', 1)


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
