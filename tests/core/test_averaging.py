import pytest
import torch

from cfcl.core.averaging import weighted_average


@pytest.mark.equation("5")
def test_weighted_average_matches_eq_5_by_hand() -> None:
    found = weighted_average([torch.tensor([1.0, 0.0]), torch.tensor([5.0, -4.0])], [30.0, 10.0])
    # (30 * 1 + 10 * 5) / 40 = 2;  (0 - 40) / 40 = -1
    torch.testing.assert_close(found, torch.tensor([2.0, -1.0]))
    assert found.dtype == torch.float32
