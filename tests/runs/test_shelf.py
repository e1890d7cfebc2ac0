import json
from pathlib import Path

import pytest

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.runs import shelf
from tests.conftest import small


def _folder(store: Path, config: Config, **environment: object) -> Path:
    """What tells a finished run."""
    folder = store / f"run-{len(list(store.glob('*')))}"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(configs.to_toml(config), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    return folder


def test_a_finished_run_is_found_under_the_numerics_it_was_made_under(tmp_path: Path) -> None:
    config = small()
    before, later = _folder(tmp_path, config), _folder(tmp_path, config, numerics=2)

    assert shelf.finished(tmp_path) == {config.digest_under(1): before, config.digest_under(2): later}


def test_a_run_folder_that_lost_a_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (_folder(tmp_path, small()) / "environment.json").unlink()

    with pytest.raises(CfclError, match=r"run-0' cannot be read: .*; remove it, and run it again"):
        shelf.finished(tmp_path)


def test_what_an_interruption_left_stays_and_is_not_taken_for_finished(tmp_path: Path) -> None:
    left = tmp_path / "digits-cfcl-explicit-s0-abcdef.partial"
    left.mkdir()
    (left / "config.toml").write_text("seed = 0\n")
    assert shelf.finished(tmp_path) == {}

    with shelf.opened(tmp_path):
        pass
    assert (left / "config.toml").is_file()


def test_two_studies_do_not_share_a_store(tmp_path: Path) -> None:
    with (
        shelf.opened(tmp_path),
        pytest.raises(CfclError, match="another process is using"),
        shelf.opened(tmp_path),
    ):
        pass
    with shelf.opened(tmp_path):  # free again
        (tmp_path / "run").mkdir()
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["run"]


def test_a_shelf_that_nothing_was_put_on_is_gone(tmp_path: Path) -> None:
    with shelf.opened(tmp_path / "runs"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CfclError, match="cannot write below"), shelf.opened(tmp_path / "file" / "runs"):
        pass
