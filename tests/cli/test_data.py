import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from cfcl.cli import app, terminal
from cfcl.config import DataConfig
from cfcl.data import catalogue, datasets, notes, saving
from cfcl.data.catalogue import File, ImageSet
from cfcl.data.splits import Dataset
from tests.conftest import SMALL
from tests.data.conftest import usps_line, write_usps
from tests.data.test_fetch import BODY, OTHER, serving

SETS = [word for item in SMALL for word in ("--set", item)]


@pytest.fixture(autouse=True)
def _private(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFCL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("CFCL_DATA_DIR", raising=False)
    monkeypatch.setattr(notes, "_said", set())
    monkeypatch.setattr(terminal.console, "width", 200)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", *arguments])


def complaint(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def usps(monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    """USPS as if it had forty training images and ten test images."""
    small = replace(catalogue.SETS["usps"], num_train=40, num_test=10)
    monkeypatch.setitem(catalogue.SETS, "usps", small)
    return small


def put_usps(folder: Path) -> None:
    folder.mkdir(parents=True)
    write_usps(folder / "usps.bz2", *(usps_line(1 + i % 10, i / 40) for i in range(40)))
    write_usps(folder / "usps.t.bz2", *(usps_line(1 + i, -i / 40) for i in range(10)))


def listed(folder: Path) -> dict[str, str]:
    lines = invoke("list", "--data-dir", str(folder)).stdout.splitlines()
    assert f"usps is in {folder / 'usps'}" in lines
    return {line.split()[0]: line for line in lines if " is in " not in line}


def test_the_list_says_what_is_here_and_whether_it_is_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usps: ImageSet
) -> None:
    put_usps(tmp_path / "usps")
    rows = listed(tmp_path)
    assert "60,000 / 10,000" in rows["fashion-mnist"]
    assert "1×28×28" in rows["fashion-mnist"]
    assert "30.9" in rows["fashion-mnist"]  # 26,421,880 + 29,515 + 4,422,102 + 5,148 bytes
    assert "not here" in rows["fashion-mnist"]
    assert "MIT" in rows["fashion-mnist"]
    assert "not as published" in rows["usps"]
    assert "non-commercial" in rows["svhn"]
    assert "scikit-learn" in rows["digits"]
    known = [replace(f, md5=hashlib.md5((tmp_path / "usps" / f.name).read_bytes()).hexdigest()) for f in usps.files]
    monkeypatch.setitem(catalogue.SETS, "usps", replace(usps, train=(known[0],), test=(known[1],)))
    rows = listed(tmp_path)
    assert "as published" in rows["usps"]
    assert "not as published" not in rows["usps"]


def test_fetch_puts_a_set_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [File(name, len(body), hashlib.md5(body).hexdigest()) for name, body in (("big", BODY), ("small", OTHER))]
    with serving() as server:
        entry = replace(catalogue.SETS["svhn"], base_url=server.url, train=(files[0],), test=(files[1],))
        monkeypatch.setitem(catalogue.SETS, "svhn", entry)
        for fetched in (2, 0):
            result = invoke("fetch", "svhn", "--data-dir", str(tmp_path))
            assert result.exit_code == 0, result.output
            assert f"svhn: {fetched} of 2 files fetched, all as published, in {tmp_path / 'svhn'}" in result.stdout
            assert "non-commercial" in result.stdout
        assert len(server.requests) == 2
        server.moods = ["404"]
        assert "answers HTTP 404" in complaint(invoke("fetch", "svhn", "--data-dir", str(tmp_path / "other")))
    assert catalogue.locate(entry, tmp_path) == tmp_path / "svhn"


def test_fetch_of_an_unknown_set_gets_one_line() -> None:
    assert "'mnist' is not a published set" in complaint(invoke("fetch", "mnist"))


def test_show_writes_a_sheet_once(tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    result = invoke("show", "digits", "--out", str(out))
    assert "digits: 1,438 training and 359 test images of 1×8×8, 10 labels. Contact sheet: " in result.stdout
    with Image.open(out) as picture:
        assert picture.size == (36 + 10 * 60, 4 + 10 * 60)  # 8 pixels seven times as large, and a gap of 4
    before = out.read_bytes()
    assert "exists already: give --force" in complaint(invoke("show", "digits", "--out", str(out)))
    assert out.read_bytes() == before
    assert invoke("show", "digits", "--out", str(out), "--force").exit_code == 0


def test_show_takes_images_of_your_own_and_whole_configs(tmp_path: Path) -> None:
    for i in range(10):
        Image.new("L", (5, 5), i).save(tmp_path / f"{i}.png")
    out = ("--out", str(tmp_path / "sheets" / "own.png"))
    result = invoke("show", "folder", "--set", f"data.path={tmp_path}", *out)
    assert "8 training and 2 test images of 3×5×5, no labels" in result.stdout
    (tmp_path / "mine.toml").write_text('name = "mine"')
    assert "digits: 1,438 training" in invoke("show", str(tmp_path / "mine.toml"), *out, "--force").stdout
    assert "set data.path" in complaint(invoke("show", "folder", *out, "--force"))
    assert "neither a preset nor a file" in complaint(invoke("show", "nothing", *out, "--force"))
    assert "cfcl data fetch svhn" in complaint(invoke("show", "svhn", *out, "--force"))


def test_runs_find_their_data_by_the_option_and_pass_it_on(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(tmp_path / "7" / "usps")
    out = tmp_path / "runs"
    common = ["--set", "data.dataset=usps", "--set", "train.steps=2", "--set", "exchange.num_candidates=3"]
    options = [*SETS, *common, "--data-dir", str(tmp_path / "7"), "--out", str(out)]
    result = CliRunner().invoke(app, ["run", "digits", *options])
    assert result.exit_code == 0, result.output
    assert "note: usps.bz2, usps.t.bz2 in " in result.stderr
    (folder,) = out.iterdir()
    written = tomllib.loads((folder / "config.toml").read_text())["data"]
    assert (written["dataset"], written["dir"]) == ("usps", str(tmp_path / "7"))
    missing = CliRunner().invoke(app, ["compare", "digits", *SETS, *common, "--out", str(tmp_path / "none")])
    assert "run `cfcl data fetch usps`, or put usps.bz2, usps.t.bz2 into " in complaint(missing)
    assert not (tmp_path / "none").exists()


def test_help_teaches() -> None:
    for command in ("list", "fetch", "show"):
        assert command in invoke("--help").output
        assert "Example" in invoke(command, "--help").output


def test_a_dataset_becomes_a_folder_of_pictures(tmp_path: Path) -> None:
    result = invoke("save", "digits", "--out", str(tmp_path / "new" / "photos"))
    assert (result.exit_code, "359 pictures" in result.stdout) == (0, True)
    folder = tmp_path / "new" / "photos"
    assert sorted(path.name for path in folder.iterdir()) == [f"{place:03}.png" for place in range(359)] + [
        "labels.csv"
    ]
    digits = datasets.load(DataConfig())
    assert digits.test_labels is not None
    with Image.open(folder / "007.png") as image:
        assert np.array_equal(np.asarray(image), digits.test_images[7, 0].numpy())
    lines = (folder / "labels.csv").read_text().splitlines()
    assert (lines[0], lines[8]) == ("name,label", f"007.png,{int(digits.test_labels[7])}")
    assert invoke("save", "digits", "--split", "train", "--out", str(tmp_path / "train")).exit_code == 0
    assert len(list((tmp_path / "train").glob("*.png"))) == 1438


def test_a_folder_that_is_there_or_cannot_be_is_left_alone(tmp_path: Path) -> None:
    assert "exists already" in complaint(invoke("save", "digits", "--out", str(tmp_path)))
    (tmp_path / "file").write_text("")
    assert "cannot write" in complaint(invoke("save", "digits", "--out", str(tmp_path / "file" / "photos")))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_names_of_classes_are_written_as_any_table_has_them(tmp_path: Path) -> None:
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    labels = torch.tensor([1, 0])
    dataset = Dataset("mine", images, None, images, labels, classes=('a "b", c', "d"))
    saving.save(dataset, "test", tmp_path / "x")
    assert (tmp_path / "x" / "labels.csv").read_text() == 'name,label\n0.png,d\n1.png,"a ""b"", c"\n'
    saving.save(dataset, "train", tmp_path / "y")
    assert sorted(path.name for path in (tmp_path / "y").iterdir()) == ["0.png", "1.png"]
