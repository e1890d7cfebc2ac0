from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from cfcl.use import atlas


def opened(content: bytes) -> Image.Image:
    return Image.open(BytesIO(content))


@pytest.mark.parametrize(("number", "side"), [(1, 128), (512, 128), (2000, 64), (5000, 40)])
def test_more_thumbnails_are_smaller(number: int, side: int) -> None:
    assert atlas.side(number) == side  # 2^23 / 2000 = 4194 = 64.8^2, 2^23 / 5000 = 1677 = 40.96^2


def test_pixel_art_is_kept_as_it_is() -> None:
    images = [Image.new("L", (8, 6 + place % 3), 10 * place) for place in range(5)]
    found = atlas.pack(images)
    # three columns hold five in two rows
    assert (found.kind, found.cell, found.columns, len(found.pages)) == ("png", 8, 3, 1)
    assert found.sizes == [(8, 6), (8, 7), (8, 8), (8, 6), (8, 7)]
    picture = opened(found.pages[0])
    assert (picture.mode, picture.size) == ("L", (24, 16))
    assert [picture.getpixel((8 * (place % 3) + 7, 8 * (place // 3) + 5)) for place in range(5)] == [0, 10, 20, 30, 40]
    assert picture.getpixel((23, 15)) == 0


def test_photographs_do_not_stain_each_other() -> None:
    images = [Image.new("RGB", (50, 40), colour) for colour in ("red", "lime", "blue")] + [
        Image.new("L", (33, 50), 255)
    ]
    found = atlas.pack(images)
    assert (found.kind, found.cell, found.columns) == ("jpeg", 56, 2)  # 50 in blocks of 8
    pixels = np.asarray(opened(found.pages[0]).convert("RGB")).astype(int)
    assert pixels.shape == (112, 112, 3)
    for corner, colour in (((0, 0), (255, 0, 0)), ((0, 56), (0, 255, 0)), ((56, 0), (0, 0, 255))):
        part = pixels[corner[0] : corner[0] + 32, corner[1] : corner[1] + 48]
        assert abs(part - colour).max() <= 3


def test_many_take_several_pages() -> None:
    images = [Image.new("L", (128, 128), place % 256) for place in range(300)]
    found = atlas.pack(images)
    # 2048 / 128 = 16 columns and rows, 256 of a page; 44 more in three rows
    assert (found.columns, found.rows, len(found.pages)) == (16, 16, 2)
    assert opened(found.pages[1]).size == (2048, 3 * 128)
    assert opened(found.pages[1]).getpixel((11 * 128 + 60, 2 * 128 + 60)) == 299 % 256
