from pathlib import Path

import pytest

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.records import Interval, Yardstick
from cfcl.runs import baselines, suites, yardsticks
from cfcl.sim import baselines as computing
from cfcl.use import TrainedEncoder
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
    assert baselines.kept(small("evaluation.labels_per_class=[10]", "exchange.mode=implicit"), tmp_path) == ROWS[:1]
    assert baselines.kept(configs.with_method(few, "fedavg"), tmp_path) == ROWS[:1]
    assert baselines.kept(small("evaluation.labels_per_class=[10]", "seed=1"), tmp_path) == ROWS
    assert len(asked) == 2
    (tmp_path / yardsticks.FILE).write_text("damaged")
    baselines.kept(few, tmp_path)
    baselines.kept(small("evaluation.labels_per_class=[10, 11]"), tmp_path)
    baselines.kept(small("evaluation.labels_per_class=[10, 11]", "data.validation=0.1"), tmp_path)
    baselines.kept(small("evaluation.labels_per_class=[10, 11]", "model.embedding_dim=3"), tmp_path)
    assert len(asked) == 6


def test_the_centralised_model_sees_as_many_images_as_all_devices_together() -> None:
    config = small("train.steps=7", "exchange.mode=implicit", "aggregation.num_devices=2")
    alone = baselines.centralised(config)
    assert (alone.method, alone.partition.num_devices, alone.train.batch_size) == (
        "centralised",
        1,
        config.train.batch_size,
    )
    assert alone.train.steps == 7 * config.partition.num_devices
    assert alone == baselines.centralised(configs.with_method(config, "fedavg"))


def test_a_comparison_has_the_centralised_model_once_it_was_trained(tmp_path: Path) -> None:
    few = small("evaluation.labels_per_class=[2]", "evaluation.max_train=100", "train.steps=2")
    asked: list[Config] = []

    def train(config: Config) -> TrainedEncoder:
        asked.append(config)
        return suites.simulate(config, workers=1).encoder

    without = baselines.kept(few, tmp_path)
    found = baselines.kept(few, tmp_path, train=train)
    assert found[: len(without)] == without
    assert [row.name for row in found[len(without) :]] == ["centralised, features", "centralised, embedding"]
    assert found[-1].dim == few.model.embedding_dim
    assert baselines.kept(few, tmp_path, train=train) == baselines.kept(few, tmp_path) == found
    assert asked == [baselines.centralised(few)]
