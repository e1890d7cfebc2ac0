"""Pictures, page and tables of a study, as files and in other documents."""

from pathlib import Path

from cfcl.errors import CfclError
from cfcl.study import gallery, markdown, webpage
from cfcl.study.report import Report


def write(report: Report, folder: Path) -> Path:
    """Write pictures, `report.html` and `README.md` into `folder`, in place of those there; the path of the page."""
    gallery.save({item.name: item.picture for part in report for item in part.chapters if item.picture}, folder)
    path = folder / "report.html"
    try:
        path.write_text(webpage.render(report), encoding="utf-8")
        (folder / "README.md").write_text(markdown.render(report), encoding="utf-8")
    except OSError as error:
        raise CfclError(f"cannot write {str(path)!r}: {error.strerror}; choose another folder") from None
    return path


def insert_verdicts(report: Report, document: Path) -> None:
    """Put the newest verdicts where `document` has a place for them."""
    try:
        text = document.read_text(encoding="utf-8")
        document.write_text(markdown.insert_verdicts(report[0], text, str(document)), encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise CfclError(f"cannot put verdicts into {str(document)!r}: {error}; name a Markdown file") from None
