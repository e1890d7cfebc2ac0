from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset

import cfcl
from cfcl import config as configs
from cfcl.config import DataConfig
from cfcl.data import datasets, limits, splits
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from tests.conftest import small


def paint(path: Path, colour: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (6, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def folder(path: Path, **fields: Any) -> Dataset:
    return datasets.load(DataConfig(dataset="folder", path=path, **fields))


def npz(path: Path, arrays: dict[str, Any], **fields: Any) -> Dataset:
    np.savez(path / "mine.npz", **arrays)
    return datasets.load(DataConfig(dataset="npz", path=path / "mine.npz", **fields))


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for number in range(10):
        paint(tmp_path / f"{number}.png", (number, 0, 0))

    dataset = folder(tmp_path)

    assert dataset.image_shape == (3, 4, 6)
    assert (dataset.train_labels, dataset.test_labels, dataset.train_devices) == (None, None, None)
    assert dataset.num_classes == 0
    # of a fifth, the third of every five
    assert dataset.test_images[:, 0, 0, 0].tolist() == [2, 7]
    assert dataset.train_images[:, 0, 0, 0].tolist() == [0, 1, 3, 4, 5, 6, 8, 9]


def test_sub_folders_are_classes_in_order_of_their_names(tmp_path: Path) -> None:
    for name, number in (("dog", 5), ("cat", 10)):
        for i in range(number):
            paint(tmp_path / name / f"{i}.bmp", (number, i, 0))

    dataset = folder(tmp_path, layout="classes")

    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    assert dataset.train_labels.tolist() == [0] * 8 + [1] * 4
    assert dataset.test_labels.tolist() == [0, 0, 1]
    assert dataset.test_images[:, :2, 0, 0].tolist() == [[10, 2], [10, 7], [5, 2]]
    assert dataset.train_devices is None


def test_sub_folders_are_devices_and_each_gives_to_the_test(tmp_path: Path) -> None:
    for name, number in (("b", 5), ("a", 10)):
        for i in range(number):
            paint(tmp_path / name / f"{i}.webp")

    dataset = folder(tmp_path, layout="devices")

    assert dataset.train_labels is None
    assert dataset.train_devices is not None
    assert dataset.train_devices.tolist() == [0] * 8 + [1] * 4
    assert len(dataset.test_images) == 3


def test_images_of_several_sizes_and_kinds_are_made_one(tmp_path: Path) -> None:
    paint(tmp_path / "a.png", (200, 200, 200), (40, 20))
    Image.new("L", (9, 9), 200).save(tmp_path / "b.JPG")
    Image.new("RGBA", (8, 8), (200, 200, 200, 0)).save(tmp_path / "c.png")
    Image.new("P", (8, 16)).save(tmp_path / "d.gif")
    Image.new("1", (8, 16), 1).save(tmp_path / "e.bmp")

    coloured = folder(tmp_path, image_size=8, test_fraction=0.4)
    grey = folder(tmp_path, image_size=8, grey=True, test_fraction=0.4)

    assert coloured.image_shape == (3, 8, 8)
    assert grey.image_shape == (1, 8, 8)
    # c is wholly transparent, so white
    assert sorted(grey.train_images[:, 0, 4, 4].tolist() + grey.test_images[:, 0, 4, 4].tolist()) == [
        0, 200, 200, 255, 255
    ]  # fmt: skip


def test_shrinking_is_antialiased(tmp_path: Path) -> None:
    stripes = np.zeros((5, 64, 64), dtype=np.uint8)
    stripes[:, :, ::2] = 255
    # every pixel of the small image covers as many white as black columns; picking single ones would give 0 or 255
    pixels = npz(tmp_path, {"images": stripes}, image_size=4, test_fraction=0.4).train_images
    assert int((pixels.int() - 127).abs().max()) <= 10


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    for number in range(5):
        Image.new("RGB", (6, 4)).save(tmp_path / f"{number}.jpg", exif=exif)
    assert folder(tmp_path, test_fraction=0.4).image_shape == (3, 6, 4)


def test_what_is_left_out_is_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        paint(tmp_path / f"{number}.png")
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / ".hidden").write_text("hello")
    folder(tmp_path, test_fraction=0.4)
    assert capsys.readouterr().err == (
        f"note: left out of {tmp_path}, for they are no images by name or place: readme.txt\n"
    )


def test_images_that_this_machine_cannot_hold_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        paint(tmp_path / f"{number}.png")
    (tmp_path / "9.png").write_text("never opened")
    monkeypatch.setattr(limits, "memory", lambda: 1439)  # ten images of 3×4×6, twice, are 1,440
    with pytest.raises(CfclError, match=r"10 images of 3×4×6 would take .* GB: set data.image_size, such as 32"):
        folder(tmp_path)


@pytest.mark.parametrize("shape", [(10, 5, 4), (10, 5, 4, 1), (10, 1, 5, 4)])
def test_npz_axes_are_recognised(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.arange(200, dtype=np.uint8)
    dataset = npz(tmp_path, {"images": pixels.reshape(shape)})
    assert dataset.image_shape == (1, 5, 4)
    assert dataset.name == "mine"
    # the third image is numbers 40 to 59; row 1 of it starts with 44
    assert dataset.test_images[0, 0, 1].tolist() == [44, 45, 46, 47]


def test_npz_colour_may_stand_last_or_second_and_turns_grey(tmp_path: Path) -> None:
    images = np.zeros((10, 5, 4, 3), dtype=np.uint8)
    images[..., 0], images[..., 2] = 200, 100
    last = npz(tmp_path, {"images": images})
    second = npz(tmp_path, {"images": images.transpose(0, 3, 1, 2)})
    grey = npz(tmp_path, {"images": images}, grey=True)
    assert last.image_shape == second.image_shape == (3, 5, 4)
    assert torch.equal(last.train_images, second.train_images)
    # luma: 0.299 * 200 + 0.587 * 0 + 0.114 * 100 = 71.2
    assert torch.unique(grey.train_images).tolist() == [71]


def test_npz_may_bring_labels_devices_and_a_test_split(tmp_path: Path) -> None:
    arrays = {
        "images": np.zeros((6, 5, 4), dtype=np.uint8),
        "labels": np.array([1, 0, 1, 0, 2, 2], dtype=np.int8),
        "devices": np.array([7, 7, 3, 3, 7, 3]),
        "test_images": np.ones((2, 5, 4), dtype=np.uint8),
        "test_labels": np.array([4, 0]),
    }
    dataset = npz(tmp_path, arrays)
    assert dataset.train_labels is not None
    assert dataset.train_devices is not None
    assert dataset.test_labels is not None
    assert dataset.train_labels.tolist() == [1, 0, 1, 0, 2, 2]
    assert dataset.train_devices.tolist() == [7, 7, 3, 3, 7, 3]
    assert dataset.test_labels.tolist() == [4, 0]
    assert dataset.num_classes == 5  # label 4 is in the test only
    assert torch.unique(dataset.test_images).tolist() == [1]


def cut_picture(path: Path) -> Dataset:
    data = paint(path / "a.png", size=(64, 64)).read_bytes()
    (path / "b.png").write_bytes(data[: len(data) // 2])
    return folder(path)


def single_array(path: Path) -> Dataset:
    np.save(path / "t.npy", OK)
    return datasets.load(DataConfig(dataset="npz", path=path / "t.npy"))


def cut_npz(path: Path) -> Dataset:
    np.savez(path / "whole.npz", images=OK)
    (path / "t.npz").write_bytes((path / "whole.npz").read_bytes()[:99])
    return datasets.load(DataConfig(dataset="npz", path=path / "t.npz"))


def with_labels(path: Path, labels: Any) -> Dataset:
    return npz(path, {"images": OK, "labels": labels})


def shaped(path: Path, *shape: int) -> Dataset:
    return npz(path, {"images": np.zeros(shape, dtype=np.uint8)})


OK = np.zeros((10, 5, 4), dtype=np.uint8)

# The cause, and what the line must name.
BAD: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no such folder": (lambda p: folder(p / "absent"), ("absent", "not a folder", "give one")),
    "a file": (lambda p: (paint(p / "a.png"), folder(p / "a.png")), ("a.png", "not a folder")),
    "empty": (lambda p: folder(p), ("holds no image", ".png", "put some there")),
    "classes without sub-folders": (
        lambda p: (paint(p / "1.png"), folder(p, layout="classes")), ("no sub-folder", "'classes'", "layout='flat'")),
    "cut picture": (cut_picture, ("b.png", "not a readable image", "replace or remove")),
    "text as picture": (
        lambda p: (paint(p / "a.png"), (p / "b.png").write_text("hi"), folder(p)), ("b.png", "not a readable image")),
    "mixed sizes": (
        lambda p: (paint(p / "a.png"), paint(p / "b.png", size=(4, 6)), folder(p)),
        ("b.png is 3×6×4 and a.png is 3×4×6", "of one size", "set data.image_size")),
    "too few": (lambda p: (paint(p / "a.png"), folder(p)), ("of the 1 images", "fewer than 2", "give more images")),
    "no such npz": (
        lambda p: datasets.load(DataConfig(dataset="npz", path=p / "no.npz")),
        ("no.npz", "does not exist", "give an .npz")),
    "npz is text": (
        lambda p: ((p / "t.npz").write_text("hi"), datasets.load(DataConfig(dataset="npz", path=p / "t.npz"))),
        ("t.npz", "not an .npz file", "numpy.savez")),
    "npz is npy": (single_array, ("t.npy holds a single array", "need names", "numpy.savez")),
    "npz cut": (cut_npz, ("t.npz", "not an .npz file")),
    "objects": (lambda p: npz(p, {"images": np.array([{}])}), ("mine.npz", "holds object", "without objects")),
    "no images": (lambda p: npz(p, {"labels": OK}), ("holds labels", "needs an array `images`")),
    "unknown name": (lambda p: npz(p, {"images": OK, "lables": OK}), ("'lables'", "labels, devices", "rename")),
    "floats": (lambda p: npz(p, {"images": OK / 1.0}), ("`images` of type float64", "uint8", "convert")),
    "two axes": (lambda p: shaped(p, 5, 4), ("shape (5, 4)", "[points, height, width]", "reshape")),
    "no channel axis": (lambda p: shaped(p, 2, 4, 4, 4), ("(2, 4, 4, 4)", "1 or 3")),
    "two channel axes": (lambda p: shaped(p, 2, 3, 4, 3), ("(2, 3, 4, 3)", "either")),
    "nothing": (lambda p: shaped(p, 0, 5, 4), ("shape (0, 5, 4)", "reshape")),
    "label number": (lambda p: with_labels(p, np.zeros(9, int)), ("9 `labels` for 10 images", "match")),
    "label type": (lambda p: with_labels(p, np.zeros(10)), ("float64", "whole numbers", "convert")),
    "label shape": (lambda p: with_labels(p, np.zeros((10, 1), int)), ("(10, 1)", "in a row")),
    "negative label": (lambda p: with_labels(p, np.full(10, -1)), ("-1 in `labels`", "0 to 9999")),
    "huge label": (lambda p: with_labels(p, np.full(10, 10_000)), ("10000", "0 to 9999", "renumber")),
    "device number": (lambda p: npz(p, {"images": OK, "devices": np.zeros(3, int)}), ("3 `devices` for 10 images",)),
    "other test size": (
        lambda p: npz(p, {"images": OK, "test_images": OK[:, 1:]}), ("1×5×4", "1×4×4", "set data.image_size")),
    "test labels alone": (
        lambda p: npz(p, {"images": OK, "test_labels": np.zeros(3, int)}), ("without `test_images`", "add")),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_data_get_one_line(tmp_path: Path, kind: str) -> None:
    cause, parts = BAD[kind]
    with pytest.raises(CfclError) as caught:
        cause(tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    for part in (*parts, str(tmp_path) if kind != "too few" else "data.test_fraction"):
        assert part in line, line


def test_a_share_of_each_group_is_held_out_by_hand() -> None:
    groups = torch.tensor([4, 4, 1, 4, 1, 1, 4, 4, 4, 4, 4, 1])
    # a fifth: group 4 stands at 0 1 3 6 7 8 9 10, its third and eighth are 3 and 10; group 1 at 2 4 5 11, third 5
    assert splits.hold_out(groups, 0.2).nonzero().squeeze(1).tolist() == [3, 5, 10]
    # half: after 1 2 3 4 points 1 1 2 2 are out (halves up), so the 1st, 3rd, 5th...
    assert splits.hold_out(groups, 0.5).nonzero().squeeze(1).tolist() == [0, 2, 3, 5, 7, 9]


def test_labels_too_small_to_share_are_split_as_a_whole() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)
    found = splits.divide("x", images, torch.arange(10), fraction=0.2)
    assert found.test_labels is not None
    assert found.test_labels.tolist() == [2, 7]


class Listed(TorchDataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_a_torch_dataset_of_any_kind_of_image() -> None:
    byte = torch.full((3, 4, 6), 51, dtype=torch.uint8)
    kinds = [byte, torch.full((3, 4, 6), 0.2), Image.new("RGB", (6, 4), (51, 51, 51))]
    for image in kinds:
        dataset = datasets.from_torch(Listed([image] * 10), name="own")
        assert dataset.name == "own"
        assert torch.equal(dataset.train_images, byte.expand(8, -1, -1, -1))
        assert dataset.train_labels is None
        assert len(dataset.test_images) == 2


def test_a_torch_dataset_with_labels_and_its_own_test() -> None:
    image = torch.zeros(5, 4)
    train = Listed([(image, 3), (image, torch.tensor(1)), (image, np.int64(0))])
    dataset = datasets.from_torch(train, Listed([(image, 2), (image, 9_999)]))
    assert dataset.image_shape == (1, 5, 4)
    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    assert dataset.train_labels.tolist() == [3, 1, 0]
    assert dataset.test_labels.tolist() == [2, 9_999]


def test_torch_images_may_have_their_channels_last() -> None:
    image = torch.arange(28 * 27 * 3, dtype=torch.int32).remainder(251).to(torch.uint8).view(28, 27, 3)
    last = datasets.from_torch(Listed([image] * 10))
    assert last.image_shape == (3, 28, 27)
    # row 1, column 2, blue is number 27 * 3 + 2 * 3 + 2 = 89
    assert last.train_images[0, 2, 1, 2] == 89
    assert datasets.from_torch(Listed([torch.zeros(28, 27, 1)] * 10)).image_shape == (1, 28, 27)
    assert datasets.from_torch(Listed([torch.zeros(4, 28, 27)] * 10)).image_shape == (4, 28, 27)


def test_torch_pictures_lose_transparency_and_depth_as_files_do() -> None:
    clear = Image.new("RGBA", (3, 4), (0, 0, 0, 0))
    deep = Image.fromarray(np.full((4, 6), 514, dtype=np.uint16))
    assert torch.unique(datasets.from_torch(Listed([clear] * 10)).train_images).tolist() == [255]
    dataset = datasets.from_torch(Listed([deep] * 10))
    assert dataset.image_shape == (1, 4, 6)
    assert torch.unique(dataset.train_images).tolist() == [2]


GREY = torch.zeros(1, 4, 4)


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ([], "there are no items"),
        ([GREY, torch.zeros(1, 4, 5)], r"item 1: shape \(1, 4, 5\) differs .* resize"),
        ([GREY, GREY - 0.1], r"item 1: pixels of torch.float32 are neither uint8 nor floats in 0..1: leave out Normal"),
        ([GREY.int()], "torch.int32"),
        ([torch.zeros(1, 1, 4, 4)], r"\(1, 1, 4, 4\) is not a PIL image"),
        (["cat.png"], "str is not a PIL image or a tensor"),
        ([(GREY, "cat")], "label 'cat' is not a whole number"),
        ([(GREY, 1.5)], "label 1.5 is not a whole number"),
        ([(GREY, 10**12)], "label 1000000000000 is not a whole number from 0 to 9999: number the labels"),
        ([(GREY, float("inf"))], "label inf is not a whole number"),
        ([(GREY, float("nan"))], "label nan is not a whole number"),
        ([torch.zeros(3, 28, 3)], r"\(3, 28, 3\) may have its channels first or last"),
        ([Image.new("I", (4, 4))], "item 0: pixels of mode I are neither 8 nor 16 bits .* convert it to 8 bits"),
        ([(GREY, 1), GREY], "1 of 2 items have a label, but all or none must"),
    ],
)
def test_bad_torch_items_get_one_line(items: list[Any], complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        datasets.from_torch(Listed(items))


def test_torch_splits_of_two_sizes_are_refused() -> None:
    with pytest.raises(CfclError, match=r"are 1×4×4 and test images 1×4×5, but an encoder takes images of one shape"):
        datasets.from_torch(Listed([GREY] * 3), Listed([torch.zeros(1, 4, 5)] * 2))
    with pytest.raises(CfclError, match=r"mine has 1 test image, but a split needs at least 2: give more, or leave"):
        datasets.from_torch(Listed([GREY] * 3), Listed([GREY]))


def test_a_run_takes_a_dataset_object_without_labels() -> None:
    images = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    dataset = datasets.from_torch(Listed(list(images)))
    result = cfcl.run(small("partition.kind=iid", "train.steps=4"), dataset=dataset)
    assert result.of("setup")[0]["points"] == [40, 40, 40, 40]
    assert "probe" not in result.metrics[-1]
    assert result.metrics[-1]["uniformity"] < 0
    assert "label_distances" not in result.of("final")[0]


def test_a_run_on_the_devices_that_the_folders_name(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for device, number in enumerate((20, 25, 30, 35)):
        (tmp_path / f"device-{device}").mkdir()
        for i in range(number):
            picture = Image.fromarray(noise.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            picture.save(tmp_path / f"device-{device}" / f"{i}.png")
    mine = ["data.dataset=folder", f"data.path={tmp_path}", "data.layout=devices", "partition.kind=given"]
    result = cfcl.run(small(*mine, "train.steps=4"))
    assert result.of("setup")[0]["points"] == [16, 20, 24, 28]  # four fifths
    with pytest.raises(CfclError, match=r"num_devices=5 differs from the 4 devices in the data: set partition.num_dev"):
        cfcl.run(small(*mine, "partition.num_devices=5"))
    with pytest.raises(CfclError, match=r"partition.kind='labels' splits by label, .* set partition.kind='given'"):
        cfcl.run(small(*mine[:3]))


def test_the_printed_config_of_own_data_reads_back() -> None:
    wanted = configs.load("digits", ["data.dataset=folder", "data.path=a b", "data.image_size=9", "data.grey=true"])
    assert configs.parse(configs.to_toml(wanted)) == wanted
