import os
from pathlib import Path

import pytest

from cfcl.data import listing
from cfcl.errors import CfclError


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def named(found: listing.Listing) -> list[list[str]]:
    return [[path.name for path in files] for files in found.files]


# What lies in a folder, and what `auto` takes it for.
KINDS = {
    "flat": (["a.png", "b.JPG"], "flat"),
    "classes": (["cat/1.png", "dog/1.png"], "classes"),
    "devices": (["device-1/1.png", "device-2/1.png"], "devices"),
    "devices by other names": (["dev1/1.png", "Phone kitchen/1.png", "node_a/1.png", "client.7/1.png"], "devices"),
    "one of them is no device": (["phone-1/1.png", "kitchen/1.png"], "classes"),
    "words alone may be classes": (["phone/1.png", "camera/1.png"], "classes"),
    "devil and devote": (["devil/1.png", "devote/1.png"], "classes"),
    "one sub-folder": (["all/1.png", "all/2.png"], "flat"),
    "one sub-folder with images": (["all/1.png", "all/2.png", "other/readme.txt"], "flat"),
    "a stray image beside": (["cover.png", "cat/1.png", "dog/1.png"], "classes"),
    "most images beside": (["1.png", "2.png", "3.png", "cat/1.png", "dog/1.png"], "flat"),
    "deeper": (["cat/a/1.png", "dog/b/c/1.png"], "classes"),
    "hidden": (["1.png", ".cat/1.png", ".dog/1.png"], "flat"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_is_seen(tmp_path: Path, kind: str) -> None:
    names, layout = KINDS[kind]
    put(tmp_path, *names)
    assert listing.find(tmp_path, "auto").layout == layout


def test_files_are_in_order_and_at_any_depth(tmp_path: Path) -> None:
    put(tmp_path, "b/2.png", "b/1.png", "b/deep/er/0.png", "a/3.png", ".hidden/4.png", "a/.5.png")
    found = listing.find(tmp_path, "classes")
    assert found.names == ("a", "b")
    assert named(found) == [["3.png"], ["1.png", "2.png", "0.png"]]
    assert found.notes == ()
    flat = listing.find(tmp_path, "flat")
    assert named(flat) == [["3.png", "1.png", "2.png", "0.png"]]
    assert flat.notes == (
        f"{tmp_path}: the images of all sub-folders (2) count as one set; data.layout='classes' or 'devices' tells "
        "them apart",
    )


def test_all_that_is_left_out_is_told_in_one_line(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png", "d/x.txt", "a/clip.mov", "b/deep/notes.md", "cover.png")
    (tmp_path / "c").mkdir()
    found = listing.find(tmp_path, "auto")
    assert found.names == ("a", "b")
    assert found.notes == (
        f"left out of {tmp_path}, for they are no images by name or place: a/clip.mov, b/deep/notes.md, c and 2 more",
    )


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png", "elsewhere/c/1.png")
    (tmp_path / "a" / "back").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a" / "self.png").symlink_to(tmp_path / "a" / "self.png")
    (tmp_path / "b" / "gone.png").symlink_to(tmp_path / "nothing.png")
    found = listing.find(tmp_path, "classes")
    assert named(found) == [["1.png"], ["1.png"], ["1.png"]]
    assert "a/back, a/self.png, b/gone.png" in found.notes[0]


def test_a_sub_folder_may_be_a_link(tmp_path: Path) -> None:
    put(tmp_path, "store/1.png", "photos/dog/1.png")
    (tmp_path / "photos" / "cat").symlink_to(tmp_path / "store", target_is_directory=True)
    assert listing.find(tmp_path / "photos", "auto").names == ("cat", "dog")


@pytest.mark.parametrize(
    ("names", "layout", "parts"),
    [
        ([], "auto", ("holds no image (.bmp, .gif", "put some there")),
        (["a.heic", "b.HEIC", "c.mov"], "auto", ("only .heic, .mov", "convert them")),
        (["1.png"], "classes", ("no sub-folder with images", "layout='classes'", "set data.layout='flat'")),
        (["a/readme.txt"], "devices", ("no sub-folder with images", "one for each of its devices")),
    ],
)
def test_a_folder_without_images_gets_one_line(
    tmp_path: Path, names: list[str], layout: listing.Layout, parts: tuple[str, ...]
) -> None:
    put(tmp_path, *names)
    with pytest.raises(CfclError) as caught:
        listing.find(tmp_path, layout)
    for part in (str(tmp_path), *parts):
        assert part in str(caught.value)


def test_a_folder_that_may_not_be_listed_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a/1.png", "b/1.png")
    listed = Path.iterdir

    def refuse(path: Path) -> object:
        if path.name == "b":
            raise PermissionError(13, os.strerror(13), str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(CfclError, match=r"cannot list .*/b \(Permission denied\): make it readable, or move it out of"):
        listing.find(tmp_path, "auto")
