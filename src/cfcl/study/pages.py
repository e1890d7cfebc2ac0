"""Pictures, page and tables of a study, as files and in other documents."""

import os
from pathlib import Path
from urllib.parse import quote

from cfcl import reading
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.study import markdown, webpage
from cfcl.study.report import Report


def write(report: Report, folder: Path) -> list[Path]:
    """Write pictures, `README.md` and `report.html` into `folder`, in place of those that are there; their paths.

    `hero.png` is the picture that stands for the study, where it has one.
    """
    files: dict[Path, bytes] = {}
    for item in (item for part in report for item in part.chapters):
        if item.picture:
            drawing = f'<?xml version="1.0" encoding="utf-8"?>\n{item.picture.svg}'
            files |= {folder / f"{item.name}.png": item.picture.png, folder / f"{item.name}.svg": drawing.encode()}
    if hero := report[0].hero:
        files[folder / "hero.png"] = hero.png
    files |= {
        folder / "README.md": markdown.render(report).encode(),
        folder / "report.html": webpage.render(report).encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_atomically(path, content)
    except OSError as error:
        raise CfclError(f"cannot write pages to {str(folder)!r}: {error.strerror}; choose another folder") from None
    return list(files)


def insert_verdicts(report: Report, folder: Path, document: Path) -> None:
    """Put a summary of the newest verdicts, and a link to those in `folder`, where `document` has a place for them."""
    link = quote(os.path.relpath((folder / "README.md").resolve(), document.resolve().parent)) + "#verdicts"
    try:
        text = reading.text(document, limit=reading.LARGEST_BY_HAND)
        write_atomically(document, markdown.insert_verdicts(report[0], text, str(document), link).encode())
    except (OSError, ValueError) as error:
        raise CfclError(f"cannot put verdicts into {str(document)!r}: {error}; name a Markdown file") from None
