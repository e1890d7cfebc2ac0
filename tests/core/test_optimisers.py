import pytest
import torch

from cfcl.core.optimisers import Moments, adam_update, sgd_update


@pytest.mark.equation("4")
def test_sgd_update_matches_eq_4_by_hand() -> None:
    found = sgd_update(torch.tensor([1.0, -1.0]), torch.tensor([0.5, -2.0]), learning_rate=0.1)
    # 1 - 0.05 = 0.95;  -1 + 0.2 = -0.8
    torch.testing.assert_close(found, torch.tensor([0.95, -0.8]))


@pytest.mark.equation("4")
def test_adam_update_by_hand() -> None:
    start = Moments(torch.zeros(2), torch.zeros(2), 0)

    params, moments = adam_update(torch.tensor([1.0, -1.0]), torch.tensor([0.5, -2.0]), start, learning_rate=0.1)

    # The first Adam step is the sign of the gradient: 1 - 0.1, -1 + 0.1
    torch.testing.assert_close(params, torch.tensor([0.9, -0.9]))
    torch.testing.assert_close(moments.first, torch.tensor([0.05, -0.2]))
    torch.testing.assert_close(moments.second, torch.tensor([0.00025, 0.004]))
    assert moments.updates == 1
    torch.testing.assert_close(start.first, torch.zeros(2))


def test_adam_update_follows_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = torch.ones(4), torch.nn.Parameter(torch.ones(4))
    moments, optimiser = Moments(torch.zeros(4), torch.zeros(4), 0), torch.optim.Adam([theirs], lr=0.01)

    for _ in range(20):
        gradient = torch.randn(4, generator=generator)
        ours, moments = adam_update(ours, gradient, moments, learning_rate=0.01)
        theirs.grad = gradient.clone()
        optimiser.step()

    torch.testing.assert_close(ours, theirs.detach())
