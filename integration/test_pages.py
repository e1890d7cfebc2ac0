"""Reports in a browser: as wide as a screen and a phone, with nothing that sticks out. A few seconds each."""

from pathlib import Path

import pytest
from tests.study.test_figures import everything

from cfcl.study import pages, report
from integration.conftest import BROWSER, cfcl, run_words, seen

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium, which is not installed")

LOOK = """
<script>
window.addEventListener("load", () => {
  const inner = document.querySelector("iframe").contentDocument, wide = inner.documentElement.clientWidth;
  inner.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  const right = (item) => item.getBoundingClientRect().right;
  const boxed = (item) => item.parentElement.closest(".wide, pre") !== null;
  const shown = [...inner.body.querySelectorAll("*")].filter((item) => !item.closest("svg svg, svg *") && !boxed(item));
  document.body.dataset.seen = JSON.stringify({
    wide,
    page: inner.documentElement.scrollWidth,
    out: shown.filter((item) => right(item) > wide + 1).map((item) => item.outerHTML.slice(0, 120)),
    pictures: inner.querySelectorAll("figure > svg").length,
    stacked: [...inner.querySelectorAll(".stacked")].map((item) => item.scrollWidth - item.clientWidth),
  });
});
</script>
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of runs, as a user makes it, and the page of a study with every figure."""
    root = tmp_path_factory.mktemp("pages")
    assert cfcl(*run_words(root / "runs", "train.steps=10"), "--workers", "1").returncode == 0
    result = cfcl("report", str(root / "runs"), "--out", str(root / "report.html"))
    assert result.returncode == 0, result.stderr
    pages.write(report.compose(everything()), root / "study")
    return {"runs": root / "report.html", "study": root / "study" / "report.html"}


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("kind", ["runs", "study"])
def test_a_report_fits_its_window(files: dict[str, Path], tmp_path: Path, kind: str, width: int) -> None:
    found = seen(files[kind].read_text(encoding="utf-8"), tmp_path, width, LOOK)

    assert found["page"] <= found["wide"] <= width
    assert found["out"] == []
    assert found["pictures"] >= 9
    assert found["stacked"]
    assert set(found["stacked"]) == {0}  # neither the table above all others nor any other of its kind is cut
