"""Drawing a study again is quick: it loads neither torch nor the engine."""

import subprocess
import sys
from pathlib import Path

from cfcl.study import bundle
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
