"""The pages that stay are in short sentences and plain words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "study").glob("*.md")])
LONGEST = 59
NOT_PLAIN = r"\b(mend\w*|dearer|dearest|dear|client|peer)\b|does not show|a row a "


def paragraphs(text: str) -> list[str]:
    """Prose without code, tables, headings and comments; every item of a list is a paragraph."""
    text = re.sub(
        r"^```.*?^```|<!-- verdicts -->.*<!-- /verdicts -->|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE
    )
    lines = ["" if line.startswith(("|", "#", "![", "      ")) else line for line in text.splitlines()]
    text = re.sub(r"^ *- ", "\n", "\n".join(lines), flags=re.MULTILINE)
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def sentences(text: str) -> list[str]:
    """Sentences of all paragraphs; what stands in backquotes or is a link's address is one word."""
    plain = [re.sub(r"`[^`]*`", "Code", re.sub(r"\]\([^)]*\)", "]", part)) for part in paragraphs(text)]
    return [found for part in plain for found in re.split(r"(?<=[.!?:])(?:\*\*|\))? +(?=[\"(*]*[A-Z])", part)]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_sentences_are_short(page: Path) -> None:
    long = [found for found in sentences(page.read_text()) if len(found.split()) > LONGEST]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_words_are_plain(page: Path) -> None:
    prose = " ".join(re.sub(r"`[^`]*`", "", part) for part in paragraphs(page.read_text()))
    assert [found[0] for found in re.finditer(NOT_PLAIN, prose)] == []


def test_sentences_are_found() -> None:
    text = "# Title\n\nOne two. Three `a b c` four:\nfive!\n\n- Six [seven](a b).\n- Eight\n\n| x | y |\n"
    assert sentences(text) == ["One two.", "Three Code four: five!", "Six [seven].", "Eight"]
