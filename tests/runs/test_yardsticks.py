from pathlib import Path

import pytest

from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.records import Interval, Yardstick
from cfcl.runs import baselines, yardsticks
from cfcl.sim import baselines as computing
from tests.conftest import small

ROWS = (
    Yardstick("raw pixels", 64, {"all": Interval(0.75, 0.5, 0.875), "10": Interval(0.5, 0.25, 0.625)}),
    Yardstick("untrained, block1", 32, {"all": Interval(0.625, 0.5, 0.75)}, "averaged over 2×2"),
)


def test_yardsticks_come_back_from_their_file(tmp_path: Path) -> None:
    assert yardsticks.find(tmp_path) == ("", ())
    yardsticks.write(tmp_path / "new" / yardsticks.FILE, ROWS, key="abc")
    assert yardsticks.find(tmp_path / "new") == ("abc", ROWS)
    assert ROWS[0].accuracies["all"].reach == 0.1875


def test_yardsticks_as_a_table_for_others(tmp_path: Path) -> None:
    yardsticks.write(tmp_path / "rows.csv", ROWS)
    assert (tmp_path / "rows.csv").read_text() == (
        "name,dim,labels_per_class,accuracy,low,high,note\n"
        "raw pixels,64,all,0.75,0.5,0.875,\n"
        "raw pixels,64,10,0.5,0.25,0.625,\n"
        '"untrained, block1",32,all,0.625,0.5,0.75,averaged over 2×2\n'
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"key": "a"}', '{"key": "a", "rows": [{"name": "x"}]}'])
def test_a_file_that_holds_no_yardsticks_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / yardsticks.FILE).write_text(text)
    with pytest.raises(CfclError, match=r"baselines\.json' cannot be read .*: remove it, and compare again"):
        yardsticks.find(tmp_path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CfclError, match=r"cannot write .*choose another --out"):
        yardsticks.write(tmp_path / "file" / "rows.json", ROWS)


def test_a_comparison_computes_its_yardsticks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Config] = []

    def compute(config: Config, *rest: object, **more: object) -> tuple[Yardstick, ...]:
        asked.append(config)
        return ROWS[: len(asked)]

    monkeypatch.setattr(computing, "compute", compute)
    few = small("evaluation.labels_per_class=[10]")
    assert baselines.kept(small(), tmp_path) == ()  # nobody asked for few labels
    assert baselines.kept(few, tmp_path) == ROWS[:1]
    assert baselines.kept(few, tmp_path) == ROWS[:1]
    assert asked == [few]
    # what they do not depend on changes nothing
    assert baselines.kept(small("evaluation.labels_per_class=[10]", "train.steps=7"), tmp_path) == ROWS[:1]
    assert baselines.kept(small("evaluation.labels_per_class=[10]", "seed=1"), tmp_path) == ROWS
    assert len(asked) == 2
    (tmp_path / yardsticks.FILE).write_text("damaged")
    baselines.kept(few, tmp_path)
    baselines.kept(small("evaluation.labels_per_class=[10, 11]"), tmp_path)
    baselines.kept(small("evaluation.labels_per_class=[10, 11]", "data.validation=0.1"), tmp_path)
    baselines.kept(small("evaluation.labels_per_class=[10, 11]", "model.embedding_dim=3"), tmp_path)
    assert len(asked) == 6
