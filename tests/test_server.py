from dataclasses import replace
from itertools import permutations

import pytest
import torch

from cfcl import server
from cfcl.config import AggregationConfig
from cfcl.exchange.messages import SERVER, LocalModel, ModelBlock
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
    assert server.needs_all(small(f"aggregation.rule={rule}", "aggregation.clip=2"))


def clipped(some: ServerState, *overrides: str) -> ServerState:
    """The server after it has combined its models in blocks of two entries, as two processes would."""
    config = small(*overrides)
    measures = server.measure(config, some)
    parts = []
    for first, entries in ((0, server.stack(some)[:, :2]), (2, server.stack(some)[:, 2:])):
        block = ModelBlock(SERVER, SERVER, 4, entries, first, measures)
        weights = None if measures is None else measures[:, 0]
        parts.append(server.combine(config, server.clipped(config, some, block), weights))
    return server.finish(some, torch.cat(parts))


MODELS = (model(0, 1.0, 30.0), model(1, 2.0, 10.0), model(2, -50.0, 20.0))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # A model of value v is at a distance of |v| sqrt(1 + 1 + 100) from the global one at 0: the median is of v = 2.
        (("aggregation.clip=1",), 10 / 60),  # -50 becomes -2: (30 + 20 - 40) / 60
        (("aggregation.clip=2",), -30 / 60),  # -50 becomes -4: (30 + 20 - 80) / 60
        (("aggregation.clip=0.5",), 20 / 60),  # 1, 1 and -1: (30 + 10 - 20) / 60
        (("aggregation.clip=25",), -950 / 60),  # no model is further away
        (("aggregation.clip=1", "aggregation.rule=median"), 1.0),  # of 1, 2 and -2
        (("aggregation.clip=1", "aggregation.rule=trimmed", "aggregation.trim=0"), 1 / 3),
    ],
)
def test_clipping_bounds_how_far_one_model_can_pull_and_leaves_weights_alone(
    overrides: tuple[str, ...], expected: float
) -> None:
    found = clipped(state(*MODELS), *overrides).model
    torch.testing.assert_close(found.params, torch.tensor([expected, -expected]))
    torch.testing.assert_close(found.buffers, torch.tensor([10 * expected]))


@pytest.mark.parametrize(
    ("overrides", "one", "three"),
    [
        # Honest models moved from 0 to 1, poisoned ones to -10: (9 - 10) / 10, (7 - 30) / 10
        (("aggregation.clip=1000",), -0.1, -2.3),
        (("aggregation.clip=1",), 0.8, 0.4),  # -10 becomes -1
        (("aggregation.rule=median",), 1.0, 1.0),
        (("aggregation.rule=trimmed", "aggregation.trim=0.3"), 1.0, 1.0),
        (("aggregation.rule=trimmed", "aggregation.trim=0.1"), 1.0, -1.75),  # (6 - 20) / 8: two of three are left
        (("aggregation.rule=trimmed", "aggregation.trim=0.1", "aggregation.clip=1"), 1.0, 0.5),  # (6 - 2) / 8
    ],
)
def test_one_and_three_poisoned_models_of_ten(overrides: tuple[str, ...], one: float, three: float) -> None:
    for number, expected in ((1, one), (3, three)):
        models = [model(i, -10.0 if i < number else 1.0, 5.0) for i in range(10)]
        found = clipped(replace(state(*models), serves=tuple(range(10))), *overrides).model.params
        torch.testing.assert_close(found, torch.tensor([expected, -expected]))


def test_distances_are_from_the_global_model_and_of_all_that_is_averaged() -> None:
    some = replace(state(model(3, 4.0, 7.0)), model=Weights(torch.tensor([1.0, 0.0]), torch.tensor([40.0])))
    found = server.measure(small("aggregation.clip=1"), some)
    # 3, -4 and 0 from there
    assert found is not None
    assert found.tolist() == [[7.0, 5.0]]
    assert server.measure(small(), some) is None


def test_a_clip_that_reaches_nobody_is_the_mean_to_the_bit() -> None:
    values = torch.randn(3, generator=torch.Generator().manual_seed(1)).tolist()
    models = [model(i, value, 10.3 + i / 7) for i, value in enumerate(values)]
    found, plain = clipped(state(*models), "aggregation.clip=100").model, server.aggregate(models)
    assert torch.equal(found.params, plain.params)
    assert torch.equal(found.buffers, plain.buffers)


def test_with_no_model_clipping_leaves_the_old_one() -> None:
    assert clipped(state(), "aggregation.clip=1").model.params.tolist() == [0.0, 0.0]


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


def after(settings: AggregationConfig, *averages: float) -> list[ServerState]:
    """The server after each of these averages; it begins with parameters 1, -1 and buffers 10."""
    found = [server.begin(settings, Weights(torch.tensor([1.0, -1.0]), torch.tensor([10.0])), (0,), {})]
    for value in averages:
        total = server.start(found[-1])
        server.add(total, model(0, value, 3.0))
        found.append(server.improve(settings, found[-1], server.finish(found[-1], total)))
    return found[1:]


def test_the_average_is_the_global_model_unless_the_server_has_its_own_mind() -> None:
    one, two = after(AggregationConfig(), 3.0, 2.0)
    assert (one.model.params.tolist(), two.model.params.tolist()) == ([3.0, -3.0], [2.0, -2.0])
    assert (two.moments, two.smooth) == (None, None)
    assert two.result is two.model


def test_server_momentum_by_hand() -> None:
    one, two = after(AggregationConfig(server="momentum", server_momentum=0.5), 3.0, 2.0)
    # 1 - 3 = -2: 1 + 2 = 3; then 0.5 * -2 + (3 - 2) = 0: it stays
    assert one.model.params.tolist() == [3.0, -3.0]
    assert two.model.params.tolist() == [3.0, -3.0]
    # running statistics are averaged
    assert two.model.buffers.tolist() == [20.0]
    (half,) = after(AggregationConfig(server="momentum", server_rate=0.25), 3.0)
    assert half.model.params.tolist() == [1.5, -1.5]


def test_server_adam_by_hand() -> None:
    (one,) = after(AggregationConfig(server="adam", server_rate=0.1), 3.0)
    # gradient -2: the first step is 0.1 * 2 / (2 + 0.001) towards the average
    torch.testing.assert_close(one.model.params, torch.tensor([1.09995, -1.09995]))
    assert one.moments is not None
    torch.testing.assert_close(one.moments.second, torch.tensor([0.04, 0.04]))
    (default,) = after(AggregationConfig(server="adam"), 3.0)
    torch.testing.assert_close(default.model.params, torch.tensor([1.009995, -1.009995]))


def test_the_moving_average_is_what_is_left_behind() -> None:
    one, two = after(AggregationConfig(ema=0.75), 5.0, 2.0)
    # 0.75 * 1 + 0.25 * 5 = 2; 0.75 * 2 + 0.25 * 2 = 2; buffers 0.75 * 10 + 0.25 * 50 = 20, 0.75 * 20 + 0.25 * 20 = 20
    assert one.result.params.tolist() == [2.0, -2.0]
    assert two.result.params.tolist() == [2.0, -2.0]
    assert one.result.buffers.tolist() == two.result.buffers.tolist() == [20.0]
    assert two.model.params.tolist() == [2.0, -2.0]
    assert one.model.params.tolist() == [5.0, -5.0]


def test_a_server_that_gets_no_model_does_not_move() -> None:
    settings = AggregationConfig(server="momentum", ema=0.5)
    (state,) = after(settings, 3.0)
    silent = server.improve(settings, state, server.finish(state, server.start(state)))
    assert silent.model is state.model
    assert silent.moments is state.moments
    assert silent.smooth is state.smooth
