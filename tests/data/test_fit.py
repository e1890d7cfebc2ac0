"""Images of one's own run at the first attempt: what is not set is fitted to them, and told."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import cfcl
from cfcl import config as configs
from cfcl.cli import app
from cfcl.data import fit
from cfcl.errors import CfclError
from cfcl.runs import forecast
from tests.conftest import small

QUICK = ("train.steps=4", "exchange.period=2", "aggregation.period=2", "evaluation.every=9")


def paint(root: Path, names: list[str], *, mode: str = "RGB", sizes: tuple[int, ...] = (8,)) -> Path:
    """Pictures of noise, their sides taken from `sizes` in turn."""
    noise = np.random.default_rng(0)
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        side = sizes[number % len(sizes)]
        shape = (side, side, 3) if mode == "RGB" else (side, side)
        Image.fromarray(noise.integers(0, 256, shape, dtype=np.uint8)).save(root / name)
    return root


def flat(number: int) -> list[str]:
    return [f"{i:03}.png" for i in range(number)]


def grouped(number: int, *names: str) -> list[str]:
    return [f"{names[i % len(names)]}/{i:03}.png" for i in range(number)]


def fitted(path: Path, *overrides: str) -> configs.Config:
    return cfcl.load_config("own", [f"data.path={path}", *overrides])


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def changes(path: Path, *overrides: str) -> dict[str, Any]:
    config = configs.load("own", [f"data.path={path}", *overrides])
    return {change.setting: change.value for change in fit.fit(config)[1]}


def test_sixty_photos_of_three_classes_by_hand(tmp_path: Path) -> None:
    path = paint(tmp_path / "my photos!", grouped(60, "circle", "square", "star"), sizes=(20, 70, 30))
    # 4 of every 20 are for the test, 16 a class remain, 48 in all: 4 devices. Of 2 labels each, 8 shares are dealt to 3
    # classes, so up to 3 devices share one: at least 5 points of each label, 10 on a device.
    assert changes(path) == {
        "name": "my-photos",
        "data.layout": "classes",
        "data.image_size": 32,  # sides are 20, 30 and 70, and half a step goes to the even multiple of 4
        "partition.num_devices": 4,
        "partition.labels_per_device": 2,
        "graph.degree": 3.0,
        "train.batch_size": 10,
        "exchange.num_candidates": 10,
        "exchange.num_reserve": 5,
        "exchange.num_clusters": 5,
        "model.standardise": True,
    }
    # triplets need no other points, and the study has a network for every size
    study = cfcl.load_config("own-study", [f"data.path={path}"])
    assert (study.train.batch_size, study.model.encoder, study.name) == (32, "small-alexnet", "my-photos-study")


def test_a_flat_folder_and_one_of_devices_by_hand(tmp_path: Path) -> None:
    assert changes(paint(tmp_path / "a", flat(30), mode="L")) == {
        "name": "a",
        "data.layout": "flat",
        "data.grey": True,
        "partition.kind": "iid",
        "partition.num_devices": 2,  # of 24
        "graph.degree": 1.0,
        "train.batch_size": 12,
        "exchange.num_candidates": 12,
        "exchange.num_reserve": 6,
        "exchange.num_clusters": 6,
    }
    found = changes(paint(tmp_path / "b", grouped(30, "phone-1", "phone-2", "phone-3")))
    assert (found["data.layout"], found["partition.kind"], found["partition.num_devices"]) == ("devices", "given", 3)
    assert found["exchange.num_candidates"] == 8


@pytest.mark.parametrize(
    ("sizes", "kind", "candidates"),
    [
        # 5 devices of 3 of 6 labels, so up to 3 share one: those of 3, 3 and 4 training images give 1 point each
        ((4, 17, 4, 28, 12, 5), "labels", 3),
        # 7 devices: up to 4 share a label of 3 training images, and with seed 1 they do; 75 images, 10 or 11 on each
        ((4, 23, 28, 21, 4, 13), "iid", 10),
    ],
)
def test_what_is_fitted_holds_for_every_seed(
    tmp_path: Path, sizes: tuple[int, ...], kind: str, candidates: int
) -> None:
    config = fitted(paint(tmp_path, [f"{label}/{i}.png" for label, size in enumerate(sizes) for i in range(size)]))
    assert (config.partition.kind, config.exchange.num_candidates) == (kind, candidates)
    for seed in range(4):  # who holds which changes with the seed
        forecast._checked(configs.override(config, [f"seed={seed}"]), "cpu")


def test_no_class_is_left_out(tmp_path: Path) -> None:
    config = fitted(paint(tmp_path, grouped(200, *(f"class{i:02}" for i in range(40)))))
    assert (config.partition.num_devices, config.partition.labels_per_device) == (10, 4)  # three would hold 30 of 40
    labels = forecast._checked(config, "cpu").setup().labels
    assert labels is not None
    assert set().union(*labels) == set(range(40))


@pytest.mark.parametrize("number", [4, 5, 6, 7, 10, 33])
@pytest.mark.parametrize("folders", [(), ("a", "b", "c"), ("dev1", "dev2")])
def test_few_images_are_enough(tmp_path: Path, number: int, folders: tuple[str, ...]) -> None:
    if number < 7 and "dev1" in folders:
        number = 8
    path = paint(tmp_path, grouped(number, *folders) if folders else flat(number), sizes=(8, 12))
    forecast._checked(fitted(path), "cpu")


@pytest.mark.parametrize("folders", [(), ("cat", "dog"), ("device-1", "device-2", "device-3")])
def test_a_run_keeps_what_was_fitted(tmp_path: Path, folders: tuple[str, ...]) -> None:
    path = paint(tmp_path / "photos", grouped(40, *folders) if folders else flat(40), sizes=(9, 14))
    config = fitted(path, *QUICK)
    result = cfcl.run(config, out=tmp_path / "runs", workers=1, plotted=False)
    assert result.folder is not None
    assert result.folder.name.startswith(f"photos-cfcl-explicit-s0-{config.digest[:6]}")
    written = configs.load(result.folder / "config.toml")
    assert written == config
    assert written.data.layout != "auto"
    assert ("probe" in result.metrics[-1]) == ("cat" in folders)
    # without the preset, the written config gives the same run
    again = cfcl.run(written, workers=1)
    assert again.records == result.records


def test_commands_tell_what_they_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "TIMED_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    paint(tmp_path / "photos", [*grouped(30, "cat", "dog"), "cat/deep/er.png"], sizes=(9, 14))
    (tmp_path / "photos" / "cat" / "readme.txt").write_text("hello")
    options = ["own", "--set", "data.path=photos", *(word for item in QUICK for word in ("--set", item))]
    result = invoke("run", *options, "--dry-run")
    assert result.exit_code == 0, result.output
    told = result.stderr
    assert "note: fitted to photos; --set changes any of it:\n" in told
    assert "data.layout=classes" in told
    assert "2 sub-folders (cat, dog), not called like devices; data.layout=devices takes them as devices, flat " in told
    assert "left out of photos, for they are no images by name or place: cat/readme.txt\n" in told
    assert "no effect" not in told
    assert "photos, cfcl-explicit, seed 0" in result.stdout
    other = invoke("run", *options, "--set", "data.layout=devices", "--dry-run")
    assert "partition.kind=given" in other.stderr
    assert "data.layout" not in other.stderr
    assert invoke("compare", *options, "--methods", "fedavg,cfcl-implicit", "--dry-run").exit_code == 0
    printed = tomllib.loads(invoke("config", *options).stdout)
    assert printed["data"]["layout"] == "classes"
    assert printed["partition"]["num_devices"] == 2
    shown = invoke("data", "show", *options, "--out", "sheet.png")
    assert "photos: 25 training and 6 test images of 3×8×8, 2 labels" in shown.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "sheet.png"]


def test_without_a_path_the_preset_says_what_to_give() -> None:
    for words in (("run", "own"), ("run", "own", "--dry-run"), ("compare", "own"), ("data", "show", "own")):
        result = invoke(*words)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: data.path is not set, but says where your images are: give a folder")
        assert line.endswith("--set data.path=photos")
    assert 'layout = "auto"' in invoke("config", "own").stdout
    assert "own                  Images of your own: give --set data.path=FOLDER" in invoke("presets").stdout


def test_what_the_user_sets_stays(tmp_path: Path) -> None:
    path = paint(tmp_path, grouped(60, "a", "b"), sizes=(9, 14))
    config = fitted(path, "name=own-tests", "partition.num_devices=3", "partition.kind=iid", "data.image_size=6",
                    "exchange.num_candidates=4", "exchange.num_clusters=3", "model.encoder=usps-cnn")  # fmt: skip
    assert config.name == "own-tests"
    assert (config.partition.num_devices, config.partition.kind, config.graph.degree) == (3, "iid", 2.0)
    assert (config.data.image_size, config.model.encoder) == (6, "usps-cnn")
    assert (config.exchange.num_candidates, config.exchange.num_clusters, config.exchange.num_reserve) == (4, 3, 8)


def test_an_npz_file_by_its_suffix(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 12, 3), dtype=np.uint8)
    np.savez(tmp_path / "m i.npz", images=images, labels=np.arange(40) % 4, devices=np.arange(40) % 5)
    config = fitted(tmp_path / "m i.npz", *QUICK)
    assert (config.name, config.data.dataset, config.data.layout) == ("m-i", "npz", "flat")
    assert (config.partition.kind, config.partition.num_devices) == ("given", 5)
    assert (config.data.image_size, config.model.encoder) == (None, "conv")
    assert "probe" in cfcl.run(config, workers=1).metrics[-1]
    np.savez(tmp_path / "b.npz", images=images, test_images=images[:2])
    assert fitted(tmp_path / "b.npz").partition.num_devices == 4  # all 40 are for training


def test_images_that_no_setting_could_fit_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(CfclError, match=r"/a holds 3 images, but a run needs at least 4, two to train on and two for"):
        fitted(paint(tmp_path / "a", flat(3)))
    with pytest.raises(CfclError, match=r"/b/phone-2 holds 1 image, but a device needs at least 2: add some, or remov"):
        fitted(paint(tmp_path / "b", [*grouped(9, "phone-1", "phone-3"), "phone-2/0.png"]))
    with pytest.raises(CfclError, match=r"exchange.method='oracle' looks at the labels .*: give labelled data"):
        cfcl.run(fitted(paint(tmp_path / "c", flat(20)), "exchange.method=oracle"))


def test_one_class_and_names_of_other_scripts(tmp_path: Path) -> None:
    path = paint(tmp_path / "Фото", grouped(20, "only"))
    config = fitted(path, "data.layout=classes")
    assert (config.name, config.partition.kind) == ("own", "iid")
    assert "probe" in cfcl.run(configs.override(config, QUICK), workers=1).metrics[-1]
    literal = cfcl.load_config("own-paper", [f"data.path={path.parent}"])
    assert literal.name == f"{path.parent.name}-paper"
    assert not literal.model.normalise


def test_other_configs_hear_of_all_misfits_at_once(tmp_path: Path) -> None:
    path = paint(tmp_path, flat(100), sizes=(9, 14))
    result = invoke("run", "digits", "--set", "data.dataset=folder", "--set", f"data.path={path}", "--dry-run")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: the settings do not fit the 100 images of {path}: set data.image_size=16 (images have sides of 9 to "
        "14 pixels), partition.kind=iid (there are no labels), train.batch_size=8 (the smallest device has 8 points), "
        "exchange.num_candidates=8 (the smallest device has 8 "
        "points), exchange.num_reserve=4 (the smallest device has 8 points), exchange.num_clusters=4 (the smallest "
        "device has 8 points); or use the preset own, which fits them by itself: cfcl run own --set data.path="
        f"{path}\n"
    )
    told = [word.strip() for word in result.stderr.partition("set ")[2].partition(";")[0].split(",")]
    overrides = [word.partition(" (")[0] for word in told]
    forecast._checked(configs.load("digits", ["data.dataset=folder", f"data.path={path}", *overrides]), "cpu")


def test_settings_that_fit_or_that_nothing_uses_are_no_misfits(tmp_path: Path) -> None:
    path = paint(tmp_path, grouped(100, "device-1", "device-2", "device-3", "device-4"))
    own = ["data.dataset=folder", f"data.path={path}", "data.layout=devices"]
    fit.check(small(*own, "partition.kind=given"))
    fit.check(small(*own, "partition.kind=iid"))
    few = [
        *own,
        "partition.kind=iid",
        "exchange.num_candidates=50",
        "exchange.num_clusters=40",
        "exchange.num_reserve=90",
    ]
    with pytest.raises(
        CfclError, match=r"num_candidates=20 .*num_reserve=10 .*num_clusters=10 .*; or use the preset own"
    ):
        fit.check(small(*few))
    fit.check(small(*few, "exchange.method=fedavg"))
    fit.check(small(*few[:-2], "exchange.method=uniform", "exchange.num_reserve=90"))
