import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfcl.core import precision


def test_codes_by_hand() -> None:
    codes, ranges = precision.to_codes(torch.tensor([[0.0, 255.0, 100.4], [-1.0, 1.0, 0.0]]))
    assert codes.tolist() == [[0, 255, 100], [0, 255, 128]]
    assert ranges.tolist() == [[0.0, 255.0], [-1.0, 1.0]]
    found = precision.from_codes(codes, ranges)
    assert found[0].tolist() == [0.0, 255.0, 100.0]
    assert abs(float(found[1, 2])) < 0.004


def test_an_item_that_is_flat_comes_back_as_it_was() -> None:
    values = torch.tensor([3.5, 0.0]).view(2, 1, 1).expand(2, 2, 4)
    assert torch.equal(precision.from_codes(*precision.to_codes(values)), values)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 4), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_no_value_is_off_by_more_than_half_a_step(items: int, scale: float, seed: int) -> None:
    values = scale * torch.randn(items, 2, 3, 5, generator=torch.Generator().manual_seed(seed))
    codes, ranges = precision.to_codes(values)
    assert codes.dtype == torch.uint8
    assert codes.shape == values.shape
    step = ((ranges[:, 1] - ranges[:, 0]) / 255).view(-1, 1, 1, 1)
    assert bool(((precision.from_codes(codes, ranges) - values).abs() <= 0.501 * step + 1e-6 * scale).all())
