import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cfcl import config as configs
from cfcl.config import DataConfig
from cfcl.data import cache, catalogue, datasets
from cfcl.data.catalogue import File, ImageSet
from cfcl.errors import CfclError
from tests.data.conftest import usps_line, write_usps

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def usps(monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    """USPS as if it had three training images and two test images."""
    small = replace(catalogue.SETS["usps"], num_train=3, num_test=2)
    monkeypatch.setitem(catalogue.SETS, "usps", small)
    return small


def put_usps(folder: Path, first: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_usps(folder / "usps.bz2", usps_line(first), usps_line(2, 1.0), usps_line(10))
    write_usps(folder / "usps.t.bz2", usps_line(4), usps_line(5))


def as_published(entry: ImageSet, folder: Path) -> ImageSet:
    def known(file: File) -> File:
        return replace(file, md5=hashlib.md5((folder / file.name).read_bytes()).hexdigest())

    return replace(entry, train=tuple(map(known, entry.train)), test=tuple(map(known, entry.test)))


def test_the_search_goes_from_the_option_to_the_environment_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usps: ImageSet
) -> None:
    option, environment = tmp_path / "option", tmp_path / "environment"
    option.mkdir()
    monkeypatch.setenv("CFCL_DATA_DIR", str(environment))
    assert catalogue.places(option) == [option, environment, cache.folder() / "data"]
    assert [catalogue.home(option), catalogue.home()] == [option, environment]
    assert catalogue.locate(usps, option) is None
    for folder in (cache.folder() / "data" / "usps", environment / "usps", option, option / "usps"):
        put_usps(folder)
        assert catalogue.find(usps, option) == folder


def test_a_set_becomes_a_dataset(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(tmp_path / "usps")

    dataset = datasets.load(DataConfig(dataset="usps", dir=tmp_path))

    assert dataset.name == "usps"
    assert dataset.image_shape == (1, 16, 16)
    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    assert dataset.train_labels.tolist() == [0, 1, 9]
    assert dataset.test_labels.tolist() == [3, 4]
    assert dataset.train_labels.dtype == torch.int64
    assert dataset.train_images.float().mean(dim=(1, 2, 3)).tolist() == [0, 255, 0]
    assert dataset.num_classes == 10


def test_a_replaced_file_is_decoded_anew(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(tmp_path)
    assert catalogue.load(usps, tmp_path)["train_labels"].tolist() == [0, 1, 9]
    put_usps(tmp_path, first=7)
    assert catalogue.load(usps, tmp_path)["train_labels"].tolist() == [6, 1, 9]


def test_two_copies_share_what_was_decoded(tmp_path: Path, usps: ImageSet) -> None:
    for name in ("one", "two"):
        put_usps(tmp_path / name)
        catalogue.load(usps, tmp_path / name)
    assert len(list((cache.folder() / "decoded").iterdir())) == 1


def test_a_copy_that_is_not_the_publishers_is_noted_once(
    tmp_path: Path, usps: ImageSet, capsys: pytest.CaptureFixture[str]
) -> None:
    put_usps(tmp_path)
    for _ in range(2):
        catalogue.load(usps, tmp_path)
    noted = capsys.readouterr()
    assert noted.out == ""
    (line,) = noted.err.splitlines()
    assert line.startswith(f"note: usps.bz2, usps.t.bz2 in {tmp_path}: not with the checksum of the publisher")


def test_a_copy_that_is_the_publishers_is_not_mentioned(
    tmp_path: Path, usps: ImageSet, capsys: pytest.CaptureFixture[str]
) -> None:
    put_usps(tmp_path)
    entry = as_published(usps, tmp_path)
    assert catalogue.altered(entry, tmp_path) == []
    catalogue.load(entry, tmp_path)
    assert capsys.readouterr().err == ""


def test_a_set_with_images_missing_is_refused_and_not_kept(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(tmp_path)
    with pytest.raises(CfclError, match=r"usps\.t\.bz2 holds 2 images, but the test split of usps has 5: run `cfcl"):
        catalogue.load(replace(usps, num_test=5), tmp_path)
    assert not (cache.folder() / "decoded").exists()


def test_an_absent_set_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(CfclError) as caught:
        datasets.load(DataConfig(dataset="svhn", dir=tmp_path))
    assert str(caught.value) == (
        "svhn is not on this machine: run `cfcl data fetch svhn`, or put train_32x32.mat, test_32x32.mat into "
        f"{tmp_path / 'svhn'}"
    )


def test_half_a_set_names_what_is_missing(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(tmp_path / "usps")
    (tmp_path / "usps" / "usps.bz2").unlink()
    with pytest.raises(CfclError, match=r"not complete: .*/usps lacks usps\.bz2; run `cfcl data fetch usps`"):
        catalogue.find(usps, tmp_path)


def test_a_data_dir_that_is_not_there_is_not_ignored(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(cache.folder() / "data" / "usps")
    with pytest.raises(CfclError, match=r"data\.dir='.*absent' is not a folder: make it"):
        catalogue.find(usps, tmp_path / "absent")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_an_unreadable_file_gets_one_line(tmp_path: Path, usps: ImageSet) -> None:
    put_usps(tmp_path)
    (tmp_path / "usps.bz2").chmod(0)
    with pytest.raises(CfclError, match="make it readable"):
        catalogue.load(usps, tmp_path)


def test_an_unknown_set_gets_the_list() -> None:
    with pytest.raises(CfclError, match=r"'mnist' is not a published set .* fashion-mnist, usps, svhn"):
        catalogue.find_set("mnist")


def test_every_entry_is_complete_and_can_be_chosen() -> None:
    for name, entry in catalogue.SETS.items():
        assert entry.name == name == DataConfig.model_validate({"dataset": name}).dataset
        assert entry.base_url.endswith("/")
        assert all(len(file.md5) == 32 and file.num_bytes > 0 for file in entry.files)


def test_where_the_data_lie_does_not_name_the_run() -> None:
    base = configs.load("digits", ["data.dataset=usps"])
    assert configs.override(base, ["data.dir=/a"]).digest == base.digest
    assert configs.override(base, ["data.dataset=svhn"]).digest != base.digest


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"dataset": "folder"}, "dataset='folder' needs the place of your images: set data.path"),
        ({"dataset": "npz"}, "dataset='npz' needs"),
        ({"path": "x"}, "path='x' is for images of your own, but dataset='digits' is not"),
        ({"dataset": "usps", "image_size": 8}, "image_size=8 has no effect on dataset='usps'"),
        ({"dataset": "usps", "grey": True}, "grey=True has no effect .* set data.grey=false"),
        ({"dataset": "usps", "test_fraction": 0.5}, "test_fraction=0.5 has no effect .* set data.test_fraction=0.2"),
        (
            {"dataset": "npz", "path": "x", "layout": "classes"},
            "layout='classes' has no effect .* set data.layout=flat",
        ),
        ({"dataset": "folder", "path": "x", "image_size": 0}, "data.image_size=0 is not allowed"),
        ({"test_fraction": 1.0}, "data.test_fraction=1.0 is not allowed"),
        ({"dataset": "mnist"}, "data.dataset='mnist' is not an option"),
    ],
)
def test_settings_that_do_not_fit_get_one_line(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        configs.build({"data": fields})


REAL_DIR = os.environ.get(catalogue.DATA_DIR)


@pytest.mark.real_data
@pytest.mark.skipif(REAL_DIR is None, reason=f"{catalogue.DATA_DIR} is not set")
@pytest.mark.parametrize("name", ["fashion-mnist", "usps"])
def test_real_sets_load_twice_the_same(name: str) -> None:
    assert REAL_DIR is not None
    entry = catalogue.find_set(name)
    if catalogue.locate(entry, Path(REAL_DIR)) is None:
        pytest.skip(f"{name} is not below {REAL_DIR}")
    first, second = (datasets.load(DataConfig.model_validate({"dataset": name, "dir": REAL_DIR})) for _ in range(2))
    assert len(first.train_images) == entry.num_train
    assert len(first.test_images) == entry.num_test
    assert first.image_shape == entry.image_shape
    assert torch.equal(first.train_images, second.train_images)


@pytest.mark.real_data
@pytest.mark.skipif(REAL_DIR is None, reason=f"{catalogue.DATA_DIR} is not set")
def test_real_fashion_mnist_is_the_publishers() -> None:
    assert REAL_DIR is not None
    entry = catalogue.find_set("fashion-mnist")
    folder = catalogue.locate(entry, Path(REAL_DIR))
    if folder is None:
        pytest.skip(f"fashion-mnist is not below {REAL_DIR}")
    assert catalogue.altered(entry, folder) == []
    assert [(folder / file.name).stat().st_size for file in entry.files] == [file.num_bytes for file in entry.files]


@pytest.mark.real_data
@pytest.mark.skipif(REAL_DIR is None, reason=f"{catalogue.DATA_DIR} is not set")
def test_real_usps_test_file_is_the_publishers() -> None:
    assert REAL_DIR is not None
    entry = catalogue.find_set("usps")
    folder = catalogue.locate(entry, Path(REAL_DIR))
    if folder is None:
        pytest.skip(f"usps is not below {REAL_DIR}")
    assert "usps.t.bz2" not in catalogue.altered(entry, folder)
