from pathlib import Path

import pytest

from cfcl.runs import suites
from cfcl.runs.suites import Result
from tests.conftest import small


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of a second, with its folder; for reading only."""
    return suites.simulate(small(), out=tmp_path_factory.mktemp("played"), workers=1, plotted=False)


@pytest.fixture(scope="session")
def folder(played: Result) -> Path:
    assert played.folder is not None
    return played.folder
