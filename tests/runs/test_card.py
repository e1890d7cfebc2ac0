"""The card of an encoder says what records say, and what is not known."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

from cfcl.cli import app
from cfcl.config import Config
from cfcl.data import catalogue
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.records import Interval, Setup, Yardstick
from cfcl.runs import baselines, card, cards, folders, suites, yardsticks
from cfcl.runs.card import ClassAccuracy, Facts
from cfcl.runs.suites import Result as Played
from cfcl.sim import world
from cfcl.use import load_encoder
from tests.conftest import check_complaint, small
from tests.runs.conftest import MakeRun, altered


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables by their first cell."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in cells}


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def folder_of(played: Played) -> Path:
    assert played.folder is not None
    return played.folder


def test_a_card_says_what_records_say(make_run: MakeRun) -> None:
    run = make_run(few=True)
    text = card.render(run, Facts((1, 8, 8), 16, 256, "e" * 64, "d" * 64, "MIT"))
    found = rows(text)
    assert text.startswith("# tiny: cfcl-explicit, seed 0\n")
    assert found["takes"] == ["1×8×8 pixels; others are resized"]
    assert "| embedding | 16 numbers, of length 1 |" in text
    assert found["training images"] == ["1,324"]  # 40 + 50 + 1234
    assert found["devices"] == ["3, with 40 to 1,234 images each"]
    assert found["labels per device"] == ["1 to 2"]
    assert found["judged on"] == ["400 test images"]
    # the last of 0, 10, 20 steps: 50 and 150 bytes a step, 40,000 up
    assert [found[key][1] for key in ("push", "pull", "up", "down")] == ["1 kB", "3 kB", "800 kB", "not counted"]
    assert "40 items were pulled by all devices, over 2 exchanges." in text  # 5 on each of 4 links, twice
    assert "the data are under: MIT" in text
    assert "d" * 64 in text


def test_accuracies_by_number_of_labels(make_run: MakeRun) -> None:
    text = section(card.render(make_run(few=True), Facts()), "Accuracy")
    # embedding 0.75 and with three labels 0.5; features 0.875 and 0.625; 1.96 * sqrt(p (1 - p) / 400):
    # 4.2434 at 0.75, 4.9 at 0.5, 3.241 at 0.875, 4.7443 at 0.625; neighbours 0.75 - 0.25, none of features
    assert "| percent | 3/class | all labels | neighbours |" in text
    assert "| embedding | 50.0 ±4.9 | 75.0 ±4.2 | 50.0 |" in text
    assert "| features | 62.5 ±4.7 | 87.5 ±3.2 | – |" in text
    assert "By class: not known: `cfcl card RUN` measures it where the data are." in text
    plain = section(card.render(make_run(folder="plain"), Facts()), "Accuracy")
    assert "| embedding | 75.0 | 50.0 |" in plain  # how many images there are was not recorded


def test_a_card_without_labels(make_run: MakeRun) -> None:
    text = card.render(make_run(labelled=False), Facts())
    assert section(text, "Accuracy").strip() == "Not known: the data have no labels."
    assert "unknown: your own" in text
    assert rows(text)["labels per device"] == ["not known"]
    assert "and for the evaluation" not in text


def test_classes_and_yardsticks_are_shown_where_they_are_known(make_run: MakeRun) -> None:
    stick = Yardstick("raw pixels", 64, {"all": Interval(0.75, 0.5, 0.875)})
    classes = (ClassAccuracy("cat|dog", 3, {"embedding": 2 / 3, "features": 1.0}),)
    text = card.render(make_run(), Facts(yardsticks=(stick,), by_class=classes))
    assert r"| cat\|dog | 3 | 66.7 | 100.0 |" in text
    assert "| raw pixels | 64 | 75.0 ±18.8 |" in text


@pytest.mark.parametrize(
    ("method", "kinds", "there", "absent"),
    [
        ("cfcl-explicit", {"datapoint", "model"}, "**Raw datapoints** went", "**Embeddings**"),
        ("cfcl-implicit", {"embedding", "model"}, "**Embeddings** went to neighbours, and no datapoint", "**Raw"),
        ("cfcl-activations", {"activation", "model"}, "**Activations** of a layer", "**Raw"),
        ("fedavg", {"model"}, "Nothing of a single datapoint went", "went to neighbours"),
        ("centralised", set(), "**All data** are on one device", "**Models**"),
        ("oracle-explicit", {"datapoint"}, "(this method is a yardstick) only", "**Embeddings**"),
    ],
)
def test_what_left_devices_is_told(make_run: MakeRun, method: str, kinds: set[str], there: str, absent: str) -> None:
    if method == "centralised":
        run = make_run("fedavg")
        config = run.config.model_copy(update={"exchange": run.config.exchange.model_copy(update={"method": method})})
        run = replace(run, config=config)
    else:
        run = make_run(method, *(["model.encoder=conv"] if "activations" in method else []))
    source = run.costs[0]
    costs = [replace(source, kind=kind) for kind in sorted(kinds)]
    text = card.render(replace(run, costs=tuple(costs)), Facts())
    assert there in text
    assert absent not in section(text, "Privacy")


def test_old_run_folders_have_a_card(make_run: MakeRun) -> None:
    run = altered(make_run(), Setup, dataset=None, encoder=None, labels=None)
    assert rows(card.render(run, Facts()))["network"] == ["small-cnn"]
    assert rows(card.render(run, Facts()))["name"] == ["digits"]


def test_names_are_words_and_no_markup(make_run: MakeRun) -> None:
    run = altered(make_run(), Setup, dataset="<img src=x> [a](b) | `c`\n# d")
    text = card.render(run, Facts())
    assert r"&lt;img src=x&gt; \[a\](b) \| \`c\` # d" in text


def test_every_run_leaves_its_card(played: Played) -> None:
    run = folders.load(folder_of(played))
    text = (run.folder / "card.md").read_text()
    assert text == card.render(run, cards.facts(run, played.encoder))
    assert played.encoder.digest in text
    assert rows(text)["licence"] == [catalogue.licence("digits")]
    assert "Not measured: `cfcl card RUN --yardsticks` does." in text


def test_accuracies_by_class_are_those_of_the_probe(played: Played) -> None:
    config = played.config
    found = cards.by_class(config, played.encoder, world.data_of(config))
    total = sum(row.num_images for row in found)
    right = sum(row.accuracies["embedding"] * row.num_images for row in found)
    assert [row.name for row in found] == [str(digit) for digit in range(10)]
    assert total == 359
    assert played.evaluations[-1].probe == pytest.approx(right / total, abs=1e-12)


@pytest.mark.parametrize("change", ["exchange.mode=implicit", "exchange.method=fedavg", "exchange.method=bulk"])
def test_runs_of_other_methods_leave_a_card(tmp_path: Path, change: str) -> None:
    run = suites.simulate(small(change, "train.steps=4"), out=tmp_path, workers=1, plotted=False)
    assert "## Privacy" in (folder_of(run) / "card.md").read_text()


def test_a_card_that_fails_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(cards, "facts", fail)
    told: list[str] = []
    run = suites.simulate(small("train.steps=2"), out=tmp_path, workers=1, plotted=False, note=told.append)
    assert told == ["the card could not be written (ZeroDivisionError: odd); all else is there"]
    assert not (folder_of(run) / "card.md").exists()
    assert folders.load(folder_of(run)).config.train.steps == 2


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_command_prints_or_writes(played: Played, tmp_path: Path) -> None:
    folder, out = folder_of(played), tmp_path / "new" / "card.md"
    printed = invoke("card", str(folder))
    assert printed.exit_code == 0, printed.output
    assert len([line for line in section(printed.stdout, "Accuracy").splitlines() if line.startswith("| 9 |")]) == 1
    assert "](config.toml)" in printed.stdout
    assert invoke("card", str(folder), "--out", str(out)).exit_code == 0
    written = out.read_text()
    at = written.split("[config.toml](")[1].split(")")[0]
    assert (out.parent / at).resolve() == (folder / "config.toml").resolve()
    assert written.replace(at, "config.toml") == printed.stdout


def test_yardsticks_are_measured_or_taken_from_a_comparison(played: Played, tmp_path: Path) -> None:
    run = folders.load(folder_of(played))
    assert "| raw pixels | 64 |" in cards.make(run, measured=True)
    moved = replace(run, folder=tmp_path / "comparison" / "run")
    moved.folder.mkdir(parents=True)
    played.encoder.save(moved.folder / "encoder.safetensors")
    origin = played.encoder.origin
    assert origin is not None
    stick = Yardstick("kept", 64, {"all": Interval(0.75, 0.5, 0.875)})
    yardsticks.write(moved.folder.parent / yardsticks.FILE, [stick], key=baselines._key(run.config, origin.data))
    assert "| kept | 64 | 75.0 ±18.8 |" in cards.make(moved)
    yardsticks.write(moved.folder.parent / yardsticks.FILE, [stick], key="another")
    assert "| kept |" not in cards.make(moved)


def handed(seed: int, *, labelled: bool) -> Dataset:
    draws = torch.Generator().manual_seed(seed)
    train, test = (torch.randint(0, 256, (n, 1, 8, 8), dtype=torch.uint8, generator=draws) for n in (60, 20))
    labels = [torch.arange(n) % 10 for n in (60, 20)] if labelled else [None, None]
    return Dataset("digits", train, labels[0], test, labels[1])


def tiny(*more: str) -> Config:
    return small("train.steps=2", "partition.kind=iid", *more)


def test_other_data_than_those_of_training_are_not_judged_on(tmp_path: Path) -> None:
    run = suites.simulate(tiny(), dataset=handed(0, labelled=True), out=tmp_path, workers=1, plotted=False)
    text = cards.make(folders.load(folder_of(run)))
    assert "By class: not known, since the data 'digits' here are not those that the run learned from" in text
    with pytest.raises(CfclError, match="are not those that the run learned from"):
        cards.make(folders.load(folder_of(run)), measured=True)


def test_a_run_without_labels_and_one_around_a_module_of_yours(tmp_path: Path) -> None:
    bare = suites.simulate(tiny(), dataset=handed(0, labelled=False), out=tmp_path, workers=1, plotted=False)
    assert "Not known: the data have no labels." in cards.make(folders.load(folder_of(bare)))
    mine = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    own = suites.simulate(tiny("seed=1"), module=mine, out=tmp_path, workers=1, plotted=False)
    assert rows((folder_of(own) / "card.md").read_text())["network"] == ["Sequential"]
    text = cards.make(folders.load(folder_of(own)))
    assert "module=yours" in text
    assert rows(text)["takes"] == ["not known"]


def test_data_that_are_not_here_are_told(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CFCL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CFCL_CACHE_DIR", str(tmp_path))
    text = cards.make(make_run("cfcl-explicit", "data.dataset=usps", "data.dir=/nowhere"))
    assert "By class: not known, since usps is not on this machine: run \\`cfcl data fetch usps\\`" in text


def test_bad_commands_get_one_line(played: Played, tmp_path: Path) -> None:
    partial, out = tmp_path / "begun.partial", tmp_path / "card.md"
    partial.mkdir()
    (partial / "config.toml").write_text("")
    (tmp_path / "file").write_text("")
    folder = folder_of(played)
    for run, where, parts in (
        (tmp_path / "absent", out, ("absent", "is not a run folder", "`cfcl run`")),
        (folder / "encoder.safetensors", out, ("is not a run folder",)),
        (partial, out, ("begun.partial", "is not finished", "`cfcl resume")),
        (folder, tmp_path / "card.txt", ("card.txt", "does not end in .md")),
        (folder, tmp_path / "file" / "card.md", ("cannot write", "choose another --out")),
    ):
        check_complaint(invoke("card", str(run), "--out", str(where)), *parts)
        assert not out.exists()
    out.write_text("old")
    check_complaint(invoke("card", str(folder), "--out", str(out)), "card.md", "exists already", "--force")
    assert out.read_text() == "old"
    assert invoke("card", str(folder), "--out", str(out), "--force").exit_code == 0


def test_the_same_run_has_the_same_card(tmp_path: Path) -> None:
    texts = [
        (folder_of(suites.simulate(tiny(), out=tmp_path, workers=1, plotted=False)) / "card.md").read_text()
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]
    (first, _) = sorted(tmp_path.iterdir())
    assert load_encoder(first).digest in texts[0]
