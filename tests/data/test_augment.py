import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cfcl.config import AugmentConfig
from cfcl.data import augment as module
from cfcl.data.augment import Draws, apply, augment, draw

STEPS: dict[str, dict[str, float]] = {
    "rotation": {"rotation": 30.0},
    "perspective": {"perspective": 0.4},
    "crop": {"crop": 0.4},
    "flip": {"flip": 0.5},
    "blur": {"blur": 1.5},
    "noise": {"noise": 0.1},
    "brightness": {"brightness": 0.5},
    "contrast": {"contrast": 0.5},
    "all": {
        "rotation": 30.0,
        "perspective": 0.4,
        "crop": 0.4,
        "flip": 0.5,
        "blur": 1.5,
        "noise": 0.1,
        "brightness": 0.4,
        "contrast": 0.4,
        "saturation": 0.4,
        "greyscale": 0.2,
    },
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def setting(**fields: float) -> AugmentConfig:
    return AugmentConfig.model_validate(fields)


def random_images(*shape: int, seed: int = 1) -> Tensor:
    return torch.rand(shape, generator=generator(seed))


def image(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows)[None, None]


def numbers(*values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def warp(images: Tensor, matrices: Any, *, affine: bool = True, padding: str = "zeros") -> Tensor:
    return module._warp(images, torch.from_numpy(matrices)[:, : 2 if affine else 3], padding)


def test_everything_off_returns_the_same_bits_and_draws_nothing() -> None:
    images = random_images(5, 3, 6, 7)
    source = generator()
    before = source.get_state()

    result = augment(images, AugmentConfig(), source)

    assert torch.equal(result, images)
    assert torch.equal(source.get_state(), before)


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"rotation": 5.0}, 1),
        ({"perspective": 0.1}, 8),
        ({"crop": 0.9}, 4),
        ({"flip": 0.1}, 1),
        ({"blur": 1.0}, 1),
        ({"brightness": 0.1}, 1),
        ({"contrast": 0.1, "saturation": 0.2}, 2),
        ({"greyscale": 0.1}, 1),
    ],
)
def test_only_steps_that_are_on_draw_numbers(fields: dict[str, float], number: int) -> None:
    shape = torch.Size((3, 1, 4, 4))

    assert draw(shape, setting(**fields), generator()).uniforms.shape == (3, number)
    assert draw(shape, setting(**fields), generator()).noise is None


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("shape", [(4, 1, 8, 8), (3, 3, 9, 6), (1, 2, 1, 5), (0, 1, 8, 8)])
def test_shape_dtype_and_range_are_kept(name: str, shape: tuple[int, ...]) -> None:
    images = random_images(*shape)

    for dtype in (torch.float32, torch.float64):
        result = augment(images.to(dtype), setting(**STEPS[name]), generator())
        assert result.shape == images.shape
        assert result.dtype == dtype
        assert ((result >= 0) & (result <= 1)).all()


@pytest.mark.parametrize("name", STEPS)
def test_the_generator_decides_every_bit(name: str) -> None:
    images = random_images(6, 1, 8, 8)
    config = setting(**STEPS[name])

    first, again, other = (augment(images, config, generator(seed)) for seed in (7, 7, 8))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", [name for name in STEPS if name != "flip"])
def test_each_image_of_a_batch_gets_its_own_numbers(name: str) -> None:
    images = random_images(1, 1, 8, 8).expand(6, -1, -1, -1)

    result = augment(images, setting(**STEPS[name]), generator())

    gaps = torch.cdist(result.flatten(1), result.flatten(1))
    assert gaps[~torch.eye(6, dtype=torch.bool)].min() > 0.01


@pytest.mark.parametrize("name", STEPS)
def test_draws_may_be_concatenated(name: str) -> None:
    config = setting(**STEPS[name])
    images = random_images(7, 3, 8, 8)
    first, second = draw(images[:3].shape, config, generator(1)), draw(images[3:].shape, config, generator(2))
    noise = torch.cat([first.noise, second.noise]) if first.noise is not None and second.noise is not None else None

    together = apply(images, config, Draws(torch.cat([first.uniforms, second.uniforms]), noise))

    apart = torch.cat([apply(images[:3], config, first), apply(images[3:], config, second)])
    torch.testing.assert_close(together, apart)


def test_flip_alone_is_exact() -> None:
    images = random_images(200, 1, 5, 5)

    result = augment(images, setting(flip=0.25), generator())

    flipped = (result == images.flip(3)).flatten(1).all(dim=1)
    kept = (result == images).flatten(1).all(dim=1)
    assert (flipped ^ kept).all()
    assert 25 < flipped.sum() < 75  # 50 expected, standard deviation 6.1
    assert torch.equal(augment(images, setting(flip=1.0), generator()), images.flip(3))


def test_flip_inside_a_warp_mirrors_left_and_right() -> None:
    picture = image([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]).repeat(2, 1, 1, 1)

    result = warp(picture, module._flip(np.array([True, False])))

    torch.testing.assert_close(result[0, 0], torch.tensor([[0.3, 0.2, 0.1], [0.6, 0.5, 0.4]]))
    torch.testing.assert_close(result[1], picture[1])


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (0.0, [[0.1, 0.2], [0.3, 0.4]]),
        (90.0, [[0.2, 0.4], [0.1, 0.3]]),
        (180.0, [[0.4, 0.3], [0.2, 0.1]]),
        (-90.0, [[0.3, 0.1], [0.4, 0.2]]),
    ],
)
def test_rotation_by_right_angles_is_counter_clockwise(degrees: float, expected: list[list[float]]) -> None:
    result = warp(image([[0.1, 0.2], [0.3, 0.4]]), module._rotation(numbers(math.radians(degrees)), 1.0))

    torch.testing.assert_close(result, image(expected), atol=1e-6, rtol=0)


def test_rotation_of_an_oblong_image_keeps_its_pixels_square() -> None:
    # The middle 2×2 block turns in place; above and below it there is nothing, so the sides become black.
    picture = image([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])

    result = warp(picture, module._rotation(numbers(math.pi / 2), aspect=2.0))

    torch.testing.assert_close(result, image([[0, 0.3, 0.7, 0], [0, 0.2, 0.6, 0]]), atol=1e-6, rtol=0)


def test_rotation_stays_within_its_limit() -> None:
    # A bright dot 3.5 pixels right of the centre of a 9×9 image; up to 20 degrees move it by 1.2 rows.
    picture = torch.zeros(300, 1, 9, 9)
    picture[:, 0, 4, 8] = 1.0

    rows = augment(picture, setting(rotation=20.0), generator())[:, 0].sum(dim=2)

    assert rows[:, :2].max() == 0
    assert rows[:, 7:].max() == 0
    assert (rows[:, 3] > 0.5).any()  # some up,
    assert (rows[:, 5] > 0.5).any()  # some down


def test_crop_of_a_known_box_by_hand() -> None:
    # Columns 3 to 7 of an 8-pixel ramp shown on 8 pixels: centres at 3.25, 3.75, ..., that is 2.75, 3.25, ... in
    # units of pixel numbers. The box is centred at 5 of 8, which is 0.25 on the axis from -1 to 1.
    picture = (torch.arange(8) / 8).expand(1, 1, 8, 8)

    result = warp(picture, module._crop(numbers([0.25, 0.0]), numbers([0.5, 1.0])), padding="border")

    expected = torch.tensor([2.75, 3.25, 3.75, 4.25, 4.75, 5.25, 5.75, 6.25]) / 8
    torch.testing.assert_close(result, expected.expand(1, 1, 8, 8))


def test_crop_of_a_known_box_in_y_by_hand() -> None:
    # The lower half of 4 rows: centres at 2.25, 2.75, 3.25, 3.75, so pixel numbers 1.75, 2.25, 2.75, 3.25; the last
    # lies between row 3 and the border, where the image goes on as it ends.
    picture = torch.tensor([0.0, 0.2, 0.4, 0.8])[:, None].expand(1, 1, 4, 4)

    result = warp(picture, module._crop(numbers([0.0, 0.5]), numbers([1.0, 0.5])), padding="border")

    torch.testing.assert_close(result[0, 0, :, 0], torch.tensor([0.35, 0.5, 0.7, 0.8]))


def test_crop_alone_does_not_darken_the_border() -> None:
    white = torch.ones(50, 1, 8, 8)

    torch.testing.assert_close(augment(white, setting(crop=0.3), generator()), white)


def test_crop_boxes_have_the_promised_distribution() -> None:
    uniforms = draw(torch.Size((20_000, 1, 8, 8)), setting(crop=0.2), generator()).uniforms.numpy()

    centres, sizes = module._crop_boxes(uniforms, 0.2)

    area, aspect = sizes.prod(axis=1), sizes[:, 0] / sizes[:, 1]
    assert (np.abs(centres) + sizes).max() <= 1 + 1e-6  # inside
    assert np.percentile(area, [0, 25, 50, 75, 100]) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0], abs=0.02)
    small = area < 0.75  # these fit with any aspect ratio
    logs = np.log(aspect[small]) / math.log(4 / 3)
    assert np.percentile(logs, [0, 25, 50, 75, 100]) == pytest.approx([-1, -0.5, 0, 0.5, 1], abs=0.03)
    freedom = np.abs(centres / (1 - sizes))[area < 0.9]
    assert np.percentile(freedom, [0, 50, 100]) == pytest.approx([0, 0.5, 1], abs=0.02)
    together = np.corrcoef([area[small], logs, *(centres[small] / (1 - sizes[small])).T])
    np.testing.assert_allclose(together, np.eye(4), atol=0.04)  # independent


def test_perspective_without_shift_is_the_identity() -> None:
    np.testing.assert_array_equal(module._perspective(np.zeros((1, 4, 2), dtype=np.float32)), np.eye(3)[None])


def test_perspective_of_four_equal_shifts_shrinks_the_image() -> None:
    # All corners half way in: the 4×4 image lands on the middle 2×2 pixels, and each of them samples the point where
    # four input pixels meet: their mean.
    picture = image([[0.1, 0.3, 0.5, 0.7], [0.1, 0.3, 0.5, 0.7], [0.2, 0.4, 0.6, 0.8], [0.2, 0.4, 0.6, 0.8]])

    result = warp(picture, module._perspective(numbers(np.full((4, 2), 0.5))), affine=False)

    expected = image([[0, 0, 0, 0], [0, 0.2, 0.6, 0], [0, 0.3, 0.7, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)


@given(shifts=st.lists(st.floats(0, 0.625, width=32), min_size=8, max_size=8))
@settings(max_examples=50, deadline=None)
def test_perspective_solves_the_linear_system_of_its_corners(shifts: list[float]) -> None:
    matrix = module._perspective(numbers(shifts).reshape(1, 4, 2))[0].astype(np.float64)

    # h with h33 = 1 from x' = (h11 x + h12 y + h13) / (h31 x + h32 y + 1), and likewise y', at four corners
    rows, values = [], []
    for k, (cx, cy) in enumerate([(-1, -1), (1, -1), (1, 1), (-1, 1)]):
        x, y = cx * (1 - shifts[2 * k]), cy * (1 - shifts[2 * k + 1])
        rows += [[x, y, 1, 0, 0, 0, -cx * x, -cx * y], [0, 0, 0, x, y, 1, -cy * x, -cy * y]]
        values += [cx, cy]
    expected = np.append(np.linalg.solve(rows, values), 1).reshape(3, 3)
    assert matrix[2, 2] > 0
    np.testing.assert_allclose(matrix / matrix[2, 2], expected, atol=2e-4)


def test_perspective_moves_each_corner_by_its_own_share() -> None:
    # White images: what stays white is the quad itself. Corners move in by up to half of half of 40 pixels.
    result = augment(torch.ones(200, 1, 40, 40), setting(perspective=0.5), generator())[:, 0]

    assert result[:, 10:30, 10:30].min() == pytest.approx(1)  # never further in than 10 pixels
    corners = [result[:, 2, 2], result[:, 2, -3], result[:, -3, -3], result[:, -3, 2]]
    white = torch.stack(corners, dim=1) > 0.5
    assert len({tuple(row) for row in white.tolist()}) > 4  # independent of each other


def test_a_pixel_on_the_horizon_is_black() -> None:
    # w = x + 1/2 is 0 at the left pixel's centre, x = -1/2, and 1 at the right one's
    matrix = numbers([[1, 0, 0], [0, 1, 0], [1, 0, 0.5]])

    result = warp(image([[0.1, 0.2], [0.3, 0.4]]), matrix, affine=False)

    torch.testing.assert_close(result, image([[0, 0.2], [0, 0.4]]))


def test_extreme_settings_give_finite_images() -> None:
    config = setting(perspective=0.999, crop=1e-9, rotation=180.0, flip=0.5, blur=1e-30, noise=0.0)

    result = augment(random_images(3000, 1, 5, 7), config, generator())

    assert result.isfinite().all()
    assert result.max() <= 1


def test_steps_compose_in_order_crop_flip_rotation_perspective() -> None:
    # A point of the output goes back through perspective, rotation, flip and crop, one after the other.
    config = setting(perspective=0.4, rotation=50.0, flip=0.5, crop=0.3)
    uniforms = {
        "crop": numbers([0.3, -0.5, 0.2, 0.9]),
        "flip": numbers([-0.5]),  # below 2 × 0.5 - 1, so flipped
        "rotation": numbers([0.6]),  # 30 degrees
        "perspective": numbers([0.1, -0.9, 0.5, 0.2, -0.3, 0.8, -0.6, 0.4]),
    }

    total = module._homographies(uniforms, config, aspect=1.0)[0]

    shifts = 0.2 + 0.2 * uniforms["perspective"].reshape(1, 4, 2)
    x, y, w = module._perspective(shifts)[0] @ numbers(0.3, -0.4, 1.0)
    x, y = x / w, y / w
    cos, sin = math.sqrt(0.75), 0.5
    x, y = cos * x - sin * y, sin * x + cos * y
    x = -x
    (cx, cy), (sx, sy) = (part[0] for part in module._crop_boxes(uniforms["crop"], 0.3))
    u, v, q = total @ numbers(0.3, -0.4, 1.0)
    assert (u / q, v / q) == pytest.approx((cx + sx * x, cy + sy * y), abs=1e-5)


def gaussian_means(picture: Tensor, sigma: float) -> Tensor:
    """Weighted means over all pixels, by four loops."""
    height, width = picture.shape
    result = torch.zeros(height, width)
    for i in range(height):
        for j in range(width):
            total = weight = 0.0
            for k in range(height):
                for m in range(width):
                    share = math.exp(-((i - k) ** 2 + (j - m) ** 2) / (2 * sigma**2))
                    weight += share
                    total += share * float(picture[k, m])
            result[i, j] = total / weight
    return result


@pytest.mark.parametrize("shape", [(6, 6), (5, 8)])
def test_blur_matches_plain_loops_with_a_sigma_per_image(shape: tuple[int, int]) -> None:
    images = random_images(2, 2, *shape)

    result = module._blur(images, torch.tensor([0.4, 1.7]))

    for batch, sigma in enumerate([0.4, 1.7]):
        for channel in range(2):
            torch.testing.assert_close(result[batch, channel], gaussian_means(images[batch, channel], sigma))


def test_blur_of_a_dot_by_hand() -> None:
    # sigma 1, far from the border: the standard normal density at 2, 1 and 0
    picture = torch.zeros(1, 1, 1, 21)
    picture[..., 10] = 1.0

    result = module._blur(picture, torch.tensor([1.0]))

    torch.testing.assert_close(result[0, 0, 0, 8:11], torch.tensor([0.05399, 0.24197, 0.39894]), atol=1e-5, rtol=0)


def test_blur_keeps_flat_images_up_to_the_border() -> None:
    flat = torch.full((20, 1, 8, 8), 0.7)

    torch.testing.assert_close(augment(flat, setting(blur=3.0), generator()), flat)


@pytest.mark.parametrize(("largest", "low"), [(2.0, 0.1), (0.05, 0.05)])
def test_blur_widths_are_uniform_up_to_the_largest(largest: float, low: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(images: Tensor, sigmas: Tensor) -> Tensor:
        seen.append(sigmas)
        return images

    monkeypatch.setattr(module, "_blur", spy)

    augment(torch.zeros(5000, 1, 1, 1), setting(blur=largest), generator())

    quartiles = torch.quantile(seen[0], torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
    expected = [low + (largest - low) * share for share in (0, 0.25, 0.5, 0.75, 1)]
    assert quartiles.tolist() == pytest.approx(expected, abs=0.04)


def test_noise_has_its_standard_deviation_and_is_clamped() -> None:
    grey = torch.full((50, 1, 20, 20), 0.5)

    change = augment(grey, setting(noise=0.1), generator()) - grey

    assert float(change.std()) == pytest.approx(0.1, abs=0.002)
    assert float(change.mean()) == pytest.approx(0.0, abs=0.002)
    black = augment(torch.zeros(50, 1, 20, 20), setting(noise=0.1), generator())
    assert float((black == 0).float().mean()) == pytest.approx(0.5, abs=0.02)


def pixels(*colours: list[float]) -> Tensor:
    """An image of one row, pixel by pixel."""
    return torch.tensor(colours).T[None, :, None, :]


def changed(images: Tensor, *uniforms: float, **fields: float) -> Tensor:
    """The images under the same given numbers each."""
    drawn = torch.tensor(uniforms).repeat(len(images), 1)
    return apply(images, setting(**fields), Draws(drawn, None))


PICTURE = pixels([0.8, 0.4, 0.2], [0.1, 0.6, 0.5])


@pytest.mark.parametrize(
    ("uniform", "expected"),
    [
        # factor 1 + 0.5 * 1: red 1.2 is cut off
        (1.0, pixels([1.0, 0.6, 0.3], [0.15, 0.9, 0.75])),
        # factor 1 - 0.5
        (-1.0, pixels([0.4, 0.2, 0.1], [0.05, 0.3, 0.25])),
        (0.0, PICTURE),
    ],
)
def test_brightness_by_hand(uniform: float, expected: Tensor) -> None:
    torch.testing.assert_close(changed(PICTURE, uniform, brightness=0.5), expected)


def test_a_strength_above_one_ends_at_black() -> None:
    # factors 0 to 3: in the middle 1.5, at the lower end 0 and not -1
    torch.testing.assert_close(changed(PICTURE, 0.0, brightness=2.0), (1.5 * PICTURE).clamp_max(1))
    assert not changed(PICTURE, -1.0, brightness=2.0).any()


def test_contrast_by_hand() -> None:
    # greys 0.299*0.8 + 0.587*0.4 + 0.114*0.2 = 0.4968 and 0.0299 + 0.3522 + 0.057 = 0.4391; their mean 0.46795
    # factor 1.5: 0.46795 + 1.5 * (0.8 - 0.46795) = 0.966025 and so on
    more = pixels([0.966025, 0.366025, 0.066025], [-0.083975, 0.666025, 0.516025]).clamp_min(0)
    torch.testing.assert_close(changed(PICTURE, 1.0, contrast=0.5), more)
    # factor 0.5: half way to the mean
    less = pixels([0.633975, 0.433975, 0.333975], [0.283975, 0.533975, 0.483975])
    torch.testing.assert_close(changed(PICTURE, -1.0, contrast=0.5), less)


def test_contrast_of_a_grey_image_by_hand() -> None:
    # mean 0.4; factor 0.5
    torch.testing.assert_close(changed(image([[0.1, 0.7]]), -1.0, contrast=0.5), image([[0.25, 0.55]]))


def test_saturation_by_hand() -> None:
    # each pixel against its own grey, 0.4968 and 0.4391; factor 0.5
    less = pixels([0.6484, 0.4484, 0.3484], [0.26955, 0.51955, 0.46955])
    torch.testing.assert_close(changed(PICTURE, -1.0, saturation=0.5), less)
    # factor 1.5: 0.4968 + 1.5 * 0.3032 = 0.9516 and so on; the second red is -0.06955
    more = pixels([0.9516, 0.3516, 0.0516], [0.0, 0.68045, 0.53045])
    torch.testing.assert_close(changed(PICTURE, 1.0, saturation=0.5), more)


def test_greyscale_takes_the_colour_of_some() -> None:
    images = random_images(200, 3, 2, 2)

    result = augment(images, setting(greyscale=0.25), generator())

    grey = (result == result[:, :1]).flatten(1).all(dim=1)
    assert 25 < grey.sum() < 75  # 50 expected, standard deviation 6.1
    assert torch.equal(result[~grey], images[~grey])
    torch.testing.assert_close(augment(PICTURE, setting(greyscale=1.0), generator())[0, 2, 0, 1], torch.tensor(0.4391))


def test_colours_change_one_after_another() -> None:
    fields = {"brightness": 0.5, "contrast": 0.4, "saturation": 0.3, "greyscale": 0.5}

    together = changed(PICTURE, -0.5, 0.7, -0.2, -0.9, **fields)

    found = changed(PICTURE, -0.5, brightness=0.5)
    found = changed(found, 0.7, contrast=0.4)
    found = changed(found, -0.2, saturation=0.3)
    torch.testing.assert_close(together, changed(found, -0.9, greyscale=0.5))


def test_saturation_and_greyscale_leave_grey_images_alone() -> None:
    images = random_images(4, 1, 3, 3)
    assert torch.equal(augment(images, setting(saturation=0.9, greyscale=1.0), generator()), images)


def test_channels_that_are_no_colours_count_the_same() -> None:
    # mean of 0.2 and 0.8
    result = augment(pixels([0.2, 0.8]), setting(greyscale=1.0), generator())
    torch.testing.assert_close(result, pixels([0.5, 0.5]))
