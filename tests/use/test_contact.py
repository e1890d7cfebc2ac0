import numpy as np
import torch
from PIL import Image

from cfcl.data.datasets import Dataset
from cfcl.use import contact
from cfcl.use.contact import Cell, Row


def grey(width: int, height: int, value: int = 200) -> Image.Image:
    return Image.new("L", (width, height), value)


def darkest(image: Image.Image) -> int:
    return int(np.asarray(image).min())


def test_the_sheet_of_a_dataset_has_a_row_for_each_label() -> None:
    images = torch.zeros(30, 1, 28, 28, dtype=torch.uint8)
    images[20:] = 200
    labels = torch.tensor([5] * 20 + [2] * 10)

    picture = contact.sheet(contact.of_dataset(Dataset("x", images, labels, images, labels)))

    # images twice as large: 56 wide and a gap of 4, ten of them beside a margin of 36; two rows
    assert picture.size == (36 + 10 * 60, 4 + 2 * 60)
    assert picture.getpixel((40, 10)) == (200, 200, 200)  # label 2 comes first
    assert picture.getpixel((40, 70)) == (0, 0, 0)
    bare = contact.sheet(contact.of_dataset(Dataset("x", images, None, images, None)))
    assert bare.size == (4 + 10 * 60, 4 + 3 * 60)


def test_small_images_grow_by_whole_factors_and_large_ones_shrink() -> None:
    small = Image.new("L", (40, 32))
    small.putpixel((39, 0), 255)
    grown = contact.enlarged(contact.shrunk(small), 96)
    assert grown.size == (120, 96)  # 3 is the first factor that makes 40 no less than 96
    assert grown.getcolors() == [(120 * 96 - 9, 0), (9, 255)]  # one pixel became nine, and none is blurred

    stripes = Image.new("L", (768, 384))
    stripes.paste(255, (0, 0, 768, 96))
    less = contact.shrunk(stripes)
    assert less.size == (192, 96)
    assert contact.enlarged(less, 96).size == (192, 96)
    assert contact.shrunk(grey(5000, 3)).size == (192, 1)
    assert contact.shrunk(grey(192, 10)).size == (192, 10)


def test_words_stand_below_and_the_lead_stands_apart() -> None:
    cells = [Cell(grey(96, 96), ("0.123", "a name that is much too long for it.png"))] * 2
    picture = contact.sheet([Row("", cells, Cell(grey(96, 96, 0), ("query", "x")))])

    # gap, lead, gap + 12 pixels, two more; the image, two lines of 15 and gaps of 4
    assert picture.size == (4 + 12 + 3 * 100, 4 + 96 + 4 + 2 * 15 + 4)
    assert picture.getpixel((50, 50)) == (0, 0, 0)
    assert picture.getpixel((108, 50)) == (255, 255, 255)
    assert picture.getpixel((117, 50)) == (200, 200, 200)
    assert picture.getpixel((2, 50)) == (0, 114, 178)  # its frame
    below = picture.crop((4, 100, picture.width, 134)).convert("L")
    assert darkest(below.crop((0, 0, 96, 34))) < 100
    assert darkest(below.crop((112, 0, 208, 34))) < 100
    assert darkest(below.crop((99, 4, 111, 34))) == 255  # long words stay below their image


def test_words_that_do_not_fit_lose_their_middle() -> None:
    assert contact._short("short", 96) == "short"
    found = contact._short("holiday/2024/a-very-long-name-0001.png", 96)
    assert found.startswith("holida")
    assert found.endswith("01.png")
    assert "…" in found
    assert contact.font().getlength(found) <= 96
    assert contact._short("x" * 100_000, 96).count("x") > 5
    assert contact._short("a\nb", 96) == "a\\nb"
    assert contact._short("wide", 2) == ""


def test_a_long_title_gets_room_and_a_row_may_be_empty() -> None:
    picture = contact.sheet([Row("cluster 12: 345 images", [Cell(grey(56, 56))]), Row("none", [])])
    assert 36 + 60 < picture.width < 192 + 60
    assert picture.height == 4 + 60 + 4
