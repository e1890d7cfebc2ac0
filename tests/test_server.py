import pytest
import torch

from cfcl import server
from cfcl.exchange.messages import SERVER, LocalModel
from cfcl.models import Weights
from tests.conftest import small


def model(source: int, value: float, weight: float) -> LocalModel:
    return LocalModel(source, SERVER, 4, torch.tensor([value, -value]), torch.tensor([10 * value]), weight)


@pytest.mark.equation("5")
def test_models_and_running_statistics_are_averaged_by_weight() -> None:
    found = server.aggregate([model(1, 4.0, 10.0), model(0, 1.0, 30.0)])
    # (30 * 1 + 10 * 4) / 40 = 1.75
    torch.testing.assert_close(found.params, torch.tensor([1.75, -1.75]))
    torch.testing.assert_close(found.buffers, torch.tensor([17.5]))


def test_the_average_does_not_depend_on_the_order_of_arrival() -> None:
    generator = torch.Generator().manual_seed(0)
    models = [LocalModel(i, SERVER, 4, torch.randn(50, generator=generator), torch.zeros(0), 1.0 + i) for i in range(7)]
    assert torch.equal(server.aggregate(models).params, server.aggregate(models[::-1]).params)


def test_all_devices_take_part_unless_a_number_is_set() -> None:
    assert server.participants(small(), 4) == (0, 1, 2, 3)


def test_a_subset_is_drawn_anew_for_each_aggregation() -> None:
    config = small("aggregation.num_devices=2")
    drawn = [server.participants(config, step) for step in range(4, 404, 4)]
    assert all(len(set(chosen)) == 2 for chosen in drawn)
    counts = [sum(i in chosen for chosen in drawn) for i in range(4)]
    # 100 draws of 2 in 4: about 50 each
    assert all(30 < count < 70 for count in counts)


def test_the_broadcast_reaches_everyone() -> None:
    messages = server.broadcast(Weights(torch.ones(2), torch.zeros(0)), range(3), 8)
    assert [(message.source, message.target, message.step) for message in messages] == [
        (-1, 0, 8),
        (-1, 1, 8),
        (-1, 2, 8),
    ]
