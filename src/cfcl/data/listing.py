"""Which pictures a folder holds, and what its sub-folders stand for."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cfcl import reading
from cfcl.data.pictures import SUFFIXES
from cfcl.errors import CfclError

Layout = Literal["flat", "classes", "devices"]

# device-1, dev2, phone_kitchen, ...: all sub-folders must be called so, for "phone" alone may well be a class.
DEVICE = re.compile(r"(device|dev|client|node|phone|camera|cam|sensor|user|site|host|worker|edge)([-_ .].+|[0-9]+)")


@dataclass(frozen=True)
class Listing:
    """The pictures of a folder, by sub-folder unless it is taken as flat."""

    layout: Layout
    names: tuple[str, ...]
    """Of the sub-folders that are told apart; none where the layout is flat."""
    files: tuple[tuple[Path, ...], ...]
    """The pictures in each of them, or all in one, in order of their names."""
    notes: tuple[str, ...]
    """What was left out or taken together, one line each."""


def find(root: Path, layout: Layout | Literal["auto"]) -> Listing:
    """The pictures in and below `root`.

    `auto` is flat unless two sub-folders or more hold pictures, and as many as lie beside them; they are devices if
    all of them are called like one, such as device-1, and classes otherwise.
    """
    if not reading.is_folder(root):
        raise CfclError(f"data.path={str(root)!r} is not a folder of images: give one that is")
    try:
        return _found(root, layout)
    except OSError as error:
        raise CfclError(
            f"cannot list {error.filename} ({error.strerror}): make it readable, or move it out of data.path"
        ) from None


def _found(root: Path, layout: Layout | Literal["auto"]) -> Listing:
    beside, odd = _sorted_out([path for path in root.iterdir() if not path.is_dir()])
    groups: dict[str, list[Path]] = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        groups[folder.name], more = _sorted_out(_below(folder))
        odd += more or ([] if groups[folder.name] else [folder])
    held = {name: files for name, files in groups.items() if files}
    inside = [path for files in held.values() for path in files]
    if layout == "auto":
        layout = _layout(list(held), len(beside), len(inside))
    if layout == "flat":
        return _flat(root, [*beside, *inside], odd, len(held))
    return _grouped(root, layout, held, [*odd, *beside])


def _layout(names: list[str], num_beside: int, num_inside: int) -> Layout:
    if len(names) < 2 or num_beside > num_inside:
        return "flat"
    return "devices" if all(DEVICE.fullmatch(name.lower()) for name in names) else "classes"


def _flat(root: Path, files: list[Path], odd: list[Path], num_folders: int) -> Listing:
    if not files:
        suffixes = sorted({path.suffix.lower() for path in odd if path.suffix})
        found = f", only {', '.join(suffixes[:5])}" if suffixes else ""
        raise CfclError(
            f"{root} holds no image ({', '.join(sorted(SUFFIXES))}){found}: put some there, or convert them"
        )
    notes = _left_out(root, odd)
    if num_folders:
        notes += (f"{root}: the images of all sub-folders ({num_folders}) count as one set; data.layout='classes' or "
                  "'devices' tells them apart",)  # fmt: skip
    return Listing("flat", (), (tuple(sorted(files)),), notes)


def _grouped(root: Path, layout: Layout, held: dict[str, list[Path]], rest: list[Path]) -> Listing:
    if not held:
        raise CfclError(
            f"{root} has no sub-folder with images, but data.layout={layout!r} needs one for each of its {layout}: "
            "make them, or set data.layout='flat'"
        )
    return Listing(layout, tuple(held), tuple(map(tuple, held.values())), _left_out(root, rest))


def _left_out(root: Path, rest: list[Path]) -> tuple[str, ...]:
    names = sorted(str(path.relative_to(root)) for path in rest if not path.name.startswith("."))
    if not names:
        return ()
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (f"left out of {root}, for they are no images by name or place: {', '.join(names[:3])}{more}",)


def _below(folder: Path) -> Iterator[Path]:
    """Whatever lies in `folder` and below it; not behind links, which may lead back."""
    folders = [folder]
    while folders:
        for path in folders.pop().iterdir():
            if path.is_dir() and not path.is_symlink():
                folders += [path] if not path.name.startswith(".") else []
            else:
                yield path


def _sorted_out(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Pictures, by their names, and the rest."""
    images: list[Path] = []
    odd: list[Path] = []
    for path in sorted(paths):
        if not path.name.startswith("."):
            (images if path.suffix.lower() in SUFFIXES and path.is_file() else odd).append(path)
    return images, odd
