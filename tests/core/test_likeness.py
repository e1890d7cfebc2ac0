import pytest
import torch

from cfcl.core.likeness import auc, matched, nearest, squared_error, ssim


def test_squared_error_is_that_of_each_image() -> None:
    made = torch.tensor([[[[0.0, 1.0]]], [[[0.5, 0.5]]]])
    images = torch.tensor([[[[0.0, 0.0]]], [[[0.5, 0.1]]]])
    # (0 + 1) / 2 and (0 + 0.16) / 2
    torch.testing.assert_close(squared_error(made, images), torch.tensor([0.5, 0.08]))


def test_ssim_of_flat_images_compares_their_brightness_alone() -> None:
    made, images = torch.full((1, 1, 8, 8), 0.2), torch.full((1, 1, 8, 8), 0.6)
    # (2 * 0.12 + 0.0001) / (0.04 + 0.36 + 0.0001) = 0.2401 / 0.4001
    torch.testing.assert_close(ssim(made, images), torch.tensor([0.60010]), atol=5e-4, rtol=0)


def test_ssim_is_one_of_the_same_and_negative_of_the_opposite() -> None:
    board = (torch.arange(8)[:, None] + torch.arange(8)).remainder(2).float()[None, None]
    assert ssim(board, board).item() == pytest.approx(1.0, abs=1e-5)
    # Windows of 7×7 have 24 or 25 ones of 49: means 24/49 and 25/49, luminance 0.9992; variance 0.2499, covariance
    # -0.2499: (-0.4998 + 0.0009) / (0.4998 + 0.0009) = -0.9964; the product is -0.9956
    assert ssim(board, 1 - board).item() == pytest.approx(-0.9956, abs=2e-3)


def test_nearest_and_matched_by_hand() -> None:
    images = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    made = torch.tensor([[0.1, 0.1], [0.4, 0.0], [0.2, 1.5]])
    assert nearest(made, images).tolist() == [0, 0, 2]
    assert matched(made, images).tolist() == [True, False, True]


def test_auc_counts_pairs_and_ties_half() -> None:
    # of six pairs: 3>0, 3>2, 1>0, 1<2, 2>0, 2=2: 4.5 of 6
    assert auc(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0])) == 0.75
    assert auc(torch.tensor([0.0]), torch.tensor([1.0, 2.0])) == 0.0
