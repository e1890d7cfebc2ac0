"""A study as one self-contained page, and the same as Markdown: verdicts first, then each figure with its numbers."""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cfcl import __version__
from cfcl.errors import CfclError
from cfcl.runs import page
from cfcl.runs.page import Html, tag
from cfcl.study import captions, claims
from cfcl.study.bundle import Study
from cfcl.study.captions import Chapter
from cfcl.study.claims import Judgement
from cfcl.study.gallery import Picture

FILES = {
    "cells.csv": "which run stands where in which figure",
    "runs.csv": "what each run is, and its measures that have no curve",
    "evaluations.csv": "accuracies, bytes and seconds of each run, step by step",
    "distances.csv": "distances between labels",
    "selections.csv": "what policies select under one model",
    "study.json": "the profile, notes and milestones",
}
"""What lies beside a report."""
MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")
"""Around a table of verdicts in another document."""
LONG = 16
"""Tables with more rows are folded."""

_VERDICTS = ("Claim", "Verdict", "Sentence", "Tests", "Differences")
_RULE = (
    "A test is supported if the whole 95 % interval of the paired difference over seeds speaks for the claim, and for "
    "the size that it states, if any; otherwise not supported, if the whole interval speaks against it or, where no "
    "size is stated, for a negligible difference at most; undecided in all other cases, and with fewer than three "
    "seeds. A claim is supported if all its tests are, and not supported if one is not: that one may be chance where "
    "there are many, as nothing is corrected for their number. Positive differences speak for the claim."
)


def write(study: Study, drawn: Mapping[str, Picture], folder: Path) -> Path:
    """Write `report.html` and `README.md` into `folder`, in place of those that are there; the path of the page."""
    text, readme = render(study, drawn), markdown(study, drawn)
    path = folder / "report.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        (folder / "README.md").write_text(readme, encoding="utf-8")
    except OSError as error:
        raise CfclError(f"cannot write {str(path)!r}: {error.strerror}; choose another folder") from None
    return path


def render(study: Study, drawn: Mapping[str, Picture]) -> str:
    """The page as text: the same study gives the same page."""
    judgements, chapters = claims.judge(study), captions.chapters(study)
    judged = [("Verdicts", "verdicts")] if verdict_rows(judgements) else []
    anchors = [*judged, *((item.title, item.figure) for item in chapters), ("Files", "files")]
    return page.document(
        _title(study),
        tag("h1", _title(study)),
        tag("p", lead(study, judgements), class_="lead"),
        *(tag("p", note) for note in _notes(study)),
        tag("nav", *(tag("a", name, href=f"#{anchor}") for name, anchor in anchors)),
        _verdicts(judgements),
        *(_chapter(item, drawn.get(item.figure)) for item in chapters),
        _files(study),
    )


def markdown(study: Study, drawn: Mapping[str, Picture]) -> str:
    """The page for a README that lies beside the figures' files."""
    judgements = claims.judge(study)
    parts = [
        f"# {_plain(_title(study))}",
        _plain(lead(study, judgements)),
        *(_plain(note) for note in _notes(study)),
    ]
    if rows := verdict_rows(judgements):
        tests = _markdown_table(claims.DETAILS, claims.details(judgements))
        parts += ["## Verdicts", _plain(_RULE), _markdown_table(_VERDICTS, rows)]
        parts.append(_folded("Every test, claim by claim", tests))
    parts += map(_plain, captions.HOW)
    for item in captions.chapters(study):
        parts += _markdown_chapter(item, item.figure in drawn)
    parts += ["## Files", "\n".join(f"- [{name}]({name}): {what}" for name, what in FILES.items())]
    parts.append(f"Written by cfcl {__version__}.")
    return "\n\n".join(parts) + "\n"


def insert_verdicts(study: Study, text: str, source: str) -> str:
    """`text` with the table of verdicts between the lines of `MARKS`, in place of what stands there."""
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (begin and end):
        raise CfclError(
            f"{source!r} has no place for verdicts: write the lines {MARKS[0]} and {MARKS[1]} where they go"
        )
    judgements = claims.judge(study)
    parts = (_plain(lead(study, judgements)), _markdown_table(_VERDICTS, verdict_rows(judgements)).rstrip())
    return "\n\n".join([before + begin, *parts, end + after])


def lead(study: Study, judgements: Iterable[Judgement]) -> str:
    """The verdicts in a sentence or two, and what is missing."""
    found = list(judgements)
    said = [_count([item for item in found if not item.claim.ours], "of the paper")]
    if not any(item.findings for item in found):
        said = [claims.NONE]
    elif ours := [item for item in found if item.claim.ours]:
        said.append(_count(ours, "about our own variants"))
    runs = {cell.digest for cell in study.cells}
    if lost := len(runs - set(study.runs)):
        said.append(f"{lost} of {len(runs)} runs are missing.")
    return " ".join(said)


def _count(judgements: Sequence[Judgement], what: str) -> str:
    verdicts = [item.verdict for item in judgements]
    idle = sum(not item.findings for item in judgements)
    parts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in (claims.SUPPORTED, claims.NOT_SUPPORTED, claims.UNDECIDED)
    )
    return f"Of {len(verdicts)} claims {what}: {parts}{f' ({idle} not run)' if idle else ''}."


def verdict_rows(judgements: Iterable[Judgement]) -> list[list[str]]:
    """A row a claim that was tried: its name, the verdict, what it says, its tests, how large the differences are."""
    return [
        [item.claim.id, item.verdict, item.claim.says, item.counts, _differences(item)]
        for item in judgements
        if item.findings
    ]


def _differences(judgement: Judgement) -> str:
    kind = claims.load()[0][judgement.claim.measure]
    means = [item.estimate.mean for item in judgement.findings if item.estimate is not None]
    if not means:
        return "–"
    low, high = f"{min(means):+z.{kind.digits}f}", f"{max(means):+z.{kind.digits}f}"
    return f"{low} {kind.unit}" if low == high else f"{low} to {high} {kind.unit}"


def _title(study: Study) -> str:
    return f"What the figures show: profile {study.about['profile']}"


def _notes(study: Study) -> list[str]:
    return [str(note) for note in study.about.get("notes", [])]


def _verdicts(judgements: Sequence[Judgement]) -> Html:
    rows = []
    for claim, verdict, sentence, tests, differences in verdict_rows(judgements):
        size = tag("div", differences, style="white-space: nowrap")
        rows.append([claim, tag("strong", verdict), _wrapped(sentence), tests, size])
    folded = [
        _fold(
            f"Claim {item.claim.id}: {item.counts}",
            page.table(claims.DETAILS[1:], [row[1:] for row in claims.details([item])], words=True),
        )
        for item in judgements
        if item.findings
    ]
    judged = [
        tag("h2", "Verdicts"),
        page.table(_VERDICTS, rows, words=True),
        tag("p", _RULE),
        _fold("Every test, claim by claim", *folded),
    ]
    return tag("section", *(judged if rows else []), *(tag("p", text) for text in captions.HOW), id="verdicts")


def _wrapped(text: str) -> Html:
    return tag("div", text, style="min-width: 16rem; white-space: normal")


def _fold(summary: str, *children: str) -> Html:
    return tag("details", tag("summary", summary), *children)


def _chapter(item: Chapter, drawn: Picture | None) -> Html:
    parts: list[str] = [tag("h2", item.title)]
    if drawn is None:
        parts += [tag("p", item.caption), tag("p", _nothing(item))]
    else:
        parts.append(tag("div", page.figure(_scaled(drawn), item.title, item.caption), class_="wide"))
    if item.table.rows:
        numbers = page.table(item.table.head, item.table.rows)
        long = len(item.table.rows) > LONG
        parts.append(_fold(f"The numbers: {len(item.table.rows)} rows", numbers) if long else numbers)
    if item.missing:
        lines = tag("ul", *(tag("li", line) for line in item.missing))
        parts.append(_fold("Missing runs", lines))
    versions = tag("p", f"Versions: {'; '.join(item.versions) or 'no run, so none'}.")
    return tag("section", *parts, tag("pre", "\n".join(item.commands)), versions, id=item.figure)


def _nothing(item: Chapter) -> str:
    if item.figure == "fig6" and not item.table.rows:
        return "Nothing is drawn: the pilot has not run, so there are no accuracies to reach."
    return "Nothing is drawn: it needs runs that have not finished."


def _scaled(drawn: Picture) -> str:
    """The figure as wide as its page, but never so narrow that its text cannot be read: then it scrolls."""
    limits = f"min-width: {4.6 * drawn.inches:.1f}rem; max-width: {6.5 * drawn.inches:.1f}rem"
    return drawn.svg.replace("<svg ", f'<svg style="{limits}" ', 1)


def _files(study: Study) -> Html:
    rows = [[tag("a", name, href=name), what] for name, what in FILES.items()]
    return tag(
        "section",
        tag("h2", "Files"),
        tag("p", "All of this page is made from the files beside it:"),
        page.table(["File", "What it holds"], rows, words=True),
        tag("p", f"Figures are numbered as in the paper. This page was made by cfcl {__version__}."),
        id="files",
    )


def _markdown_chapter(item: Chapter, drawn: bool) -> list[str]:
    parts = [f"## {_plain(item.title)}"]
    parts += [f"![{_plain(item.title)}]({item.figure}.png)"] if drawn else []
    parts += [_plain(item.caption)] if drawn else [_plain(item.caption), _plain(_nothing(item))]
    if item.table.rows:
        numbers = _markdown_table(item.table.head, item.table.rows)
        long = len(item.table.rows) > LONG
        parts.append(_folded(f"The numbers: {len(item.table.rows)} rows", numbers) if long else numbers)
    if item.missing:
        lines = "\n".join(f"- {_plain(line)}" for line in item.missing)
        parts.append(_folded("Missing runs", lines))
    parts += [f"`{_code(command)}`" for command in item.commands]
    parts.append(f"Versions: {_plain('; '.join(item.versions) or 'no run, so none')}.")
    return parts


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return claims.to_markdown(
        [_plain(cell) for cell in head], [[_plain(cell) for cell in row] for row in rows]
    ).rstrip()


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{_plain(summary)}</summary>\n\n{text}\n\n</details>"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return " ".join(html.escape(text, quote=False).replace("*", "\\*").replace("_", "\\_").split())


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())
