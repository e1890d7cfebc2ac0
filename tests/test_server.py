from dataclasses import replace
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


def test_one_model_is_its_own_average() -> None:
    assert server.aggregate([model(2, 4.0, 10.0)]).params.tolist() == [4.0, -4.0]


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


def state(*models: LocalModel) -> ServerState:
    return ServerState(Weights(torch.zeros(2), torch.zeros(1)), (0, 1, 2, 3), models=models)


@pytest.mark.parametrize(("rule", "expected"), [("median", 4.0), ("trimmed", 27.25)])
def test_rules_that_need_all_models_work_entry_by_entry_without_weights(rule: str, expected: float) -> None:
    config = small(f"aggregation.rule={rule}", "aggregation.trim=0.2")
    some = state(model(0, 6.0, 90.0), model(1, 1.0, 10.0), model(2, 100.0, 1.0), model(3, 2.0, 5.0))
    rows = server.stack(some)
    # parameters, buffers, and a one that says that there is a model
    assert rows[1].tolist() == [1.0, -1.0, 10.0, 1.0]
    found = server.finish(
        some, torch.cat([server.combine(config, part) for part in torch.split(rows, [2, 1, 1], dim=1)])
    )
    # of 1, 2, 6 and 100: (2 + 6) / 2, and 109 / 4, as a fifth of four models is less than one
    assert found.model.params.tolist() == [expected, -expected]
    assert found.model.buffers.tolist() == [10 * expected]
    assert found.model.params.dtype == torch.float32


@pytest.mark.parametrize(("rule", "expected"), [("mean", False), ("median", True), ("trimmed", True)])
def test_the_mean_alone_is_a_sum(rule: str, expected: bool) -> None:
    assert server.needs_all(small(f"aggregation.rule={rule}")) is expected


def test_extras_follow_the_same_rule_and_no_model_leaves_the_old_one() -> None:
    config, old = small("aggregation.rule=median"), ServerState(Weights(torch.ones(1), torch.zeros(0)), (0, 1))
    old = replace(old, extras={"target": torch.zeros(2)})
    assert server.stack(old).shape == (0, 4)
    assert server.finish(old, server.combine(config, server.stack(old))).model is old.model
    sent = [
        LocalModel(i, SERVER, 4, torch.tensor([i + 1.0]), torch.zeros(0), 1.0, {"target": torch.tensor([i, -5.0])})
        for i in (0, 1)
    ]
    found = server.finish(old, server.combine(config, server.stack(replace(old, models=tuple(sent)))))
    assert found.model.params.tolist() == [1.5]
    assert found.extras["target"].tolist() == [0.5, -5.0]


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
