from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cfcl.cli import app
from cfcl.study import selections
from cfcl.study.profiles import PROFILES, Panel

TINY = replace(PROFILES["smoke"], panels={"digits": Panel("digits", interval=10, steps=30)})


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="session")
def _done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "smoke", TINY)
        result = invoke("reproduce", "fig4", "--out", str(out))
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def tiny(_done: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of figure 4, thirty steps per run; two policies select where one asks for figure 7."""
    monkeypatch.setitem(PROFILES, "smoke", TINY)
    monkeypatch.setattr(selections, "SELECTING", ("uniform-explicit", "cfcl-implicit"))
    return _done
