import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from cfcl import config
from cfcl.errors import CfclError
from tests.conftest import small
from tests.strategies import OVERRIDES, TEXT, odd_configs


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


def test_a_method_that_moves_nothing_has_no_mode() -> None:
    with pytest.raises(CfclError, match="method 'fedavg-explicit' has a mode, but fedavg moves nothing"):
        config.with_method(config.load("digits"), "fedavg-explicit")


def test_a_complaint_counts_the_others() -> None:
    with pytest.raises(CfclError, match=r"train\.steps=0 .* \(and 1 more\)"):
        config.build({"train": {"steps": 0, "batch_size": 0}})


def test_paper_variants_lay_their_own_layer_over_the_common_one() -> None:
    ours, literal = config.load("svhn-study"), config.load("svhn-paper")
    assert (ours.train.learning_rate, literal.train.learning_rate) == (1e-3, 1e-4)
    assert (ours.model.standardise, literal.model.standardise) == (True, False)
    assert config.load("usps-paper").train.learning_rate == config.load("usps").train.learning_rate
    assert [name for name in config.presets() if "paper" in name.removesuffix("-paper")] == []


BAD_VALUES: list[tuple[str, str]] = [
    ("train.steps=true", r"train\.steps=True is not allowed: it should be a valid integer"),
    ("train.steps='12'", r"train\.steps='12' is not allowed: it should be a valid integer"),
    ("train.steps=1.5", r"train\.steps=1\.5 is not allowed: it should be a valid integer"),
    ("train.steps=1000001", "it should be less than or equal to 1000000"),
    ("train.steps=" + "9" * 5000, "is not allowed: it should be a valid integer"),
    ("seed=0x" + "f" * 5000, "seed=a value of type int, too large to show, is not allowed"),
    ("seed=9223372036854775808", "it should be less than or equal to 9223372036854775807"),
    ("train.margin=false", r"train\.margin=False is not allowed: it should be a valid number"),
    ("train.margin=1e400", r"train\.margin=inf is not allowed: it should be a finite number"),
    ("train.margin=nan", r"train\.margin=nan is not allowed: it should be a finite number"),
    ("train.margin=1e13", "it should be less than or equal to 1000000000000"),
    ("cost.d2d_mbps=1e-13", r"cost\.d2d_mbps: 1e-13 is so near to 0 that .*: give 1e-12 or more"),
    ("model.embedding_dim=1000000000", "it should be less than or equal to 100000"),
    ("partition.num_devices=1000000000", "it should be less than or equal to 1000000"),
    ("exchange.num_candidates=10000000000", "it should be less than or equal to 1000000000"),
    ("model.grey=1", r"model\.grey is not a known key: did you mean 'data\.grey'\?"),
    ("trian.steps=1", r"trian is not a known key: did you mean 'train'\?"),
    ("steps=1", r"steps is not a known key: did you mean 'train\.steps'\?"),
    ("records.explain=1", r"records\.explain=1 is not allowed: it should be a valid boolean"),
    ('data.dir="a\\u0000b"', "is not a path of up to 4096 characters without control characters"),
    ('data.dir="\\u007f"', "is not a path of up to 4096 characters without control characters"),
    ("data.dir=" + "x" * 5000, "is not a path of up to 4096 characters"),
    ("data.dir=3", r"data\.dir=3 is not allowed"),
    ("name=" + "x" * 101, "at most 100 characters"),
    ("train.steps=1\nbatch_size=3", r"train\.steps='1\\nbatch_size=3' is not allowed"),
    ("train.steps=" + "[" * 3000, "is not allowed"),
]


@pytest.mark.parametrize(("override", "complaint"), BAD_VALUES, ids=[row[0][:40] for row in BAD_VALUES])
def test_values_that_make_no_sense_are_refused_in_one_line(override: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=f"^digits: .*{complaint}") as refused:
        config.load("digits", [override])
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 900


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = " + "[" * 50_000, "is not valid TOML"),
        ("a = " + "{b=" * 5000, "is not valid TOML"),
        ("seed = " + "9" * 5000, "is not valid TOML: Exceeds the limit"),
        ("seed = 1979-99-99", "is not valid TOML"),
        ("#" * 70_000, "is not TOML of up to 65,536 characters"),
        ("train = [1]", "train=.* is not allowed: it should be a valid dictionary"),
        ('"a\\nb" = 1', r"a\\nb is not a known key"),
        ("\0", "is not valid TOML"),
    ],
    ids=["arrays", "tables", "digits", "date", "long", "list", "key", "null"],
)
def test_text_that_would_break_a_reader_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=f"^the text.*{complaint}") as refused:
        config.parse(text)
    assert str(refused.value).isprintable()


def test_what_names_no_run_is_refused() -> None:
    rubbish: list[Any] = [123, None, b"digits", ["digits"]]
    for spec in rubbish:
        with pytest.raises(CfclError, match="names no run: give the name of a preset, or the path of a TOML file"):
            config.load(spec)
    overrides: list[Any] = ["seed=1", 3, None, [3], {"seed": 1}, [["seed=1"]]]
    for some in overrides:
        with pytest.raises(CfclError, match=r"is not a list: write \[|is not of the form section\.key=value"):
            config.load("digits", some)


def test_a_config_put_together_by_hand_is_checked_too() -> None:
    with pytest.raises(CfclError, match=r"^train\.steps=0 is not allowed: .*; change train\.steps \(and 1 more\)$"):
        config.Config(train={"steps": 0, "margin": -1})
    with pytest.raises(CfclError, match=r"^sead is not a known key: did you mean 'seed'"):
        config.Config(sead=1)
    assert config.Config(train=config.TrainConfig(steps=3)).train.steps == 3


def test_a_place_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("#" * 70_000)
    for name in ("pipe", "large", ".", "/dev/zero", "a\0b", "x" * 5000):
        with pytest.raises(CfclError, match=r"cannot read .* as text: .*; give a readable UTF-8 TOML file, or - for"):
            config.load(tmp_path / name)


def test_limits_are_told() -> None:
    told = {f"{section}.{key}": meaning for section, key, _, meaning in config.fields(config.Config())}
    assert told["train.steps"] == "T: updates of every device. [1 to 1e+06]"
    assert told["data.image_size"].endswith("[1 to 4096]")
    assert told["data.test_fraction"].endswith("[above 0 to below 1]")
    bare = [name for name, meaning in told.items() if not meaning.endswith("]")]
    assert bare == [
        ".name",
        "data.dir",
        "data.path",
        "data.grey",
        "partition.disjoint",
        "graph.edges_file",
        "graph.connected",
        "model.standardise",
        "model.normalise",
        "exchange.method",
        "exchange.layer",
        "exchange.budgets_file",
        "exchange.candidates_file",
        "attack.devices",
        "cost.rates_file",
        "cost.charge_broadcast",
        "faults.offline_file",
        "faults.offline_trains",
        "faults.links_file",
        "faults.graphs_file",
        "evaluation.features",
        "evaluation.worst",
        "records.explain",
    ]


def test_one_device_with_all_data_has_no_network_and_so_no_faults() -> None:
    faulty = config.load("digits", ["faults.loss=0.2", "faults.offline_trains=false", "faults.links_file=a.csv"])
    assert faulty.faults.active
    assert config.with_method(faulty, "fedavg").faults == faulty.faults
    assert config.with_method(faulty, "centralised").faults == config.FaultsConfig()
    assert not config.FaultsConfig(offline_trains=False, damaged="values", offline_steps=3).active


@settings(max_examples=200, deadline=None)
@given(odd_configs())
def test_whatever_a_table_holds_it_is_a_config_or_refused(table: dict[str, Any]) -> None:
    with suppress(CfclError):
        found = config.build(table)
        assert config.parse(config.to_toml(found)) == found


@settings(max_examples=200, deadline=None)
@given(OVERRIDES, TEXT)
def test_whatever_overrides_and_text_say_it_is_a_config_or_refused(overrides: list[str], text: str) -> None:
    with suppress(CfclError):
        config.load("digits", overrides)
    with suppress(CfclError):
        config.parse(text, overrides)


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


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("attack.devices=[4]", "attack.devices names device 4, but there are 4, numbered from 0: name one of them"),
        ("attack.devices=5", "attack.devices=5 exceeds partition.num_devices=4: lower it, or add devices"),
        (
            "attack.devices=[1, 1]",
            "attack.devices: [1, 1] is neither a number of devices nor a list of different ones: give 1, or [3, 5]",
        ),
        (
            "attack.devices=one",
            "attack.devices: 'one' is neither a number of devices nor a list of different ones: give 1, or [3, 5]",
        ),
        ("attack.strength=0", "attack.strength=0 is not allowed: it should be greater than 0; change attack.strength"),
        ("defence.share=1.5", "defence.share=1.5 is not allowed: it should be less than or equal to 1; change"),
        ("defence.cap=0", "defence.cap=0 is not allowed: it should be greater than or equal to 1; change defence.cap"),
        ("aggregation.clip=0", "aggregation.clip=0 is not allowed: it should be greater than 0; change"),
    ],
)
def test_hostile_devices_and_defences_are_checked(override: str, complaint: str) -> None:
    with pytest.raises(CfclError) as caught:
        small(override)
    assert str(caught.value).startswith(f"digits-study: {complaint}")


@pytest.mark.parametrize("override", ["attack.devices=1", "defence.cap=3"])
def test_relayed_items_are_nobodys(override: str) -> None:
    with pytest.raises(CfclError, match=r"'relay' passes items on without saying whose they are.*: choose exchange"):
        small(override, "exchange.candidates=relay")


def test_a_list_of_hostile_devices_comes_back_from_toml() -> None:
    found = small("attack.devices=[2, 1]")
    assert found.attack.devices == (2, 1)
    assert config.parse(config.to_toml(found)) == found
    assert small("attack.devices=0", "attack.kind=items-noise").digest == small().digest


@pytest.mark.parametrize(
    "setting", ["attack.devices=[3]", "privacy.never_devices=[3]", "faults.offline=0.3", "defence.cap=1"]
)
def test_nothing_goes_wrong_on_the_way_where_all_data_are_at_one_place(setting: str) -> None:
    alone = config.with_method(config.load("digits", [setting]), "centralised")
    assert alone == config.with_method(config.load("digits"), "centralised")
