"""What is joined to what: the right stream, model, margin and memory at the right step and device."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import pytest
import torch

import cfcl
from cfcl import device, rng
from cfcl.config import Config
from cfcl.core import importance, metrics
from cfcl.data.augment import augment
from cfcl.device import Answer, DeviceState, Setting
from cfcl.errors import CfclError
from cfcl.exchange.messages import DataItems, EmbeddingItems, EmbeddingReserve, PullRequest
from cfcl.models import as_input
from tests.conftest import small
from tests.test_device import answer, begin, images, make_setting, moved, pair, prepare

IMPLICIT = "exchange.mode=implicit"
DEVICES, STEPS = range(4), range(12)
EXCHANGES = (3, 6, 9)
LINKS = [(0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (2, 3), (3, 0), (3, 2)]  # a ring of four, transmitter first

Name = tuple[str | int, ...]


def named(word: str, *numbers: Iterable[int]) -> set[Name]:
    return {(word, *some) for some in product(*numbers)}


def on_links(word: str) -> set[Name]:
    return {(word, j, i, step) for (j, i), step in product(LINKS, EXCHANGES)}


ALWAYS = {
    *(
        (word,)
        for word in ("partition", "graph", "health", "health-augment", "health-devices", "probe", "label-map", "model")
    ),
    *named("batch", DEVICES, STEPS),
    *named("augment", DEVICES, STEPS),
}
PULLED = {("traced",), *named("candidates", DEVICES, EXCHANGES), *named("own-clusters", DEVICES, EXCHANGES)}
STREAMS: dict[tuple[str, ...], set[Name]] = {
    (): {
        *PULLED,
        *named("reserve", DEVICES, [0]),
        *named("reserve-augment", DEVICES, EXCHANGES),
        *on_links("clusters"),
        *on_links("draw"),
    },
    (IMPLICIT, "exchange.num_reserve_clusters=2", "exchange.reserve=random", "train.negatives=batch"): {
        *PULLED,
        *named("reserve", DEVICES, [0]),
        *on_links("reserve-clusters"),
        *on_links("draw"),
    },
    ("exchange.method=kmeans", "exchange.candidates=per_aggregation", "aggregation.num_devices=2"): {
        ("traced",),
        *named("candidates", DEVICES, [0, 4, 8]),
        *named("own-clusters", DEVICES, EXCHANGES),
        *named("representatives", DEVICES, EXCHANGES),
        *named("participants", [4, 8, 12]),
    },
}


@pytest.mark.parametrize("overrides", STREAMS, ids=" ".join)
def test_every_random_stream_has_the_name_of_what_it_is_for(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: set[tuple[int, Name]] = set()
    real = rng.stream

    def stream(seed: int, *names: str | int) -> torch.Generator:
        drawn.add((seed, names))
        return real(seed, *names)

    monkeypatch.setattr(rng, "stream", stream)
    cfcl.run(small("seed=7", *overrides), engine="loop")

    assert {seed for seed, _ in drawn} == {7}
    assert {names for _, names in drawn} == ALWAYS | STREAMS[overrides]


# Eq. (10) and (11) of a pull: with one cluster of candidates and reserve the law is the softmax alone

SHARP = ("exchange.num_clusters=1", "train.margin=0.02", "exchange.temperature_start=0", "exchange.temperature_end=600")


def reply(setting: Setting, state: DeviceState, step: int) -> Answer:
    (found,) = answer(setting, prepare(setting, state, step), [PullRequest(0, 1, step, 2)], step)
    return found


@pytest.mark.parametrize("model", ["global", "local"])
def test_candidates_are_scored_by_the_loss_of_eq_10_at_the_temperature_of_the_step(model: str) -> None:
    setting, receiver, transmitter = pair(*SHARP, f"exchange.importance_model={model}")
    transmitter = replace(transmitter, weights=moved(transmitter.weights))

    found = reply(setting, transmitter, 3).effective_candidates

    weights = transmitter.weights if model == "local" else transmitter.anchor
    reserve = as_input(receiver.points[receiver.own_reserve[3]], torch.device("cpu"))
    # the augmentation is named by the receiver, 0, and the step
    altered = augment(reserve, setting.config.augment, rng.stream(0, "reserve-augment", 0, 3))
    state = prepare(setting, transmitter, 3)
    assert state.candidates is not None
    embedded = [setting.encoder.embed(weights, some) for some in (reserve, altered, state.candidates.payload)]

    def effective(*embeddings: torch.Tensor, margin: float = 0.02) -> float:
        losses = importance.expected_loss(*embeddings, margin=margin)
        # a quarter of the way from 0 to 600
        return float(metrics.effective_number((150 * losses).softmax(dim=-1)))

    assert found == pytest.approx(effective(*embedded), rel=1e-5)
    anchors, positives, candidates = embedded
    # neither the margin nor the positives are without effect here
    assert effective(*embedded, margin=0.5) != pytest.approx(found, rel=1e-3)
    assert effective(anchors, anchors, candidates) != pytest.approx(found, rel=1e-3)
    assert effective(positives, anchors, candidates) != pytest.approx(found, rel=1e-3)


def test_the_later_the_sharper() -> None:
    # the same candidates and positives at every step, so that the temperature alone differs
    still = ("augment.rotation=0", "augment.perspective=0", "exchange.candidates=per_aggregation", "train.margin=0.5")

    def sharpness(*overrides: str) -> list[float]:
        setting, _, transmitter = pair(*SHARP, *still, "aggregation.period=12", *overrides)
        return [reply(setting, transmitter, step).effective_candidates for step in (0, 3, 6, 9)]

    rising = sharpness()
    assert rising[0] == pytest.approx(8.0)  # temperature 0: all eight are alike
    assert rising == sorted(rising, reverse=True)
    assert rising[3] < 0.9 * rising[0]
    falling = sharpness("exchange.temperature_start=600", "exchange.temperature_end=0")
    assert falling == sorted(falling)
    # half-way both are at 300
    assert falling[2] == rising[2]


# What was sent

KEEPING = ("exchange.method=novel", "exchange.buffer=keep", "exchange.num_candidates=20", "exchange.num_pulled=6")


def sent_in_three_pulls(setting: Setting, receiver: DeviceState, state: DeviceState) -> tuple[DeviceState, list[int]]:
    positions: list[int] = []
    for step in (3, 6, 9):
        state = prepare(setting, state, step)
        replies = answer(setting, state, device.request(setting, receiver, step, [1]), step)
        state = device.remember(setting, state, replies)
        positions += replies[0].positions.tolist()
    return state, positions


@pytest.mark.parametrize("overrides", [(), (IMPLICIT,), ("exchange.buffer=limit",)], ids=" ".join)
def test_nothing_goes_twice_over_a_link_whose_receiver_keeps_it(overrides: tuple[str, ...]) -> None:
    setting, receiver, transmitter = pair(*KEEPING, *overrides)
    state, positions = sent_in_three_pulls(setting, receiver, transmitter)
    assert len(set(positions)) == len(positions) == 18
    assert state.sent.keys() == {0}
    assert state.sent[0].tolist() == positions


@pytest.mark.parametrize("overrides", [(*KEEPING, "exchange.buffer=purge"), ("exchange.buffer=keep",)], ids=" ".join)
def test_nothing_is_noted_where_receivers_keep_nothing_or_the_policy_does_not_ask(overrides: tuple[str, ...]) -> None:
    setting, receiver, transmitter = pair(*overrides)
    state, _ = sent_in_three_pulls(setting, receiver, transmitter)
    assert state.sent == {}


def test_what_one_receiver_has_had_may_go_to_another_and_relayed_items_are_not_noted() -> None:
    setting, _, transmitter = pair(*KEEPING)
    note = [
        Answer(DataItems(1, 0, 3, images(3, 1)), torch.tensor([4, 21, 7]), torch.zeros(0, 16), 1.0),
        Answer(DataItems(1, 2, 3, images(2, 1)), torch.tensor([7, 30]), torch.zeros(0, 16), 1.0),
    ]
    state = device.remember(setting, transmitter, note)
    # the device holds 20 points of its own: 21 and 30 are pulled ones
    assert {target: some.tolist() for target, some in state.sent.items()} == {0: [4, 7], 2: [7]}
    state = device.remember(setting, state, note[1:])
    assert {target: some.tolist() for target, some in state.sent.items()} == {0: [4, 7], 2: [7, 7]}


@pytest.mark.equation("13")
@pytest.mark.parametrize("model", ["global", "local", "both_local"])
def test_a_reserve_is_embedded_by_the_receivers_own_model_only_if_both_ends_are_local(model: str) -> None:
    setting = make_setting(small(IMPLICIT, f"exchange.importance_model={model}"))
    state = begin(setting, 0, images(20, 0))
    state, (message,) = device.push(setting, replace(state, weights=moved(state.weights)), 3, [1])
    assert isinstance(message, EmbeddingReserve)
    used = state.weights if model == "both_local" else state.anchor
    expected = setting.encoder.embed(used, state.points[state.own_reserve[3]])
    assert torch.equal(message.embeddings, expected)


# Eq. (24)


@pytest.mark.equation("24")
@pytest.mark.parametrize("model", ["global", "local"])
def test_the_dynamic_margin_is_that_of_the_global_model(model: str) -> None:
    setting, state, _ = pair(IMPLICIT, "exchange.num_clusters=1", f"exchange.importance_model={model}")
    state = prepare(setting, replace(state, weights=moved(state.weights)), 3)
    state = device.absorb(setting, state, [EmbeddingItems(1, 0, 3, torch.zeros(2, 16))], 3)
    assert state.candidates is not None
    embeddings = setting.encoder.embed(state.anchor, state.points[state.candidates.positions])
    farthest = max(float((row - embeddings.mean(0)).norm()) for row in embeddings)
    assert state.margin == pytest.approx(farthest, rel=1e-5)
    assert state.pulled_at == 3


@pytest.mark.equation("24")
@pytest.mark.parametrize("kept", [0, 1, 5, 8])
def test_relayed_embeddings_have_no_say_in_the_margin(kept: int) -> None:
    setting = make_setting(small(IMPLICIT, "exchange.candidates=relay", "exchange.num_clusters=1"))
    state = replace(begin(setting, 0, images(20, 0)), pulled=torch.full((30, 16), 9.0))
    own = torch.arange(kept)
    positions = torch.cat([own, 20 + torch.arange(8 - kept)])
    embeddings = torch.cat([setting.encoder.embed(state.anchor, state.points[own]), state.pulled[: 8 - kept]])
    (clusters,) = device.cluster(setting, [0], [embeddings], 3)
    state = replace(state, candidates=device.Candidates(positions, embeddings, embeddings, None, clusters))

    found = device.absorb(setting, state, [EmbeddingItems(1, 0, 3, torch.zeros(2, 16))], 3).margin

    if kept == 0:
        assert found == 0.0
    else:
        mean = embeddings[:kept].mean(dim=0)
        assert found == pytest.approx(float((embeddings[:kept] - mean).norm(dim=1).max()), rel=1e-4, abs=1e-5)


@pytest.mark.equation("24")
def test_the_local_importance_model_clusters_anew_for_the_margin() -> None:
    setting, state, _ = pair(IMPLICIT, "exchange.num_clusters=2", "exchange.importance_model=local")
    state = prepare(setting, replace(state, weights=moved(state.weights)), 3)
    absorbed = device.absorb(setting, state, [EmbeddingItems(1, 0, 3, torch.zeros(2, 16))], 3)
    same = replace(state, weights=state.anchor)
    expected = device.absorb(setting, prepare(setting, same, 3), [EmbeddingItems(1, 0, 3, torch.zeros(2, 16))], 3)
    assert absorbed.margin == pytest.approx(expected.margin, rel=1e-6)


# Sizes


def check(*overrides: str, special: dict[tuple[int, int], tuple[int, int]] | None = None) -> None:
    config: Config = small(*overrides)
    setting = make_setting(config, special)
    device.check(setting, begin(setting, 3, images(20, 0)))


@pytest.mark.parametrize(
    "fits",
    [
        ("exchange.num_reserve=20", "exchange.num_candidates=20", "exchange.num_clusters=20"),
        ("exchange.method=bulk", "exchange.num_candidates=21"),
        ("exchange.method=uniform", "exchange.num_reserve=21"),
        ("train.negatives=batch", "train.batch_size=20"),
        ("train.batch_size=21",),
        ("exchange.method=fedavg", "exchange.num_candidates=21", "exchange.num_clusters=21"),
    ],
    ids=" ".join,
)
def test_what_a_device_can_offer_is_accepted(fits: tuple[str, ...]) -> None:
    check(*fits)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("exchange.num_reserve=21",), r"^exchange\.num_reserve=21 exceeds the 20 points of device 3: lower exchange"),
        (("exchange.num_candidates=21",), r"^exchange\.num_candidates=21 exceeds the 20 points of device 3: lower"),
        (
            ("exchange.method=bulk", "exchange.num_candidates=21", "exchange.num_clusters=21"),
            r"^exchange\.num_clusters=21 exceeds the 20 points of device 3: lower exchange\.num_clusters, use fewer",
        ),
        (("train.negatives=batch", "train.batch_size=21"), r"^train\.batch_size=21 exceeds the 20 points of device 3,"),
    ],
)
def test_what_a_device_cannot_offer_is_refused(overrides: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        check(*overrides)


def test_the_largest_reserve_of_any_link_must_fit() -> None:
    check(special={(1, 0): (2, 20), (0, 1): (0, 3)})
    with pytest.raises(CfclError, match=r"^exchange\.num_reserve=21 exceeds the 20 points of device 3"):
        check(special={(1, 0): (2, 21), (0, 1): (2, 3)})
