from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cfcl.errors import CfclError
from cfcl.use.intake import batch
from tests.use.made import draw

GREY = draw(5, 8, 6)
COLOUR = draw(5, 8, 6, 3)


def test_arrays_of_the_right_shape_pass_as_they_are() -> None:
    expected = torch.from_numpy(GREY)[:, None]
    for form in (GREY, GREY[:, None], GREY[..., None], torch.from_numpy(GREY), list(GREY)):
        assert torch.equal(batch(form, (1, 8, 6)), expected)
    first = torch.from_numpy(COLOUR).movedim(3, 1)
    for form in (COLOUR, first, first.numpy(), list(COLOUR), list(first)):
        assert torch.equal(batch(form, (3, 8, 6)), first)


def test_floats_of_the_right_shape_keep_all_their_digits() -> None:
    floats = torch.rand(2, 1, 8, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(batch(floats, (1, 8, 6)), floats)
    assert batch(floats.double(), (1, 8, 6)).dtype == torch.float32


def test_one_image_is_a_batch_of_one() -> None:
    for one in (GREY[0], GREY[0][None], GREY[0][..., None], Image.fromarray(GREY[0]), [GREY[0]]):
        assert torch.equal(batch(one, (1, 8, 6)), torch.from_numpy(GREY[:1])[:, None])
    for one in (COLOUR[0], COLOUR[0].transpose(2, 0, 1), Image.fromarray(COLOUR[0])):
        assert torch.equal(batch(one, (3, 8, 6)), torch.from_numpy(COLOUR[:1]).movedim(3, 1))


def test_three_grey_images_of_the_right_size_are_no_image_in_colour() -> None:
    assert batch(GREY[:3], (1, 8, 6)).shape == (3, 1, 8, 6)
    assert batch(GREY[:3], (3, 8, 6)).shape == (1, 3, 8, 6)


def test_colour_becomes_grey_and_grey_becomes_colour() -> None:
    red = np.zeros((8, 6, 3), np.uint8)
    red[..., 0] = 255
    # Red counts 299 of 1000: 255 × 0.299 = 76.2.
    assert set(batch(red, (1, 8, 6)).flatten().tolist()) == {76}
    grey = np.full((8, 6), 9, np.uint8)
    assert torch.equal(batch(grey, (3, 8, 6)), torch.full((1, 3, 8, 6), 9, dtype=torch.uint8))


def test_images_of_another_size_are_resized_as_in_training(tmp_path: Path) -> None:
    halves = np.zeros((4, 8), np.uint8)
    halves[:, 4:] = 200
    Image.fromarray(halves).save(tmp_path / "a.png")
    # Each of the four columns is the antialiased mean of those around it; the outer ones see one half only.
    for form in (
        halves,
        halves / np.float32(255),
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        Image.fromarray(halves),
    ):
        found = batch(form, (1, 2, 4))
        assert found.dtype == torch.uint8
        assert found[0, 0].tolist() == [[0, 25, 175, 200]] * 2


def test_a_list_may_mix_kinds_and_sizes(tmp_path: Path) -> None:
    Image.fromarray(GREY[0]).save(tmp_path / "a.png")
    found = batch([tmp_path / "a.png", Image.fromarray(COLOUR[1]), torch.from_numpy(GREY[2])], (1, 8, 6))
    assert (found.shape, found.dtype) == ((3, 1, 8, 6), torch.uint8)
    assert torch.equal(found[2, 0], torch.from_numpy(GREY[2]))
    mixed = batch([GREY[0], GREY[1] / np.float32(255)], (1, 8, 6))
    torch.testing.assert_close(mixed * 255, torch.from_numpy(GREY[:2])[:, None].float())


def test_no_images_are_an_empty_batch() -> None:
    assert batch(np.zeros((0, 1, 8, 6), np.uint8), (1, 8, 6)).shape == (0, 1, 8, 6)
    assert batch(np.zeros((0, 1, 9, 9), np.uint8), (1, 8, 6)).shape == (0, 1, 8, 6)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        (np.zeros((2, 4, 8, 6), np.uint8), r"shape \(2, 4, 8, 6\) do not fit.*\(batch, 1, 8, 6\).*reshape"),
        (np.zeros((1, 2, 3, 4, 5), np.uint8), r"shape \(1, 2, 3, 4, 5\)"),
        (np.zeros((2, 1, 0, 6), np.uint8), r"shape \(2, 1, 0, 6\)"),
        (np.zeros((8, 6), np.int64), "int64 are neither uint8 pixels nor floats in 0..1"),
        (np.full((8, 6), 1.5), "neither uint8"),
        (np.full((9, 9), np.nan), "neither uint8"),
        ("nowhere.png", "nowhere.png is not a readable image"),
        ([GREY], "an item of the list holds 5 images"),
        (Image.new("I", (8, 6), 70_000), "an image cannot be used .*: convert it to 8 bits"),
    ],
)
def test_what_cannot_be_images_is_refused_in_one_line(form: object, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        batch(form, (1, 8, 6))
