import json
from pathlib import Path

import pytest

from cfcl.errors import CfclError
from cfcl.runs import folders
from tests.conftest import small


def test_names_never_collide_whatever_is_there(tmp_path: Path) -> None:
    config = small()
    with folders.Writer(config, tmp_path) as first, folders.Writer(config, tmp_path) as second:
        assert first.partial.is_dir()
        assert second.partial.is_dir()
    with folders.Writer(config, tmp_path) as third:
        pass
    made = [first.folder, second.folder, third.folder]
    assert len(set(made)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(folder.name for folder in made)
    assert folders.claim(tmp_path, first.folder.name).name == f"{first.folder.name}-4"


def test_an_error_leaves_nothing_and_an_interruption_leaves_what_there_was(tmp_path: Path) -> None:
    for error, kept in ((ValueError("no"), 0), (KeyboardInterrupt(), 1)):
        with pytest.raises(type(error)), folders.Writer(small(), tmp_path) as writer:
            writer.row({"kind": "train", "step": 0})
            raise error
        assert len(list(tmp_path.iterdir())) == kept
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith(".partial")
    assert json.loads((folder / "metrics.jsonl").read_text()) == {"kind": "train", "step": 0}
    with pytest.raises(CfclError, match="there is no finished run at or below"):
        folders.find([tmp_path])


def test_not_a_number_is_no_record() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        folders.dump({"loss": float("nan")})


@pytest.mark.parametrize("damage", ["metrics.jsonl", "costs.json"])
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: str) -> None:
    with folders.Writer(small(), tmp_path) as writer:
        writer.row({"kind": "setup"})
        for name in ("costs.json", "timings.json", "environment.json"):
            writer.json(name, [])
    assert folders.load(writer.folder).of("setup") == [{"kind": "setup"}]
    (writer.folder / damage).write_text('{"kind": ')
    with pytest.raises(CfclError, match="cannot be read"):
        folders.load(writer.folder)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CfclError, match="is not a run folder"):
        folders.load(tmp_path)
