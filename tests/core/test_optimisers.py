from typing import Literal

import pytest
import torch

from cfcl.core.optimisers import (
    Moments,
    adam_update,
    decay_weights,
    learning_rate,
    momentum_update,
    sgd_update,
)


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


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [0.4, 0.4, 0.4, 0.4, 0.4]),
        # (t + 1) / 4 of the peak at t = 0, 1, 3
        ("constant", 4, [0.1, 0.2, 0.4, 0.4, 0.4]),
        # 0.2 (1 + cos(pi t / 12)): cosines of 0, 15, 45, 90, 165 degrees
        ("cosine", 0, [0.4, 0.3931852, 0.3414214, 0.2, 0.0068148]),
        # from t = 4 on, cosines of 0 (reached at t = 4), at t = 6: 45 degrees, at t = 11: 157.5
        ("cosine", 4, [0.1, 0.2, 0.4, 0.3414214, 0.0152241]),
    ],
)
def test_the_step_size_by_hand(schedule: Literal["constant", "cosine"], warmup: int, expected: list[float]) -> None:
    found = [learning_rate(step, peak=0.4, num_steps=12, schedule=schedule, warmup=warmup) for step in (0, 1, 3, 6, 11)]
    assert found == pytest.approx(expected, abs=1e-6)


def test_weight_decay_shrinks_weights_of_either_sign() -> None:
    found = decay_weights(torch.tensor([2.0, -1.0]), learning_rate=0.5, weight_decay=0.1)
    # times 1 - 0.05
    torch.testing.assert_close(found, torch.tensor([1.9, -0.95]))


def test_weight_decay_and_adam_follow_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = torch.ones(4), torch.nn.Parameter(torch.ones(4))
    moments, optimiser = Moments(torch.zeros(4), torch.zeros(4), 0), torch.optim.AdamW([theirs], 0.01, weight_decay=0.3)
    for _ in range(10):
        gradient = torch.randn(4, generator=generator)
        ours = decay_weights(ours, learning_rate=0.01, weight_decay=0.3)
        ours, moments = adam_update(ours, gradient, moments, learning_rate=0.01)
        theirs.grad = gradient.clone()
        optimiser.step()
    torch.testing.assert_close(ours, theirs.detach())


def test_momentum_by_hand() -> None:
    moments = Moments(torch.tensor([1.0, -2.0]), torch.zeros(2), 3)
    params, after = momentum_update(
        torch.tensor([1.0, 1.0]), torch.tensor([0.5, 4.0]), moments, learning_rate=0.1, momentum=0.5
    )
    # 0.5 * 1 + 0.5 = 1 and 0.5 * -2 + 4 = 3
    torch.testing.assert_close(after.first, torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(params, torch.tensor([0.9, 0.7]))
    assert after.updates == 4
