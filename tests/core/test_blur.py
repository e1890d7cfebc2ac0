import torch

from cfcl import rng
from cfcl.core.blur import clipped, noised


def test_what_is_longer_is_shortened_and_the_rest_stays() -> None:
    # lengths 5, 1 and 0: the first is cut to 2 = 5 * 0.4
    vectors = torch.tensor([[3.0, -4.0], [0.6, 0.8], [0.0, 0.0]])
    torch.testing.assert_close(clipped(vectors, 2.0), torch.tensor([[1.2, -1.6], [0.6, 0.8], [0.0, 0.0]]))


def test_several_axes_are_one_vector() -> None:
    # 1 + 4 + 4 + 16 = 25 of the first, so its length is 5; the second has 2
    vectors = torch.tensor([[[1.0, 2.0], [2.0, -4.0]], [[0.0, 2.0], [0.0, 0.0]]])
    expected = torch.tensor([[[0.8, 1.6], [1.6, -3.2]], [[0.0, 2.0], [0.0, 0.0]]])
    torch.testing.assert_close(clipped(vectors, 4.0), expected)


def test_noise_has_the_deviation_asked_for_and_comes_from_its_stream_alone() -> None:
    vectors = torch.full((400, 50), 3.0)
    found = noised(vectors, 0.5, rng.stream(1, "noise"))
    assert torch.equal(found, noised(vectors, 0.5, rng.stream(1, "noise")))
    assert not torch.equal(found, noised(vectors, 0.5, rng.stream(2, "noise")))
    # of 20,000 draws: the mean is off by 0.0035, the deviation by 0.0025 (one standard error each)
    assert abs(float(found.mean()) - 3.0) < 0.02
    assert abs(float(found.std()) - 0.5) < 0.015
