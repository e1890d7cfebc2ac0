import pytest
import torch

from cfcl.core.averaging import accumulate, autoscaler, drawn_back, mixture, trimmed_mean


@pytest.mark.equation("5")
def test_a_weighted_sum_matches_eq_5_by_hand() -> None:
    total = torch.zeros(2, dtype=torch.float64)
    accumulate(total, torch.tensor([1.0, 0.0]), 30.0)
    accumulate(total, torch.tensor([5.0, -4.0]), 10.0)
    # 30 + 50 and 0 - 40, over 40: 2 and -1
    torch.testing.assert_close(total, torch.tensor([80.0, -40.0], dtype=torch.float64))
    torch.testing.assert_close(total / 40.0, torch.tensor([2.0, -1.0], dtype=torch.float64))


def test_the_sum_is_in_double_precision() -> None:
    total = torch.zeros(1, dtype=torch.float64)
    for value in (1e8, 1.0, -1e8):
        accumulate(total, torch.tensor([value]), 1.0)
    # in single precision the one would be lost
    assert total.tolist() == [1.0]


MODELS = torch.tensor([[5.0, -1.0], [1.0, -7.0], [100.0, -2.0], [3.0, 90.0], [2.0, -4.0]])


@pytest.mark.parametrize(
    ("number", "share", "expected"),
    [
        # columns in order: 1 2 3 5 100 and -7 -4 -2 -1 90
        (5, 0.0, [22.2, 15.2]),  # 111 / 5, 76 / 5
        (5, 0.19, [22.2, 15.2]),  # 0.95 of a model: none is cut
        (5, 0.2, [10 / 3, -7 / 3]),  # 2 3 5 and -4 -2 -1
        (5, 0.39, [10 / 3, -7 / 3]),
        (5, 0.4, [3.0, -2.0]),
        (5, 0.5, [3.0, -2.0]),  # the median
        # the first four: 1 3 5 100 and -7 -2 -1 90
        (4, 0.5, [4.0, -1.5]),  # the mean of both in the middle
        (4, 0.2, [27.25, 20.0]),
        (2, 0.49, [3.0, -4.0]),
        (1, 0.5, [5.0, -1.0]),
    ],
)
def test_a_trimmed_mean_by_hand(number: int, share: float, expected: list[float]) -> None:
    found = trimmed_mean(MODELS[:number], share)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_a_share_that_floats_put_below_a_whole_number_cuts_it() -> None:
    # 0.29 * 100 is 28.999999999999996: 29 of the zeros and 29 of the thousands go; left are 1 zero, 40 ones, 1 thousand
    models = torch.tensor([0.0] * 30 + [1.0] * 40 + [1000.0] * 30).unsqueeze(1)
    assert trimmed_mean(models, 0.29).tolist() == [1040 / 42]


def test_a_trimmed_mean_does_not_depend_on_how_parameters_are_cut_into_blocks_or_models_ordered() -> None:
    draw = torch.Generator().manual_seed(0)
    # of sizes so different that their sum in float64 depends on its order
    models = torch.randn(50, 67, generator=draw) * 10.0 ** torch.randint(-9, 9, (50, 67), generator=draw)
    whole = trimmed_mean(models, 0.1)
    for width in (1, 3, 16, 33):
        assert torch.equal(torch.cat([trimmed_mean(part, 0.1) for part in torch.split(models, width, dim=1)]), whole)
    assert torch.equal(trimmed_mean(models.flip(0), 0.1), whole)
    torch.testing.assert_close(trimmed_mean(models, 0.5), models.double().quantile(0.5, dim=0))


def test_zeros_have_no_sign() -> None:
    models = torch.tensor([[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0]])
    assert trimmed_mean(models, 0.5).signbit().tolist() == [False, False]


def test_a_trimmed_mean_is_in_double_precision() -> None:
    # in single precision the ones would be lost
    assert trimmed_mean(torch.tensor([[2.0**24], [1.0], [1.0]]), 0.0).tolist() == [5_592_406.0]


OWN, AVERAGE = torch.tensor([1.0, 0.0, -2.0]), torch.tensor([4.0, 4.0, -2.0])


@pytest.mark.parametrize(
    ("scaler", "expected"),
    [
        (0.0, [4.0, 4.0, -2.0]),
        (0.1, [2.5, 2.0, -2.0]),  # they are 5 apart: mu = 0.5
        (0.2, [1.0, 0.0, -2.0]),
        (7.0, [1.0, 0.0, -2.0]),  # mu is at most 1
    ],
)
def test_the_further_apart_the_more_a_device_keeps_of_its_own(scaler: float, expected: list[float]) -> None:
    torch.testing.assert_close(mixture(OWN, AVERAGE, scaler=scaler), torch.tensor(expected))


def test_the_autoscaler_by_hand() -> None:
    # 0.7 / 5
    assert autoscaler(OWN, AVERAGE, share=0.7) == pytest.approx(0.14)
    assert autoscaler(OWN, OWN, share=0.7) == 0.0


def test_models_too_far_from_the_centre_are_drawn_back_to_the_distance_allowed() -> None:
    centre = torch.tensor([1.0, 1.0])
    models = torch.tensor([[4.0, 5.0], [1.0, 1.0], [1.0, -1.5], [0.1, 1.0]])
    distances = torch.tensor([5.0, 0.0, 2.5, 0.9], dtype=torch.float64)
    found = drawn_back(models, centre, distances, most=2.5)
    # half of the way (3, 4) from the centre; the others are near enough
    assert found[0].tolist() == [2.5, 3.0]
    assert torch.equal(found[1:], models[1:])
    assert drawn_back(models, centre, distances, most=0.0)[0].tolist() == [1.0, 1.0]
    # entry by entry: a block of the columns is a block of the result
    parts = [drawn_back(models[:, i : i + 1], centre[i : i + 1], distances, most=1.7) for i in range(2)]
    assert torch.equal(torch.cat(parts, dim=1), drawn_back(models, centre, distances, most=1.7))
