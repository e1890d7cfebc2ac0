"""The dial: activations of a layer travel, and join the receiver's batches there."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cfcl import device, rng
from cfcl.core import precision
from cfcl.data.augment import augment
from cfcl.device import DeviceState, Setting
from cfcl.errors import CfclError
from cfcl.exchange import cost, policies
from cfcl.exchange.messages import ActivationItems, ActivationReserve, DataItems, EmbeddingItems
from cfcl.models import Encoder, Entering, as_input
from cfcl.protocol.parties import Parties, Rules
from cfcl.protocol.phases import Deliver, Push
from cfcl.sim import world
from tests.conftest import small
from tests.test_device import SHAPE, answer, begin, images, make_setting, pair, prepare

DIAL = ("exchange.mode=activations", "exchange.layer=block1", "model.encoder=conv", "model.widths=[4, 6]")
INFONCE = (*DIAL, "train.objective=infonce")


def views(setting: Setting, state: DeviceState, points: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two augmented views of a transmitter's candidates."""
    shown = as_input(points, torch.device("cpu"))
    stream = rng.stream(setting.config.seed, "candidate-augment", state.id, step)
    first, second = augment(torch.cat([shown, shown]), setting.config.augment, stream).chunk(2)
    return first, second


def test_a_push_is_activations_of_points_and_of_an_augmentation_of_each() -> None:
    setting = make_setting(small(*DIAL))
    state, (message,) = device.push(setting, begin(setting, 0, images(20, 0)), 3, [1])
    assert isinstance(message, ActivationReserve)
    assert message.values.shape == (3, 2, 4, 4, 4)
    points = as_input(state.points[state.own_reserve[3]], torch.device("cpu"))
    altered = augment(points, setting.config.augment, rng.stream(0, "reserve-augment", 0, 3))
    for view, shown in enumerate((points, altered)):
        expected = setting.encoder.activations(state.anchor, shown, "block1")
        assert torch.allclose(message.values[:, view], expected, atol=1e-6)


@pytest.mark.parametrize("method", ["uniform", "cfcl", "kmeans", "novel", "cover"])
def test_an_answer_is_activations_of_two_views_of_candidates(method: str) -> None:
    setting, receiver, transmitter = pair(*DIAL, f"exchange.method={method}")
    transmitter = prepare(setting, transmitter, 3)
    (reply,) = answer(setting, transmitter, device.request(setting, receiver, 3, [1]), 3)
    assert isinstance(reply.items, ActivationItems)
    assert reply.items.values.shape == (2, 2, 4, 4, 4)
    candidates = transmitter.candidates
    assert candidates is not None
    rows = [candidates.positions.tolist().index(place) for place in reply.positions.tolist()]
    for view, shown in enumerate(views(setting, transmitter, transmitter.points[candidates.positions], 3)):
        expected = setting.encoder.activations(transmitter.anchor, shown, "block1")[rows]
        assert torch.allclose(reply.items.values[:, view], expected, atol=1e-6)


def test_scores_are_those_of_the_images_behind_the_activations() -> None:
    """What CF-CL computes from activations of a reserve is what it computes from the datapoints themselves."""
    seen: dict[str, policies.Pull] = {}
    for mode in ("explicit", "activations"):

        def choose(pull: policies.Pull, mode: str = mode) -> policies.Choice:
            seen[mode] = pull
            return policies.choose_cfcl(pull)

        setting, receiver, transmitter = pair(*DIAL, f"exchange.mode={mode}", "exchange.push=exchange")
        setting = replace(setting, policy=replace(setting.policy, choose=choose))
        # the augmentation of a reserve in explicit mode belongs to the step of the pull, here to that of the push
        answer(setting, prepare(setting, transmitter, 0), device.request(setting, receiver, 0, [1]), 0)
    explicit, dialled = seen["explicit"], seen["activations"]
    pairs: list[Any] = [
        (explicit.reserve.embeddings, dialled.reserve.embeddings),
        (explicit.reserve.positives, dialled.reserve.positives),
        (explicit.candidates.embeddings, dialled.candidates.embeddings),
    ]
    for one, other in pairs:
        assert torch.allclose(one, other, atol=1e-5)


def test_a_policy_that_measures_distances_does_so_between_activations() -> None:
    seen: list[policies.Pull] = []

    def choose(pull: policies.Pull) -> policies.Choice:
        seen.append(pull)
        return policies.choose_novel(pull)

    setting, receiver, transmitter = pair(*DIAL, "exchange.method=novel")
    setting = replace(setting, policy=replace(setting.policy, choose=choose))
    transmitter = prepare(setting, transmitter, 3)
    answer(setting, transmitter, device.request(setting, receiver, 3, [1]), 3)
    (pull,) = seen
    assert transmitter.candidates is not None
    plain = setting.encoder.activations(
        transmitter.anchor, transmitter.points[transmitter.candidates.positions], "block1"
    )
    assert pull.candidates.points is not None
    assert torch.allclose(pull.candidates.points[0], plain.flatten(1), atol=1e-6)
    assert pull.reserve.points is not None
    assert torch.equal(pull.reserve.points[0], transmitter.reserves[0].content[:, 0].flatten(1))
    assert pull.candidates.embeddings.shape[2] == 0


@pytest.mark.parametrize(
    "overrides", [INFONCE, DIAL, (*DIAL, "train.negatives=batch")], ids=["two views", "drawn", "batch"]
)
def test_pulled_activations_stand_where_the_datapoint_would(overrides: tuple[str, ...]) -> None:
    setting, receiver, _ = pair(*overrides, "augment.rotation=0", "augment.perspective=0")
    assert setting.layer == "block1"
    points = images(10, 7)
    shown = setting.encoder.activations(receiver.anchor, points, "block1")
    # without augmentation both views are the datapoint
    dialled = device.absorb(setting, receiver, [ActivationItems(1, 0, 3, torch.stack([shown, shown], dim=1))], 3)
    explicit = replace(
        setting, config=small(*overrides, "exchange.mode=explicit", "augment.rotation=0", "augment.perspective=0")
    )
    whole = device.absorb(explicit, replace(receiver, pulled=points[:0]), [DataItems(1, 0, 3, points)], 3)

    (batch,), (wanted,) = device.draw_batches(setting, [dialled], 4), device.draw_batches(explicit, [whole], 4)

    assert batch.entering is not None
    assert len(batch.images) + len(batch.entering.values) == len(wanted.images)
    assert 0 < len(batch.entering.values) < len(wanted.images)
    expected = setting.encoder.embed(receiver.anchor, wanted.images)
    assert torch.allclose(setting.encoder.embed(receiver.anchor, batch.images, batch.entering), expected, atol=1e-6)
    assert torch.equal(batch.positions, wanted.positions)
    after, report = device.local_step(setting, dialled, 4)
    also, other = device.local_step(explicit, whole, 4)
    assert report.loss == pytest.approx(other.loss, rel=1e-5)
    assert (report.pulled_share, report.weight, report.regulariser) == (other.pulled_share, 0.0, 0.0)
    assert after.margin == 0.0
    # the layers before the one that travels learn from the own points alone
    assert not torch.allclose(after.weights.params, also.weights.params, atol=1e-6)


def test_the_first_layers_learn_nothing_from_what_joins_later() -> None:
    config = small(*DIAL)
    encoder = Encoder(config.model, SHAPE, seed=0)
    values = torch.rand(6, *encoder.shapes["block1"])
    entering = Entering("block1", values, torch.arange(6))

    def loss(embeddings: torch.Tensor) -> tuple[torch.Tensor, None]:
        return embeddings.square().sum(0).std(), None

    gradient, _, _ = encoder.gradient(encoder.initial, torch.zeros(0, *SHAPE), loss, entering)

    size = sum(encoder._param_sizes[:2])
    assert bool((gradient[:size] == 0).all())
    assert bool((gradient[size:] != 0).any())


def test_batches_drawn_together_are_those_drawn_alone() -> None:
    setting = make_setting(small(*INFONCE))
    store, parts = images(60, 1), torch.split(torch.arange(60), [10, 20, 30])
    states = [device.start(setting, number, store, places) for number, places in enumerate(parts)]
    states[1] = device.absorb(setting, states[1], [ActivationItems(0, 1, 3, torch.rand(7, 2, 4, 4, 4))], 3)
    for state, batch in zip(states, device.draw_batches(setting, states, 4), strict=True):
        (alone,) = device.draw_batches(setting, [state], 4)
        assert torch.equal(batch.images, alone.images)
        assert (batch.entering is None) == (state.id != 1)
        if batch.entering is not None and alone.entering is not None:
            assert torch.equal(batch.entering.values, alone.entering.values)
            assert torch.equal(batch.entering.order, alone.entering.order)


def test_what_an_older_model_made_is_dropped_and_may_come_again() -> None:
    setting, receiver, transmitter = pair(*DIAL, "exchange.method=novel", "exchange.buffer=lasting")
    transmitter = prepare(setting, transmitter, 3)
    replies = answer(setting, transmitter, device.request(setting, receiver, 3, [1]), 3)
    assert device.remember(setting, transmitter, replies).sent == {}
    for step in (3, 6):
        receiver = device.absorb(setting, receiver, [replies[0].items], step)
    assert len(receiver.pulled) == 2


def test_eight_bits_are_sent_kept_as_floats_and_charged() -> None:
    setting, receiver, transmitter = pair(*DIAL, "exchange.precision=uint8")
    reserve = transmitter.reserves[0]
    assert isinstance(reserve, ActivationReserve)
    assert reserve.values.dtype == torch.uint8
    (reply,) = answer(setting, prepare(setting, transmitter, 3), device.request(setting, receiver, 3, [1]), 3)
    items = reply.items
    assert isinstance(items, ActivationItems)
    assert items.ranges is not None
    # two items of two views of 4×4×4 values, and the range of each
    assert cost.size_of(items, num_parameters=1) == 2 * (128 + 8)
    assert cost.size_of(reserve, num_parameters=1) == 3 * (128 + 8)
    receiver = device.absorb(setting, receiver, [items], 3)
    assert torch.equal(receiver.pulled, precision.from_codes(items.values, items.ranges))
    assert cost.size_of(ActivationItems(0, 1, 0, torch.zeros(2, 2, 4, 4, 4)), num_parameters=1) == 2 * 128 * 4


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        (("exchange.mode=explicit",), 64),
        (("exchange.mode=implicit",), 4 * 16),
        (DIAL, 4 * 2 * 64),
        ((*DIAL, "exchange.precision=uint8"), 2 * 64 + 8),
        ((*DIAL, "exchange.layer=features"), 4 * 2 * 24),
    ],
)
def test_bytes_of_an_item_are_those_of_its_message(overrides: tuple[str, ...], size: int) -> None:
    setting, receiver, transmitter = pair(*overrides)
    (reply,) = answer(setting, prepare(setting, transmitter, 3), device.request(setting, receiver, 3, [1]), 3)
    encoder = setting.encoder
    assert cost.item_size(setting.config.exchange, encoder.image_shape, encoder.shapes) == size
    assert cost.size_of(reply.items, num_parameters=1) == 2 * size


FAULTS: list[tuple[tuple[str, ...], Any, str]] = [
    (DIAL, torch.zeros(2, 2, 4, 4, 4).fill_(float("nan")), "is not finite"),
    (DIAL, torch.zeros(2, 2, 4, 4), "has the shape"),
    (DIAL, torch.zeros(9, 2, 4, 4, 4), "9 rows, over the 2 agreed"),
    ((*DIAL, "exchange.precision=uint8"), torch.zeros(2, 2, 4, 4, 4), "float32, where uint8 was agreed"),
]


@pytest.mark.parametrize(("overrides", "values", "complaint"), FAULTS)
def test_activations_that_nobody_agreed_on_are_refused(
    overrides: tuple[str, ...], values: torch.Tensor, complaint: str
) -> None:
    built = world.build(small(*overrides))
    parties = Parties(Rules(built.setting, built.graph), {}, None)
    assert complaint in str(Deliver().fault(parties, ActivationItems(1, 0, 3, values)))


def test_ranges_that_are_not_finite_are_refused() -> None:
    built = world.build(small(*DIAL, "exchange.precision=uint8"))
    parties = Parties(Rules(built.setting, built.graph), {}, None)
    codes, ranges = torch.zeros(2, 2, 4, 4, 4, dtype=torch.uint8), torch.full((2, 2), float("inf"))
    assert "is not finite" in str(Deliver().fault(parties, ActivationItems(1, 0, 3, codes, ranges)))
    assert "is not finite" in str(Push().fault(parties, ActivationReserve(1, 0, 0, codes, ranges)))
    assert Deliver().fault(parties, ActivationItems(1, 0, 3, codes, torch.zeros(2, 2))) is None
    assert Deliver().kind(parties) is ActivationItems
    assert Push().kind(parties) is ActivationReserve


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "exchange.layer=block9",
            r"exchange\.layer='block9' is no stage of conv: choose one of block1, block2, features",
        ),
        ("exchange.method=bulk", r"'bulk' sends all at the start, but activations of an untrained model"),
    ],
)
def test_what_cannot_be_dialled_is_refused(override: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        world.build(small(*DIAL, override))
    world.build(small(*DIAL, override, "exchange.mode=explicit"))


def test_relay_is_refused() -> None:
    with pytest.raises(CfclError, match="'relay' would pass on activations of an older model"):
        small(*DIAL, "exchange.candidates=relay")


def test_no_activation_is_taken_for_an_embedding() -> None:
    with pytest.raises((AssertionError, TypeError)):
        EmbeddingItems(0, 1, 0, torch.zeros(2, 2, 4))
    for values, ranges in [
        (torch.zeros(2, 1, 8, 8), None),
        (torch.zeros(2, 2, 8, dtype=torch.uint8), None),
        (torch.zeros(2, 2, 8), torch.zeros(2, 2)),
        (torch.zeros(2, 2, 8, dtype=torch.uint8), torch.zeros(1, 2)),
        (torch.zeros(2, 8), None),
    ]:
        with pytest.raises((AssertionError, TypeError)):
            ActivationItems(0, 1, 0, values, ranges)
