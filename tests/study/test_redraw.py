"""Drawing a study again is quick: it loads neither torch nor the engine."""

import subprocess
import sys
from pathlib import Path

import pytest

from cfcl.study import bundle, claims
from cfcl.study.bundle import Study
from tests.study import made
from tests.study.conftest import invoke
from tests.study.test_figures import everything

ENGINE = ("torch", "cfcl.sim", "cfcl.device", "cfcl.models", "cfcl.data", "cfcl.core", "cfcl.exchange")


def test_redraw_loads_neither_torch_nor_the_engine(tmp_path: Path) -> None:
    bundle.write(everything(), tmp_path)
    code = (
        "import sys; from cfcl.cli import app; "
        f"app(['redraw', {str(tmp_path)!r}], standalone_mode=False); "
        f"print([name for name in {ENGINE!r} if name in sys.modules])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert (tmp_path / "report.html").is_file()
    assert found.splitlines()[-1] == "[]"


def test_verdicts_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.write(made.study({("fig5", "usps", "fedavg"): [(0.5, 0.5)]}), tmp_path)
    document = tmp_path / "paper.md"
    document.write_text("<!-- verdicts --><!-- /verdicts -->", encoding="utf-8")
    seen, judge = [], claims.judge

    def counted(study: Study) -> list[claims.Judgement]:
        seen.append(study)
        return judge(study)

    monkeypatch.setattr(claims, "judge", counted)

    result = invoke("redraw", str(tmp_path), "--into", str(document))

    assert result.exit_code == 0
    assert len(seen) == 1
