import pytest
import torch

from cfcl.core.averaging import accumulate, autoscaler, mixture


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
