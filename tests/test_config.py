import tomllib
from pathlib import Path

import pytest

from cfcl import config
from cfcl.errors import CfclError


def test_every_preset_loads_and_describes_itself() -> None:
    for name, description in config.presets().items():
        assert config.load(name).name
        assert description.endswith(".")


def test_the_printed_config_reads_back_as_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for explain in (False, True):
        original = config.load("digits", ["exchange.stop=90", 'graph.edges_file=a "b"/c.txt', "cost.rates_file=none"])
        file.write_text(config.to_toml(original, explain=explain))
        assert config.load(file) == original


def test_the_explained_config_names_every_field_with_its_meaning() -> None:
    text = config.to_toml(config.load("digits"), explain=True)
    for section, key, _, meaning in config.fields(config.Config()):
        assert len(meaning) > 10, f"{section}.{key} has no meaning"
        assert f"# {meaning}" in text
        assert f"{key} = " in text
    assert set(tomllib.loads(text)) >= {"data", "partition", "graph", "train", "exchange", "cost", "evaluation"}


def test_overrides_reach_their_field_and_win_over_the_file() -> None:
    found = config.load(
        "digits", ["seed=7", "exchange.mode=implicit", "train.learning_rate=0.01", "model.normalise=false"]
    )
    assert (found.seed, found.exchange.mode, found.train.learning_rate, found.model.normalise) == (
        7,
        "implicit",
        0.01,
        False,
    )


def test_none_unsets_an_optional_field() -> None:
    once = config.load("digits", ["exchange.stop=10"])
    assert config.override(once, ["exchange.stop=none"]).exchange.stop is None


def test_the_digest_names_the_content() -> None:
    first, second = config.load("digits"), config.load("digits", ["seed=1"])
    assert first.digest == config.load("digits").digest
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("word", "method", "mode"),
    [("fedavg", "fedavg", "explicit"), ("cfcl-implicit", "cfcl", "implicit"), ("bulk-explicit", "bulk", "explicit")],
)
def test_a_method_word_changes_method_and_mode_only(word: str, method: str, mode: str) -> None:
    base = config.load("digits")
    found = config.with_method(base, word)
    assert (found.exchange.method, found.exchange.mode, found.method) == (method, mode, word)
    assert found.train == base.train


def test_a_complaint_counts_the_others() -> None:
    with pytest.raises(CfclError, match=r"train\.steps=0 .* \(and 1 more\)"):
        config.build({"train": {"steps": 0, "batch_size": 0}})


def test_paper_variants_lay_their_own_layer_over_the_common_one() -> None:
    ours, literal = config.load("svhn"), config.load("svhn-paper")
    assert (ours.train.learning_rate, literal.train.learning_rate) == (1e-3, 1e-4)
    assert (ours.model.standardise, literal.model.standardise) == (True, False)
    assert config.load("usps-paper").train.learning_rate == config.load("usps").train.learning_rate
    assert [name for name in config.presets() if "paper" in name.removesuffix("-paper")] == []


def test_lists_come_from_overrides_and_go_to_toml() -> None:
    found = config.load("digits", ["model.widths=[32, 64,128]", "model.head=[]"])
    assert (found.model.widths, found.model.head) == ((32, 64, 128), ())
    text = config.to_toml(found)
    assert "widths = [32, 64, 128]\n" in text
    assert "head = []\n" in text
    assert config.parse(text) == found
    assert hash(found) == hash(config.parse(text))
    assert config.load("digits", ["model.widths=[24, 48, 64]"]).digest == config.load("digits").digest
    with pytest.raises(CfclError, match=r"model\.widths='32,64' .* a list in brackets, such as \[1, 10\]"):
        config.load("digits", ["model.widths=32,64"])
    with pytest.raises(CfclError, match=r"model\.widths\.1=0 is not allowed"):
        config.load("digits", ["model.widths=[1, 0]"])
