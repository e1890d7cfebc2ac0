from pathlib import Path

import pytest

from cfcl.errors import CfclError
from cfcl.study import sweep
from tests.conftest import small

ONE, TWO, BAD = small("train.steps=4"), small("train.steps=4", "seed=1"), small("exchange.budgets_file=absent.csv")


def test_finished_runs_are_found_again_and_not_repeated(tmp_path: Path) -> None:
    store, seen = tmp_path / "runs", []

    with sweep.opened(store):
        first = sweep.look(store, [ONE, ONE, BAD])
        outcomes = sweep.run(first.todo, store, num_workers=1, device="cpu", watch=lambda place, row: None)
    with sweep.opened(store):
        again = sweep.look(store, [TWO, ONE])
        sweep.run(again.todo, store, num_workers=1, device="cpu", watch=lambda place, row: seen.append(row.KIND))

    assert first.todo == [ONE, BAD]
    assert [outcome.folder is None for outcome in outcomes] == [False, True]
    assert again.todo == [TWO]
    assert again.done == {ONE.digest: outcomes[0].folder}
    assert seen.count("done") == 1
    assert sweep.finished(store).keys() == {ONE.digest, TWO.digest}


def test_what_an_interruption_left_is_cleared_away_and_not_taken_for_finished(tmp_path: Path) -> None:
    left = tmp_path / "digits-cfcl-explicit-s0-abcdef.partial"
    left.mkdir()
    (left / "config.toml").write_text("seed = 0\n")
    assert sweep.finished(tmp_path) == {}

    with sweep.opened(tmp_path):
        assert not left.exists()


def test_two_sweeps_do_not_share_a_store(tmp_path: Path) -> None:
    with (
        sweep.opened(tmp_path),
        pytest.raises(CfclError, match="another sweep is using"),
        sweep.opened(tmp_path),
    ):
        pass
    with sweep.opened(tmp_path):  # free again
        pass


def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CfclError, match="cannot write below"), sweep.opened(tmp_path / "file" / "runs"):
        pass
