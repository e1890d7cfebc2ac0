"""Each hostile device does what it says, and nothing else is touched."""

from collections.abc import Sequence

import pytest
import torch

from cfcl import device, rng
from cfcl.errors import CfclError
from cfcl.exchange.messages import SERVER, Items, LocalModel, Message, PullRequest, Reserve
from cfcl.protocol.link import Direct
from cfcl.protocol.parties import Parties
from cfcl.protocol.phases import Deliver, Phase, Push, Request, Upload
from cfcl.protocol.steps import plainly, play
from cfcl.sim import attacks, world
from tests.conftest import small
from tests.played import played
from tests.protocol.test_refusals import STEP, asked, host

CONV = ("exchange.mode=activations", "model.encoder=conv", "model.widths=[4, 6]", "exchange.layer=block1")
MODES = {"explicit": (), "implicit": ("exchange.mode=implicit",), "activations": CONV}


FALSE_WEIGHT = ("attack.devices=1", "attack.kind=model-weight")


def sent(phase: Phase, parties: Parties) -> Sequence[Message]:
    """What the parties send of which some are hostile; on a ring of four, 1 and 3 are the neighbours of 2."""
    return attacks.build(parties.rules.setting).around(plainly)(phase, parties, STEP).messages


def items(kind: str, *overrides: str) -> tuple[Parties, dict[tuple[int, int], Items]]:
    parties = asked("attack.devices=[2]", f"attack.kind={kind}", *overrides)
    return parties, {(item.source, item.target): item for item in sent(Deliver(), parties) if isinstance(item, Items)}


def honest(*overrides: str) -> dict[tuple[int, int], Items]:
    found = Deliver().send(asked(*overrides), STEP).messages
    return {(item.source, item.target): item for item in found if isinstance(item, Items)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["items-noise", "items-negative", "items-constant", "items-centroids"])
def test_only_what_hostile_devices_send_is_altered_and_it_is_in_order(kind: str, mode: str) -> None:
    parties, found = items(kind, *MODES[mode])
    expected = honest(*MODES[mode])
    assert found.keys() == expected.keys()
    for link, item in found.items():
        same = torch.equal(item.content, expected[link].content)
        assert same == (link[0] != 2), link
        assert item.content.shape == expected[link].content.shape
    assert Deliver().take(parties, list(found.values()), STEP) == []


def test_poisoned_images_by_hand() -> None:
    images = torch.tensor([[[[0, 100], [255, 7]]]], dtype=torch.uint8)
    stream = rng.stream(0, "any")
    assert attacks.spoilt(images, "items-negative", stream).flatten().tolist() == [255, 155, 0, 248]
    assert attacks.spoilt(images, "items-constant", stream).flatten().tolist() == [128, 128, 128, 128]
    noise = attacks.spoilt(torch.zeros(100, 1, 10, 10, dtype=torch.uint8), "items-noise", stream).float()
    # uniform over 0..255: mean 127.5 with a standard error of 0.7, deviation 73.9
    assert abs(float(noise.mean()) - 127.5) < 3
    assert abs(float(noise.std()) - 73.9) < 2


def test_poisoned_images_go_the_way_of_their_mode() -> None:
    explicit = honest()
    _, found = items("items-negative")
    assert torch.equal(found[2, 1].content, 255 - explicit[2, 1].content)
    parties, found = items("items-constant", "exchange.mode=implicit")
    grey = torch.full((2, 1, 8, 8), 128, dtype=torch.uint8)
    setting = parties.rules.setting
    assert torch.equal(found[2, 3].content, setting.encoder.embed(parties.devices[2].anchor, grey))


def test_noise_is_another_on_every_link() -> None:
    _, found = items("items-noise")
    assert not torch.equal(found[2, 1].content, found[2, 3].content)
    _, again = items("items-noise")
    assert torch.equal(found[2, 1].content, again[2, 1].content)


@pytest.mark.parametrize("precision", ["float32", "uint8"])
def test_far_items_are_a_million_times_as_long(precision: str) -> None:
    more = (*CONV, f"exchange.precision={precision}")
    _, found = items("items-far", *more)
    torch.testing.assert_close(found[2, 1].content, honest(*more)[2, 1].content * 1e6)
    _, found = items("items-far", *more, "attack.strength=3")
    torch.testing.assert_close(found[2, 1].content, honest(*more)[2, 1].content * 3)


@pytest.mark.parametrize("mode", MODES)
def test_the_receivers_own_reserve_comes_back(mode: str) -> None:
    parties, found = items("items-centroids", "exchange.num_pulled=5", *MODES[mode])
    reserve = parties.devices[2].reserves[1].content
    # five items of a reserve of three
    assert torch.equal(found[2, 1].content, reserve[[0, 1, 2, 0, 1]])


def reserves(kind: str, *overrides: str) -> dict[tuple[int, int], Reserve]:
    found = sent(Push(), host("attack.devices=[2]", f"attack.kind={kind}", *overrides))
    return {(item.source, item.target): item for item in found if isinstance(item, Reserve)}


@pytest.mark.parametrize("mode", MODES)
def test_a_reserve_of_noise_is_the_same_for_all_neighbours(mode: str) -> None:
    parties = host(*MODES[mode])
    expected = {(item.source, item.target): item for item in Push().send(parties, STEP).messages}
    found = reserves("reserve-noise", *MODES[mode])
    for link, item in expected.items():
        assert isinstance(item, Reserve)
        assert torch.equal(found[link].content, item.content) == (link[0] != 2)
    assert torch.equal(found[2, 1].content, found[2, 3].content)
    assert Push().take(parties, list(found.values()), STEP) == []


def test_a_reserve_may_claim_to_stand_for_nothing() -> None:
    found, plain = (reserves(kind, "exchange.method=cover") for kind in ("reserve-radii", "items-noise"))
    lied, true = found[2, 1].numbers, plain[2, 1].numbers
    assert lied is not None
    assert true is not None
    torch.testing.assert_close(lied, true / 1e6)
    assert torch.equal(found[2, 1].content, plain[2, 1].content)


def test_a_request_for_everything_is_refused_and_gets_nothing() -> None:
    parties = host("attack.devices=[2]", "attack.kind=request-all")
    attack = attacks.build(parties.rules.setting)
    found = play(Request(), [parties], Direct(), STEP, attack.around(plainly))
    asked_for = [item.num_items for item in found.inbox if isinstance(item, PullRequest) and item.source == 2]
    assert asked_for == [2000, 2000]
    reasons = {item.reason for item in found.refusals if item.blame == "sender"}
    assert reasons == {"asks for 2000 items, where the budget of the link is 2"}
    assert all(attack.explains(item) for item in found.refusals)
    assert [len(parties.devices[i].requests) for i in range(4)] == [2, 1, 2, 1]
    greedy = sent(Request(), host("attack.devices=[2]", "attack.kind=request-all", "attack.strength=1e12"))
    assert max(item.num_items for item in greedy if isinstance(item, PullRequest)) == 2**31  # whole numbers of 64 bits
    rows = played("attack.devices=[2]", "attack.kind=request-all").of("pull")
    assert {row["receiver"] for row in rows} == {0, 1, 3}


def test_refusals_between_honest_devices_are_not_explained() -> None:
    parties = host("attack.devices=[2]")
    attack = attacks.build(parties.rules.setting)
    lost = Request().take(parties, [], STEP)
    explained = [(item.source, item.target) for item in lost if attack.explains(item)]
    assert (len(lost), explained) == (8, [(2, 1), (1, 2), (3, 2), (2, 3)])


MODEL = LocalModel(1, SERVER, 4, torch.tensor([3.0, -1.0]), torch.tensor([5.0]), 20.0)
ANCHOR = torch.tensor([1.0, 1.0])


@pytest.mark.parametrize(
    ("kind", "params", "weight"),
    [
        # the update is 2, -2
        ("model-flipped", [-19.0, 21.0], 20.0),
        ("model-scaled", [21.0, -19.0], 20.0),
        ("model-weight", [3.0, -1.0], 200.0),
    ],
)
def test_poisoned_models_by_hand(kind: str, params: list[float], weight: float) -> None:
    found = attacks.poisoned(MODEL, ANCHOR, kind, 10.0, rng.stream(0, "any"))
    assert (found.params.tolist(), found.buffers.tolist(), found.weight) == (params, [5.0], weight)


def test_a_model_in_a_random_direction_is_so_many_times_as_far() -> None:
    found = [attacks.poisoned(MODEL, ANCHOR, "model-noise", 10.0, rng.stream(seed, "any")).params for seed in (0, 1)]
    # the update is sqrt(8) long
    assert [float((params - ANCHOR).norm()) for params in found] == pytest.approx([10 * 8**0.5] * 2)
    assert not torch.equal(*found)


def test_the_way_is_from_the_last_global_model() -> None:
    parties = host("attack.devices=[2]", "attack.kind=model-flipped", "attack.strength=1")
    state = parties.devices[2]
    moved, _ = device.local_step(parties.rules.setting, state, 0)
    parties.devices[2] = moved
    models = [item for item in sent(Upload(), parties) if isinstance(item, LocalModel)]
    torch.testing.assert_close(models[2].params, 2 * state.anchor.params - moved.weights.params)
    assert torch.equal(models[1].params, parties.devices[1].weights.params)


def test_who_is_hostile() -> None:
    assert attacks.hostile(small()) == frozenset()
    assert attacks.hostile(small("attack.devices=[3, 1]")) == {1, 3}
    drawn = [attacks.hostile(small("attack.devices=2", f"seed={seed}")) for seed in range(20)]
    assert {len(some) for some in drawn} == {2}
    assert frozenset.union(*drawn) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("attack.kind=items-far",), "attack.kind='items-far' needs numbers without bounds"),
        (("attack.kind=items-centroids", "exchange.method=uniform"), "needs reserves, but exchange.method='uniform'"),
        (("attack.kind=reserve-noise", "exchange.method=kmeans"), "needs reserves, but exchange.method='kmeans'"),
        (("attack.kind=reserve-radii",), "needs radii, but exchange.method='cfcl' sends none with a reserve"),
    ],
)
def test_an_attack_that_there_is_no_room_for_is_refused(overrides: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        world.build(small("attack.devices=1", *overrides))
    world.build(small("attack.devices=1", *overrides, "exchange.method=fedavg"))


def test_the_observer_looks_at_what_was_sent() -> None:
    found = [
        {(row["step"], row["transmitter"], row["receiver"]): row["centroid_distance"] for row in run.of("pull")}
        for run in (played("train.steps=4"), played("train.steps=4", "attack.devices=[2]"))
    ]
    first = [key for key in found[0] if key[0] == 3]
    assert len(first) == 8
    assert [key for key in first if found[0][key] != found[1][key]] == [(3, 2, 1), (3, 2, 3)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        # rules that look at no weights; the mean does
        (("aggregation.rule=median",), (*FALSE_WEIGHT, "aggregation.rule=median"), True),
        (("aggregation.rule=trimmed", "aggregation.trim=0.3"),
         (*FALSE_WEIGHT, "aggregation.rule=trimmed", "aggregation.trim=0.3"), True),
        ((), FALSE_WEIGHT, False),
        # two neighbours with one budget have equal parts; a cap on what is kept cuts
        (("exchange.buffer=lasting",), ("exchange.buffer=lasting", "defence.share=0.25"), True),
        (("exchange.buffer=lasting",), ("exchange.buffer=lasting", "defence.cap=3"), False),
        # embeddings of length one; a bound below it is another thing
        (("exchange.mode=implicit",), ("exchange.mode=implicit", "defence.clip=1.5"), True),
        (("exchange.mode=implicit",), ("exchange.mode=implicit", "defence.clip=0.5"), False),
    ],
)  # fmt: skip
def test_runs_that_benchmarks_make_once_because_they_are_the_same(
    one: tuple[str, ...], other: tuple[str, ...], same: bool
) -> None:
    first, second = played(*one), played(*other)
    assert (first.files["metrics.jsonl"] == second.files["metrics.jsonl"]) == same
    assert torch.equal(first.params, second.params) == same
