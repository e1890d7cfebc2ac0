from dataclasses import replace
from typing import Any

import pytest
import torch

from cfcl import device, objectives, schedule
from cfcl.config import Config
from cfcl.core.optimisers import Moments
from cfcl.device import DeviceState, Setting
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.exchange.links import Budgets
from cfcl.exchange.messages import (
    SERVER,
    DataItems,
    DataReserve,
    EmbeddingItems,
    EmbeddingReserve,
    GlobalModel,
    PullRequest,
)
from cfcl.models import Encoder, Weights
from tests.conftest import small

SHAPE = (1, 8, 8)


def make_setting(config: Config, special: dict[tuple[int, int], tuple[int, int]] | None = None) -> Setting:
    policy = policies.find(config.exchange.method)
    return Setting(
        config=config,
        encoder=Encoder(config.model, SHAPE, seed=config.seed),
        policy=policy,
        schedule=schedule.build(config, once=policy.when == "start"),
        budgets=Budgets(
            config.exchange.num_pulled,
            config.exchange.num_reserve,
            special or {},
            num_candidates=config.exchange.num_candidates,
        ),
        objective=objectives.build(config),
    )


def images(number: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (number, *SHAPE), dtype=torch.uint8, generator=generator)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def moved(weights: Weights) -> Weights:
    """Other weights of the same kind."""
    return Weights(0.1 * numbers(*weights.params.shape), weights.buffers)


def begin(setting: Setting, number: int, points: torch.Tensor) -> DeviceState:
    """A device whose points lie scattered in a larger store, last one first."""
    store = torch.zeros(2 * len(points), *SHAPE, dtype=torch.uint8)
    places = torch.arange(len(points)) * 2
    store[places] = points.flip(0)
    return device.start(setting, number, store, places.flip(0))


def prepare(setting: Setting, state: DeviceState, step: int) -> DeviceState:
    (state,) = device.prepare(setting, [state], step)
    return state


def answer(setting: Setting, state: DeviceState, requests: list[PullRequest], step: int) -> list[device.Answer]:
    return device.answer(setting, [(state, requests)], step)


def pair(*overrides: str) -> tuple[Setting, DeviceState, DeviceState]:
    """Receiver 0 and transmitter 1, after the receiver's push has arrived."""
    setting = make_setting(small(*overrides))
    receiver, transmitter = (begin(setting, i, images(20, i)) for i in range(2))
    receiver, reserves = device.push(setting, receiver, 0, [1])
    for reserve in reserves:
        transmitter = device.store(transmitter, reserve)
    return setting, receiver, transmitter


def rows_of(points: torch.Tensor) -> set[bytes]:
    return {bytes(point.flatten().tolist()) for point in points}


def test_an_explicit_push_is_own_points_and_the_same_for_all() -> None:
    setting = make_setting(small())
    state = begin(setting, 0, images(20, 0))
    state, messages = device.push(setting, state, 0, [1, 3])
    assert [(message.source, message.target) for message in messages] == [(0, 1), (0, 3)]
    for message in messages:
        assert isinstance(message, DataReserve)
        assert len(message.points) == 3
        assert rows_of(message.points) <= rows_of(state.points.all())
        assert rows_of(message.points) == rows_of(messages[0].points)  # type: ignore[union-attr]


@pytest.mark.equation("13")
def test_an_implicit_push_is_embeddings_under_the_global_model() -> None:
    setting = make_setting(small("exchange.mode=implicit"))
    state = begin(setting, 0, images(20, 0))
    state = replace(state, weights=Weights(state.weights.params * 2 + 1, state.weights.buffers))
    state, (message,) = device.push(setting, state, 0, [1])
    assert isinstance(message, EmbeddingReserve)
    expected = setting.encoder.embed(state.anchor, state.points[state.own_reserve[3]])
    assert torch.equal(message.embeddings, expected)


@pytest.mark.parametrize("method", ["uniform", "kmeans"])
def test_blind_baselines_push_nothing(method: str) -> None:
    _, _, transmitter = pair(f"exchange.method={method}")
    assert transmitter.reserves == {}


def test_budgets_differ_by_link_and_none_means_no_push() -> None:
    setting = make_setting(small(), {(1, 0): (4, 6), (2, 0): (0, 5), (4, 0): (1, 1)})
    state = begin(setting, 0, images(20, 0))
    _, messages = device.push(setting, state, 0, [1, 2, 3, 4])
    assert {m.target: len(m.points) for m in messages if isinstance(m, DataReserve)} == {1: 6, 3: 3, 4: 1}
    wanted = {message.target: message.num_items for message in device.request(setting, state, 3, [1, 2, 3, 4])}
    assert wanted == {1: 4, 3: 2, 4: 1}


@pytest.mark.parametrize("method", ["cfcl", "uniform", "kmeans", "bulk"])
def test_an_explicit_answer_is_the_transmitters_own_points(method: str) -> None:
    setting, receiver, transmitter = pair(f"exchange.method={method}")
    (request,) = device.request(setting, receiver, 3, [1])
    transmitter = prepare(setting, transmitter, 3)
    (reply,) = answer(setting, transmitter, [request], 3)
    assert isinstance(reply.items, DataItems)
    assert (reply.items.source, reply.items.target) == (1, 0)
    # bulk: floor(11 / 3) = 3 exchanges of 2 items at once
    assert len(reply.items.points) == (6 if method == "bulk" else 2)
    assert torch.equal(reply.items.points, transmitter.points[reply.positions])


@pytest.mark.equation("7", "14")
def test_an_implicit_answer_is_embeddings_of_candidates() -> None:
    setting, receiver, transmitter = pair("exchange.mode=implicit")
    transmitter = prepare(setting, transmitter, 3)
    assert transmitter.candidates is not None
    assert len(set(transmitter.candidates.positions.tolist())) == 8
    (reply,) = answer(setting, transmitter, device.request(setting, receiver, 3, [1]), 3)
    assert isinstance(reply.items, EmbeddingItems)
    expected = setting.encoder.embed(transmitter.anchor, transmitter.points[reply.positions])
    torch.testing.assert_close(reply.items.embeddings, expected)


def test_candidates_of_a_blind_policy_are_neither_embedded_nor_clustered() -> None:
    setting, _, transmitter = pair("exchange.method=uniform")
    candidates = prepare(setting, transmitter, 3).candidates
    assert candidates is not None
    assert candidates.payload.shape == (8, *SHAPE)
    assert candidates.embeddings.shape == (0, 16)
    assert candidates.clusters.assignment.shape == (1, 0)
    assert candidates.clusters.counts.tolist() == [[0, 0, 0]]


def test_reserves_of_different_sizes_are_answered_together() -> None:
    config = small()
    setting = make_setting(config, {(1, 0): (2, 5)})
    transmitter = begin(setting, 1, images(20, 1))
    for other in (0, 2):
        _, messages = device.push(setting, begin(setting, other, images(20, other)), 0, [1])
        transmitter = device.store(transmitter, messages[0])
    transmitter = prepare(setting, transmitter, 3)
    requests = [PullRequest(0, 1, 3, 2), PullRequest(2, 1, 3, 3)]
    replies = answer(setting, transmitter, requests, 3)
    assert [(reply.items.target, len(reply.positions)) for reply in replies] == [(0, 2), (2, 3)]


def test_many_links_are_answered_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = make_setting(small())
    transmitters = [begin(setting, number, images(20, number)) for number in range(5)]
    _, reserves = device.push(setting, begin(setting, 9, images(20, 9)), 0, range(5))
    transmitters = [device.store(state, reserve) for state, reserve in zip(transmitters, reserves, strict=True)]

    def answers() -> list[device.Answer]:
        prepared = device.prepare(setting, transmitters, 3)
        return device.answer(setting, [(state, [PullRequest(9, state.id, 3, 2)]) for state in prepared], 3)

    together = answers()
    monkeypatch.setattr("cfcl.device.transmitter.MOST_TOGETHER", 2)
    apart = answers()
    assert [reply.items.source for reply in together] == [reply.items.source for reply in apart] == [0, 1, 2, 3, 4]
    assert [reply.positions.tolist() for reply in together] == [reply.positions.tolist() for reply in apart]


def test_candidates_are_redrawn_per_pull_or_per_aggregation() -> None:
    def positions(option: str, step: int) -> list[int]:
        setting, _, transmitter = pair(f"exchange.candidates={option}")
        prepared = prepare(setting, transmitter, step).candidates
        assert prepared is not None
        return prepared.positions.tolist()

    assert positions("per_pull", 5) != positions("per_pull", 6)
    assert positions("per_aggregation", 5) == positions("per_aggregation", 6)
    assert positions("per_aggregation", 6) != positions("per_aggregation", 9)


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_relay_may_pass_on_what_was_pulled(mode: str) -> None:
    setting, _, transmitter = pair("exchange.candidates=relay", f"exchange.mode={mode}", "exchange.num_candidates=20")
    remote = images(30, 9) if mode == "explicit" else numbers(30, 16)
    transmitter = prepare(setting, replace(transmitter, pulled=remote), 3)
    assert transmitter.candidates is not None
    positions, payload = transmitter.candidates.positions, transmitter.candidates.payload
    passed_on = positions >= 20
    assert 0 < int(passed_on.sum()) < 20
    assert torch.equal(payload[passed_on], remote[positions[passed_on] - 20])


def test_importance_under_the_local_model_differs_from_the_global_one() -> None:
    laws = []
    for option in ("global", "local"):
        setting, _, transmitter = pair(f"exchange.importance_model={option}")
        transmitter = prepare(setting, replace(transmitter, weights=moved(transmitter.weights)), 3)
        assert transmitter.candidates is not None
        laws.append(transmitter.candidates.embeddings)
    assert not torch.allclose(laws[0], laws[1])


@pytest.mark.parametrize(
    ("buffer", "mode", "expected"),
    [
        ("purge", "explicit", [3, 4]),
        ("limit", "implicit", [2, 3, 4]),
        ("keep", "implicit", [1, 2, 3, 4]),
        ("lasting", "explicit", [1, 2, 3, 4]),
        ("lasting", "implicit", [3, 4]),
    ],
)
def test_the_buffer_purges_limits_or_keeps(buffer: str, mode: str, expected: list[int]) -> None:
    config = small(f"exchange.buffer={buffer}", f"exchange.mode={mode}", "exchange.buffer_size=3")
    assert device.retain(config, torch.tensor([1, 2]), torch.tensor([3, 4])).tolist() == expected


def test_absorbed_points_join_the_batches_and_the_weight() -> None:
    setting, receiver, _ = pair()
    receiver = device.absorb(setting, receiver, [DataItems(1, 0, 3, images(10, 7))], 3)
    before = receiver
    receiver, report = device.local_step(setting, receiver, 3)
    # half of the triplets are cross pairs: half of one point in two is pulled
    assert report.pulled_share == 0.25
    assert receiver.active == report.active
    sent = device.upload(setting, receiver, 4)
    assert (sent.source, sent.target, sent.step) == (0, SERVER, 4)
    assert torch.equal(sent.params, receiver.weights.params)
    # 20 own and 10 pulled points
    assert sent.weight == 30.0
    assert torch.equal(before.weights.params, setting.encoder.initial.params)
    assert not torch.equal(receiver.weights.params, before.weights.params)


@pytest.mark.parametrize(
    "overrides", [(), ("train.negatives=batch",), ("augment.noise=0.1", "augment.blur=1.0")], ids=" ".join
)
def test_batches_drawn_together_are_those_drawn_alone(overrides: tuple[str, ...]) -> None:
    setting = make_setting(small(*overrides))
    store = images(60, 1)
    parts = torch.split(torch.randperm(60, generator=torch.Generator().manual_seed(2)), [10, 20, 30])
    states = [device.start(setting, number, store, places) for number, places in enumerate(parts)]
    states[1] = device.absorb(setting, states[1], [DataItems(0, 1, 3, images(7, 7))], 3)

    together = device.draw_batches(setting, states, 4)

    for state, batch in zip(states, together, strict=True):
        (alone,) = device.draw_batches(setting, [state], 4)
        assert torch.equal(batch.images, alone.images)
        assert torch.equal(batch.by_role, alone.by_role)
        assert torch.equal(batch.positions, alone.positions)
        own = rows_of(store[parts[state.id]]) | rows_of(state.pulled)
        anchors, _, negatives = (batch.by_role * 255).round().to(torch.uint8)
        assert rows_of(anchors) | rows_of(negatives) <= own


@pytest.mark.equation("5")
def test_the_weight_is_the_mean_over_the_updates_since_the_last_aggregation() -> None:
    setting, state, _ = pair()
    state, _ = device.local_step(setting, state, 0)
    state = device.absorb(setting, state, [DataItems(1, 0, 1, images(10, 7))], 1)
    for step in (1, 2):
        state, _ = device.local_step(setting, state, step)
    # (20 + 30 + 30) / 3
    assert device.upload(setting, state, 3).weight == pytest.approx(80 / 3)


def adopted(state: DeviceState, setting: Setting, value: float) -> DeviceState:
    params = torch.full_like(state.weights.params, value)
    return device.adopt(setting, state, GlobalModel(SERVER, 0, 4, params, state.weights.buffers))


def test_fedema_mixes_by_distance_with_a_scaler_of_the_first_time() -> None:
    setting = make_setting(small("aggregation.adopt=fedema"))
    state = begin(setting, 0, images(20, 0))
    zeros = torch.zeros_like(state.weights.params)
    first = adopted(replace(state, weights=Weights(zeros, state.weights.buffers)), setting, 1.0)
    # 0.7 of its own zeros and 0.3 of ones
    torch.testing.assert_close(first.weights.params, zeros + 0.3)
    assert torch.equal(first.anchor.params, zeros + 1.0)
    # now 0.35 apart, then 1: mu = 0.7 * 0.35 = 0.245
    second = adopted(first, setting, 0.65)
    torch.testing.assert_close(second.weights.params, zeros + (0.245 * 0.3 + 0.755 * 0.65))
    assert second.scaler == first.scaler > 0
    # three times as far as at first: mu = 1
    torch.testing.assert_close(adopted(first, setting, 3.3).weights.params, zeros + 0.3)


def test_without_fedema_the_global_model_is_taken_as_it_is() -> None:
    setting = make_setting(small())
    state = adopted(begin(setting, 0, images(20, 0)), setting, 0.5)
    assert set(state.weights.params.tolist()) == {0.5}
    assert state.scaler == 0.0


def test_schedule_and_decay_act_on_the_update() -> None:
    def change(*overrides: str, step: int = 0) -> torch.Tensor:
        setting = make_setting(small("train.optimiser=sgd", *overrides))
        state = begin(setting, 0, images(20, 0))
        return device.local_step(setting, state, step)[0].weights.params - state.weights.params

    plain = change()
    torch.testing.assert_close(change("train.warmup=4"), plain / 4, rtol=1e-3, atol=1e-7)
    # half-way: half of the step size
    torch.testing.assert_close(change("train.schedule=cosine", step=6), change(step=6) / 2, rtol=1e-3, atol=1e-7)
    initial = make_setting(small()).encoder.initial.params
    torch.testing.assert_close(change("train.weight_decay=2"), plain - 0.002 * initial, rtol=1e-3, atol=1e-7)


def test_a_target_may_stay_at_its_device() -> None:
    for where, sent, kept in (("average", {"target"}, 2.0), ("local", set(), 3.0)):
        config = small("train.objective=byol", f"aggregation.target={where}")
        setting = make_setting(config)
        setting = replace(setting, extras={"target": torch.zeros(2)})
        state = replace(begin(setting, 0, images(20, 0)), extras={"target": torch.full((2,), 3.0)})
        message = device.upload(setting, state, 4)
        assert message.extras.keys() == setting.averaged.keys() == sent
        average = {name: torch.full((2,), 2.0) for name in sent}
        state = device.adopt(setting, state, GlobalModel(SERVER, 0, 4, *state.weights, average))
        assert state.extras["target"].tolist() == [kept, kept]


@pytest.mark.equation("24")
def test_absorbing_embeddings_sets_the_margin_from_own_clusters() -> None:
    setting, state, _ = pair("exchange.mode=implicit", "exchange.num_clusters=1", "regulariser.radius_factor=3")
    state = prepare(setting, state, 3)
    state = device.absorb(setting, state, [EmbeddingItems(1, 0, 3, torch.zeros(2, 16))], 3)
    assert state.candidates is not None
    embeddings = setting.encoder.embed(state.anchor, state.points[state.candidates.positions])
    farthest = max(float((row - embeddings.mean(0)).norm()) for row in embeddings)
    assert state.margin == pytest.approx(3 * farthest, rel=1e-5)


def test_embeddings_act_through_the_regulariser_and_not_through_batches() -> None:
    setting, state, _ = pair("exchange.mode=implicit")
    alone, plain = device.local_step(setting, state, 3)
    near = setting.encoder.embed(state.anchor, state.points.all()[:2])
    state = device.absorb(setting, prepare(setting, state, 3), [EmbeddingItems(1, 0, 3, near)], 3)
    together, report = device.local_step(setting, state, 3)
    assert (plain.weight, plain.regulariser) == (0.0, 0.0)
    assert report.weight > 0
    assert report.regulariser > 0
    assert report.triplet == plain.triplet
    assert report.loss == pytest.approx(report.triplet + report.weight * report.regulariser, rel=1e-5)
    assert report.pulled_share == 0.0
    assert not torch.equal(alone.weights.params, together.weights.params)
    # implicit items are no datapoints: the weight stays |D_i|
    assert device.upload(setting, together, 4).weight == 20.0


def test_stale_embeddings_weigh_less_when_age_counts() -> None:
    setting, state, _ = pair("exchange.mode=implicit", "regulariser.staleness=age", "aggregation.period=12")
    state = prepare(setting, state, 0)
    weights = []
    for pulled_at in (0, 3):
        items = [EmbeddingItems(1, 0, pulled_at, torch.zeros(2, 16))]
        weights.append(device.local_step(setting, device.absorb(setting, state, items, pulled_at), 3)[1].weight)
    # same step; age 3 of period 3: e^(0.25 - 1), age 0: e^0.25. The difference: 1.284025 - 0.472367
    assert weights[1] - weights[0] == pytest.approx(0.811659, abs=1e-5)


def test_fedprox_pulls_towards_the_global_model() -> None:
    distances = []
    for weight in (0.0, 100.0):
        setting, state, _ = pair(f"train.fedprox={weight}", "train.optimiser=sgd", "train.learning_rate=0.005")
        for step in range(5):
            state, _ = device.local_step(setting, state, step)
        distances.append(float((state.weights.params - state.anchor.params).norm()))
    assert 0 < distances[1] < 0.7 * distances[0]


def test_training_lowers_the_loss() -> None:
    setting, state, _ = pair("train.batch_size=32", "train.learning_rate=0.003")
    reports = []
    for step in range(40):
        state, report = device.local_step(setting, state, step)
        reports.append(report.loss)
    assert sum(reports[-10:]) < 0.7 * sum(reports[:10])


@pytest.mark.parametrize(("moments", "count"), [("keep", 1), ("reset", 0)])
def test_adam_moments_at_adoption(moments: str, count: int) -> None:
    setting, state, _ = pair(f"aggregation.moments={moments}")
    state, _ = device.local_step(setting, state, 0)
    fresh = Weights(torch.ones_like(state.weights.params), state.weights.buffers)
    adopted = device.adopt(setting, state, GlobalModel(SERVER, 0, 4, *fresh))
    assert torch.equal(adopted.weights.params, fresh.params)
    assert torch.equal(adopted.anchor.params, fresh.params)
    assert adopted.moments.updates == count
    assert bool(adopted.moments.first.any()) == (count == 1)
    assert (adopted.points_seen, adopted.updates) == (0, 0)


@pytest.mark.parametrize(("buffers", "expected"), [("average", 5.0), ("local", 2.0)])
def test_running_statistics_at_adoption(buffers: str, expected: float) -> None:
    setting, state, _ = pair(f"aggregation.buffers={buffers}")
    state = replace(state, weights=Weights(state.weights.params, torch.tensor([2.0])))
    adopted = device.adopt(setting, state, GlobalModel(SERVER, 0, 4, state.weights.params, torch.tensor([5.0])))
    assert adopted.weights.buffers.tolist() == [expected]


def test_a_device_starts_with_the_global_model_and_nothing_else() -> None:
    setting = make_setting(small())
    state = begin(setting, 0, images(20, 0))
    zero = torch.zeros(setting.encoder.num_parameters)
    assert torch.equal(state.moments.first, zero)
    assert torch.equal(state.moments.second, zero)
    assert state.moments.updates == 0
    assert isinstance(state.moments, Moments)
    assert state.weights is state.anchor is setting.encoder.initial
    assert (len(state.pulled), state.pulled_at, state.margin, state.active) == (0, 0, 0.0, 1.0)
    assert (state.points_seen, state.updates) == (0, 0)
    assert (dict(state.own_reserve), dict(state.reserves), dict(state.sent)) == ({}, {}, {})
    assert state.candidates is None


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("exchange.num_reserve=21", r"exchange\.num_reserve=21 exceeds the 20 points of device 0: lower"),
        ("exchange.num_candidates=21", r"exchange\.num_candidates=21 exceeds the 20 points of device 0: lower"),
    ],
)
def test_a_device_with_too_few_points_is_refused(override: str, complaint: str) -> None:
    setting = make_setting(small(override))
    with pytest.raises(CfclError, match=complaint):
        device.check(setting, begin(setting, 0, images(20, 0)))
    blind = make_setting(small(override, "exchange.method=fedavg"))
    device.check(blind, begin(blind, 0, images(20, 0)))


def test_a_batch_larger_than_a_device_has_no_negatives_of_its_own() -> None:
    setting = make_setting(small("train.negatives=batch", "train.batch_size=21", "exchange.method=fedavg"))
    with pytest.raises(CfclError, match=r"train\.batch_size=21 exceeds the 20 points of device 0, but negatives"):
        device.check(setting, begin(setting, 0, images(20, 0)))


@pytest.mark.parametrize("overrides", [(), ("exchange.mode=implicit",), ("train.negatives=batch",)], ids=" ".join)
def test_open_triplets_alone_give_the_gradient_of_the_whole_batch(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, _, state = pair(*overrides, "train.batch_size=16", "train.margin=0.05", "train.optimiser=sgd")
    if "exchange.mode=implicit" in overrides:
        received = setting.encoder.embed(state.anchor, images(5, 7))
        state = device.absorb(setting, prepare(setting, state, 3), [EmbeddingItems(0, 1, 3, received)], 3)
    for step in range(3, 6):
        results = []
        for threshold in (0.0, 2.0):
            monkeypatch.setattr("cfcl.device.training.WORTHWHILE", threshold)
            results.append(device.local_step(setting, state, step))
        (whole, first), (few, second) = results
        assert 0 < first.active < 1  # some hinges are closed
        torch.testing.assert_close(few.weights.params, whole.weights.params, atol=1e-6, rtol=1e-4)
        assert vars(first) == pytest.approx(vars(second), rel=1e-4)
        assert few.active == whole.active
        if "exchange.mode=implicit" not in overrides:
            assert whole.active == first.active
        assert not torch.equal(few.weights.params, state.weights.params)
        state = whole


def test_a_batch_without_an_open_triplet_moves_nothing() -> None:
    # Without augmentation an anchor is its own positive, so every hinge is closed at a margin of next to nothing.
    settings = ("augment.rotation=0", "augment.perspective=0", "train.margin=1e-9", "train.optimiser=sgd")
    setting, _, state = pair(*settings)
    moved, report = device.local_step(setting, replace(state, active=0.0), 3)
    assert report.active == 0.0
    assert torch.equal(moved.weights.params, state.weights.params)
    assert moved.updates == 1


def shown(setting: Setting, transmitter: DeviceState) -> policies.Pull:
    """What the policy sees when device 0 asks."""
    seen: list[policies.Pull] = []

    def choose(pull: policies.Pull) -> policies.Choice:
        seen.append(pull)
        return policies.choose_uniform(pull)

    watched = replace(setting, policy=replace(setting.policy, choose=choose))
    answer(watched, prepare(watched, transmitter, 3), [PullRequest(0, 1, 3, 2)], 3)
    return seen[0]


def test_the_oracle_alone_is_told_which_labels_are_lacking() -> None:
    setting, _, transmitter = pair("exchange.method=oracle", "exchange.num_candidates=20")
    told = replace(setting, lacks=lambda sender, positions, receiver: positions == 10 * sender + receiver)
    lacked = shown(told, transmitter).candidates.lacked
    assert lacked is not None
    assert lacked.sum() == 1  # the point at 10 of transmitter 1, for receiver 0
    assert shown(*pair()[::2]).candidates.lacked is None


def test_numbers_of_a_reserve_reach_the_policy() -> None:
    setting, _, transmitter = pair()
    assert shown(setting, transmitter).reserve.numbers is None
    reserve = transmitter.reserves[0]
    assert isinstance(reserve, DataReserve)
    numbered = device.store(transmitter, replace(reserve, numbers=torch.tensor([1.0, 2.0, 4.0])))
    found = shown(setting, numbered).reserve.numbers
    assert found is not None
    assert found.tolist() == [[1.0, 2.0, 4.0]]


def test_as_a_control_candidates_are_scored_against_another_reserve() -> None:
    setting, _, transmitter = pair("exchange.method=cover", "exchange.against=another")
    own = shown(setting, transmitter).reserve.numbers  # nobody else has pushed any
    _, (reserve,) = device.push(setting, begin(setting, 2, images(20, 2)), 0, [1])
    assert isinstance(reserve, DataReserve)
    both = device.store(transmitter, reserve)

    found = shown(setting, both).reserve

    assert own is not None
    assert found.numbers is not None
    assert found.points is not None
    assert reserve.numbers is not None
    assert torch.equal(found.numbers[0], reserve.numbers)
    assert torch.equal(found.points[0], device.transmitter.pixels(reserve.points))
    assert not torch.equal(found.numbers, own)


def test_reasons_are_given_on_request() -> None:
    for explain in (False, True):
        setting, _, transmitter = pair(f"records.explain={str(explain).lower()}")
        (reply,) = answer(setting, prepare(setting, transmitter, 3), [PullRequest(0, 1, 3, 2)], 3)
        assert reply.reasons.count('"index"') == (2 if explain else 0)


def test_bulk_offers_all_points_in_order() -> None:
    setting, _, transmitter = pair("exchange.method=bulk")
    assert shown(setting, transmitter).candidates.embeddings.shape[1] == 20
    candidates = prepare(setting, transmitter, 0).candidates
    assert candidates is not None
    assert candidates.positions.tolist() == list(range(20))


@pytest.mark.parametrize(("active", "expected"), [(1.0, False), (0.5, False), (0.49, True)])
def test_open_triplets_go_alone_where_fewer_than_half_were_open(
    active: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, _, state = pair("train.optimiser=sgd")
    monkeypatch.setattr(
        "cfcl.device.training._open_gradient", lambda *_: (torch.zeros_like(state.weights.params), torch.zeros(0))
    )
    moved, _ = device.local_step(setting, replace(state, active=active), 3)
    assert torch.equal(moved.weights.params, state.weights.params) is expected


def test_only_encoders_that_embed_each_image_by_itself_may_leave_some_out() -> None:
    assert Encoder(small().model, SHAPE, seed=0).is_pure
    with_batch_norm = small("model.encoder=slim-resnet18")
    assert not Encoder(with_batch_norm.model, SHAPE, seed=0).is_pure
    assert Encoder(small("model.encoder=slim-resnet18", "model.norm=group").model, SHAPE, seed=0).is_pure
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    assert not Encoder(small().model, SHAPE, seed=0, module=module).is_pure


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
@pytest.mark.parametrize("need", ["embeddings", "pixels", "nothing"])
def test_a_policy_sees_what_it_needs_and_nothing_else(need: str, mode: str) -> None:
    seen: list[policies.Pull] = []

    def choose(pull: policies.Pull) -> policies.Choice:
        seen.append(pull)
        return policies.choose_uniform(pull)

    setting, receiver, transmitter = pair(f"exchange.mode={mode}")
    needs = frozenset[Any]() if need == "nothing" else frozenset[Any]({need})
    policy = policies.Policy(policies.push_reserve, choose, needs)
    setting = replace(setting, policy=policy)
    answer(setting, prepare(setting, transmitter, 3), device.request(setting, receiver, 3, [1]), 3)
    (pull,) = seen
    explicit = mode == "explicit"
    assert (pull.candidates.points is not None, pull.reserve.points is not None) == (
        (need == "pixels") and explicit,
    ) * 2
    embedded = need == "embeddings" or not explicit
    assert (pull.candidates.embeddings.shape[2] > 0, pull.reserve.embeddings is not None) == (embedded, embedded)
    assert (pull.reserve.positives is not None) == (embedded and explicit)
    assert (pull.candidates.sent, pull.candidates.lacked) == (None, None)
