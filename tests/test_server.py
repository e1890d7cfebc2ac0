from itertools import permutations

import pytest
import torch

from cfcl import server
from cfcl.exchange.messages import SERVER, LocalModel
from cfcl.models import Weights
from cfcl.server import ServerState
from tests.conftest import small


def model(source: int, value: float, weight: float) -> LocalModel:
    return LocalModel(source, SERVER, 4, torch.tensor([value, -value]), torch.tensor([10 * value]), weight)


@pytest.mark.equation("5")
def test_models_and_running_statistics_are_averaged_by_weight() -> None:
    found = server.aggregate([model(1, 4.0, 10.0), model(0, 1.0, 30.0)])
    # (30 * 1 + 10 * 4) / 40 = 1.75
    torch.testing.assert_close(found.params, torch.tensor([1.75, -1.75]))
    torch.testing.assert_close(found.buffers, torch.tensor([17.5]))


@pytest.mark.parametrize("arrival", list(permutations(range(3))))
def test_models_are_summed_in_the_order_of_devices_whatever_that_of_arrival(arrival: tuple[int, ...]) -> None:
    values = [1e30, -1e30, 3.0]
    found = server.aggregate([model(i, values[i], 1.0) for i in arrival])
    # (1e30 - 1e30 + 3) / 3; in any order that parts the first two the 3 is lost
    assert found.params.tolist() == [1.0, -1.0]
    assert found.buffers.tolist() == [10.0]


def test_models_are_summed_in_double_precision() -> None:
    found = server.aggregate([model(0, 2.0**24, 1.0), model(1, 1.0, 1.0), model(2, 1.0, 1.0)])
    # (16,777,216 + 1 + 1) / 3; in single precision the ones are lost
    assert found.params.tolist() == [5_592_406.0, -5_592_406.0]


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
    messages = server.broadcast(ServerState(Weights(torch.ones(2), torch.zeros(0)), (0, 1, 2)), 8)
    assert [(message.source, message.target, message.step) for message in messages] == [
        (-1, 0, 8),
        (-1, 1, 8),
        (-1, 2, 8),
    ]
