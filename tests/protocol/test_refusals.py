"""What a party does with messages that are missing or wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cfcl import device, server
from cfcl.errors import CfclError
from cfcl.exchange.messages import (
    SERVER,
    ActivationReserve,
    DataItems,
    DataReserve,
    EmbeddingItems,
    EmbeddingReserve,
    GlobalModel,
    LocalModel,
    Message,
    ModelBlock,
    ModelSum,
    PullRequest,
)
from cfcl.protocol.link import Direct
from cfcl.protocol.parties import Parties, together
from cfcl.protocol.phases import Broadcast, Deliver, Fold, Phase, Push, Regroup, Request, Upload
from cfcl.protocol.refusals import Refusal
from cfcl.protocol.steps import play
from cfcl.sim import world
from tests.conftest import small

STEP = 3


def host(*overrides: str) -> Parties:
    """Four devices on a ring and their server, just started."""
    scene = world.build(small(*overrides))
    images = scene.dataset.train_images
    (found,) = together(
        scene.rules, [device.start(scene.setting, i, images, part) for i, part in enumerate(scene.parts)]
    )
    return found


def sent(phase: Phase, parties: Parties, step: int = STEP) -> list[Message]:
    return list(phase.send(parties, step).messages)


def pushed(*overrides: str) -> Parties:
    found = host(*overrides)
    assert play(Push(), [found], Direct(), STEP).refusals == []
    return found


def asked(*overrides: str) -> Parties:
    found = pushed(*overrides)
    assert play(Request(), [found], Direct(), STEP).refusals == []
    return found


def only(refusals: list[Refusal]) -> Refusal:
    (found,) = refusals
    return found


def test_a_lost_reserve_means_no_items_for_its_sender() -> None:
    parties = host()
    reserves = [message for message in sent(Push(), parties) if (message.source, message.target) != (0, 1)]
    missing = only(Push().take(parties, reserves, STEP))
    assert str(missing) == "step 3: DataReserve from device 0 to device 1: did not arrive (the link's fault)"
    Request().take(parties, sent(Request(), parties), STEP)

    items = sent(Deliver(), parties)

    assert {(item.source, item.target) for item in items} == {(1, 2), (2, 1), (2, 3), (3, 2), (3, 0), (0, 3), (0, 1)}
    late = only(Deliver().take(parties, items, STEP))
    assert (late.source, late.target, late.blame) == (1, 0, "link")
    assert len(parties.devices[0].pulled) == 2  # from device 3 alone
    assert len(parties.devices[1].pulled) == 4


def test_an_older_reserve_serves_where_the_new_one_is_lost() -> None:
    parties = pushed("exchange.mode=implicit")
    old = parties.devices[1].reserves[0]
    later = [message for message in sent(Push(), parties, 6) if (message.source, message.target) != (0, 1)]
    assert len(Push().take(parties, later, 6)) == 1
    assert parties.devices[1].reserves[0] is old
    assert parties.devices[3].reserves[0].step == 6


def test_requests_for_others_of_other_steps_and_beyond_the_budget_are_not_answered() -> None:
    parties = pushed()
    bad = [
        (PullRequest(0, 1, 2, 2), "link", "is late: of step 2"),
        (PullRequest(0, 1, 4, 2), "sender", "is of a later step"),
        (PullRequest(0, 1, 3, 3), "sender", "asks for 3 items, where the budget of the link is 2"),
        (PullRequest(0, 1, 3, 0), "sender", "asks for 0 items, where the budget of the link is 2"),
        (PullRequest(0, 1, 3, -1), "sender", "asks for -1 items, where the budget of the link is 2"),
        (PullRequest(3, 1, 3, 2), "sender", "was not asked for: its sender is no neighbour"),
        (PullRequest(1, 1, 3, 2), "sender", "was not asked for: its sender is no neighbour"),
        (GlobalModel(0, 1, 3, torch.zeros(1), torch.zeros(0)), "sender", "is not the PullRequest"),
    ]
    good = [message for message in sent(Request(), parties) if (message.source, message.target) != (0, 1)]
    for message, blame, reason in bad:
        refusals = Request().take(parties, [message, *good], STEP)
        first = next(item for item in refusals if item.reason != "did not arrive")
        assert (first.source, first.target, first.blame) == (message.source, 1, blame)
        assert first.reason.startswith(reason)
        assert [request.source for request in parties.devices[1].requests] == [2]


def test_a_request_for_one_item_is_in_order() -> None:
    parties = pushed("exchange.num_pulled=1")
    assert Request().take(parties, sent(Request(), parties), STEP) == []
    assert [(request.source, request.num_items) for request in parties.devices[1].requests] == [(0, 1), (2, 1)]


def test_a_request_that_was_delivered_to_the_wrong_party_is_refused() -> None:
    parties = pushed()
    wrong = only(
        [
            item
            for item in Request().take(Parties(parties.rules, {1: parties.devices[1]}), [PullRequest(0, 3, 3, 2)], STEP)
            if item.reason != "did not arrive"
        ]
    )
    assert (wrong.source, wrong.target, wrong.blame) == (0, 3, "link")
    assert wrong.reason == "device 3 is not here, or waits for nothing"


def test_items_that_come_sender_by_sender_are_all_kept_under_purge() -> None:
    parties = asked("exchange.buffer=purge")
    messages = [item for item in sent(Deliver(), parties) if item.target == 0]
    state = parties.devices[0]
    assert all(isinstance(item, DataItems) for item in messages)
    one_by_one, at_once = state, device.absorb(parties.rules.setting, state, messages, STEP)  # type: ignore[arg-type]
    for item in messages:
        one_by_one = device.absorb(parties.rules.setting, one_by_one, [item], STEP)  # type: ignore[list-item]
    assert len(at_once.pulled) == 4
    assert torch.equal(one_by_one.pulled, at_once.pulled)
    # and the next exchange drops them
    later = device.absorb(parties.rules.setting, one_by_one, messages[:1], STEP + 3)  # type: ignore[arg-type]
    assert len(later.pulled) == 2


def test_who_gets_nothing_keeps_what_it_had() -> None:
    parties = asked("exchange.mode=implicit")
    Deliver().take(parties, sent(Deliver(), parties), STEP)
    before = parties.devices[0]
    refusals = Deliver().take(parties, [], 6)
    assert len(refusals) == 8
    assert parties.devices[0] is before


ITEM_FAULTS: list[tuple[Callable[[Any], Message], str]] = [
    (lambda item: replace(item, embeddings=item.embeddings[:, :3]), "has the shape (2, 3), not ('any', 16)"),
    (lambda item: replace(item, embeddings=item.embeddings * float("nan")), "is not finite"),
    (lambda item: replace(item, embeddings=item.embeddings + float("inf")), "is not finite"),
    # of length one, so that some value is above 0.2
    (lambda item: replace(item, embeddings=item.embeddings * 1e16), "what was sent has values beyond 1e+15"),
    (lambda item: replace(item, embeddings=item.embeddings.repeat(2, 1)), "has 4 rows, over the 2 agreed"),
    (lambda item: EmbeddingReserve(*_head(item), item.embeddings), "is not the EmbeddingItems"),
    (lambda item: DataItems(*_head(item), torch.zeros(2, 1, 8, 8, dtype=torch.uint8)), "is not the EmbeddingItems"),
]


def _head(message: Message) -> tuple[int, int, int]:
    return message.source, message.target, message.step


@pytest.mark.parametrize(("alter", "reason"), ITEM_FAULTS)
def test_bad_items_are_never_absorbed(alter: Callable[[Any], Message], reason: str) -> None:
    parties = asked("exchange.mode=implicit")
    items = [item for item in sent(Deliver(), parties) if item.target == 0]
    assert [item.source for item in items] == [1, 3]
    alone = Parties(parties.rules, {0: parties.devices[0]})
    refusals = Deliver().take(alone, [alter(items[0]), items[1]], STEP)
    assert reason in refusals[0].reason
    assert refusals[0].blame == "sender"
    assert isinstance(items[1], EmbeddingItems)
    assert torch.equal(alone.devices[0].pulled, items[1].embeddings)


def test_pixels_of_another_shape_and_an_empty_reserve_are_refused() -> None:
    parties = host()
    reserve = next(message for message in sent(Push(), parties) if message.target == 1)
    assert isinstance(reserve, DataReserve)
    alone = Parties(parties.rules, {1: parties.devices[1]})
    for content, reason in (
        (torch.zeros(3, 3, 8, 8, dtype=torch.uint8), "has the shape (3, 3, 8, 8), not ('any', 1, 8, 8)"),
        (reserve.points.repeat(2, 1, 1, 1), "has 6 rows, over the 3 agreed"),
        (reserve.points[:0], "the reserve is empty"),
    ):
        first = Push().take(alone, [replace(reserve, points=content)], STEP)[0]
        assert reason in first.reason
        assert alone.devices[1].reserves == {}
    numbers = replace(reserve, numbers=torch.zeros(2))
    assert "numbers has the shape (2,), not (3,)" in Push().take(alone, [numbers], STEP)[0].reason


@pytest.mark.parametrize(
    ("method", "numbers", "reason"),
    [
        ("cover", None, "has no numbers, where the method sends one with each point"),
        ("cfcl", torch.ones(3), "has numbers, where the method sends none"),
    ],
)
def test_a_reserve_has_numbers_where_they_are_due(method: str, numbers: Tensor | None, reason: str) -> None:
    parties = host(f"exchange.method={method}")
    reserve = next(message for message in sent(Push(), parties) if message.target == 1)
    assert isinstance(reserve, DataReserve)
    alone = Parties(parties.rules, {1: parties.devices[1]})
    found = Push().take(alone, [replace(reserve, numbers=numbers)], STEP)[0]
    assert (found.reason, found.blame) == (reason, "sender")
    assert alone.devices[1].reserves == {}


def test_a_reserve_near_the_largest_float_ends_no_run_of_others() -> None:
    parties = host("exchange.mode=activations", "model.encoder=conv", "model.widths=[4, 6]", "exchange.layer=block1")
    reserve = next(message for message in sent(Push(), parties) if message.target == 1)
    assert isinstance(reserve, ActivationReserve)
    alone = Parties(parties.rules, {1: parties.devices[1]})
    assert Push().take(alone, [replace(reserve, values=reserve.values * 1e38)], STEP)[0].reason == (
        "the reserve has values beyond 1e+15"
    )
    assert alone.devices[1].reserves == {}


def test_a_duplicate_upload_counts_once() -> None:
    parties = host()
    models = sent(Upload(), parties)
    twice = replace(models[0], weight=3.0)  # type: ignore[call-arg]
    refusal = only(Upload().take(parties, [*models, twice], STEP))
    assert (refusal.source, refusal.blame) == (0, "link")
    assert refusal.reason == "arrived before: it is a duplicate"
    expected = server.start(parties.server)  # type: ignore[arg-type]
    for model in models:
        server.add(expected, model)  # type: ignore[arg-type]
    assert torch.equal(parties.server.total, expected)  # type: ignore[union-attr, arg-type]


MODEL_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"params": torch.zeros(3)}, "params has the shape (3,)"),
    ({"params": torch.zeros(17_648, dtype=torch.float64)}, "params is of type torch.float64"),
    ({"params": torch.full((17_648,), float("nan"))}, "params is not finite"),
    ({"params": torch.full((17_648,), -1e38)}, "params has values beyond 1e+15"),
    ({"buffers": torch.zeros(2)}, "buffers has the shape (2,)"),
    ({"extras": {"target": torch.zeros(1)}}, "its extra state is ['target'], not []"),
    ({"weight": 0.0}, "its weight 0.0 is not a number above 0 and up to 1e+15"),
    ({"weight": 1e308}, "its weight 1e+308 is not a number above 0 and up to 1e+15"),
    ({"weight": float("inf")}, "its weight inf is not a number above 0 and up to 1e+15"),
    ({"weight": float("nan")}, "its weight nan is not a number above 0 and up to 1e+15"),
]


@pytest.mark.parametrize(("change", "reason"), MODEL_FAULTS)
def test_a_bad_model_is_neither_averaged_nor_adopted(change: dict[str, Any], reason: str) -> None:
    parties = host()
    models = sent(Upload(), parties)
    refusals = Upload().take(parties, [replace(models[0], **change), *models[1:]], STEP)
    assert reason in refusals[0].reason
    assert Fold().take(parties, sent(Fold(), parties), STEP) == []
    rest = server.aggregate(models[1:])  # type: ignore[arg-type]
    assert torch.equal(parties.server.model.params, rest.params)  # type: ignore[union-attr]
    if "weight" in change:
        return
    down = [replace(message, **change) for message in sent(Broadcast(), parties)]
    before = dict(parties.devices)
    assert reason in Broadcast().take(parties, down, STEP)[0].reason
    assert parties.devices == before


def test_a_stale_model_is_not_adopted() -> None:
    parties = host()
    old = [replace(message, step=STEP - 1, params=message.params + 1) for message in sent(Broadcast(), parties)]  # type: ignore[attr-defined, call-arg]
    before = dict(parties.devices)
    refusals = Broadcast().take(parties, old, STEP)
    assert {(item.blame, item.reason) for item in refusals} == {
        ("link", "is late: of step 2"),
        ("link", "did not arrive"),
    }
    assert parties.devices == before


def test_with_no_model_at_all_the_global_model_stays() -> None:
    parties = host()
    before = parties.server.model  # type: ignore[union-attr]
    assert len(Upload().take(parties, [], STEP)) == 4
    assert Fold().take(parties, sent(Fold(), parties), STEP) == []
    assert parties.server.model is before  # type: ignore[union-attr]
    with pytest.raises(CfclError, match="no model has arrived, so there is nothing to average"):
        server.aggregate([])


def test_a_rule_that_needs_all_models_makes_do_with_those_that_are_in_order() -> None:
    parties = host("aggregation.rule=median")
    models = [replace(message, params=message.params * 0 + i) for i, message in enumerate(sent(Upload(), parties))]  # type: ignore[attr-defined, call-arg]
    bad = replace(models[3], params=models[3].params * float("nan"))  # type: ignore[attr-defined, call-arg]
    refusals = Upload().take(parties, [bad, *models[1:3], models[1], models[0]], STEP)
    assert [(item.source, item.reason) for item in refusals] == [
        (3, "params is not finite"),
        (1, "arrived before: it is a duplicate"),
        (3, "did not arrive"),
    ]
    for phase in (Regroup(), Fold()):
        assert phase.take(parties, sent(phase, parties), STEP) == []
    assert parties.server is not None
    assert set(parties.server.model.params.tolist()) == {1.0}  # the median of 0, 1 and 2
    after = parties.server.model
    assert len(Upload().take(parties, [], STEP)) == 4
    for phase in (Regroup(), Fold()):
        assert phase.take(parties, sent(phase, parties), STEP) == []
    assert parties.server.model is after


BLOCK_FAULTS: list[tuple[Callable[[ModelBlock], Message], str]] = [
    (lambda block: replace(block, entries=block.entries.double()), "the block is of type torch.float64"),
    (lambda block: replace(block, entries=block.entries / 0), "the block is not finite"),
    (lambda block: replace(block, entries=block.entries.repeat(2, 1)), "the block has 8 rows, over the 4 agreed"),
    (lambda block: replace(block, source=0), "was not asked for"),
]


@pytest.mark.parametrize(("alter", "reason"), BLOCK_FAULTS)
def test_a_bad_block_leaves_the_global_model_alone(alter: Callable[[ModelBlock], Message], reason: str) -> None:
    parties = host("aggregation.rule=trimmed")
    assert parties.server is not None
    before = parties.server.model
    for phase in (Upload(), Regroup(), Upload()):  # of the first aggregation the end is lost
        assert phase.take(parties, sent(phase, parties), STEP) == []
    (block,) = sent(Regroup(), parties)
    assert isinstance(block, ModelBlock)
    assert Regroup().take(parties, [alter(block)], STEP)[0].reason.startswith(reason)
    assert sent(Fold(), parties) == []
    assert only(Fold().take(parties, [], STEP)).reason == "did not arrive"
    assert parties.server.model is before


MEASURE_FAULTS: list[tuple[Tensor | None, str]] = [
    (None, "weights and distances come with models that are clipped"),
    (torch.ones(2, 2, dtype=torch.float64), "weights and distances has the shape (2, 2), not (4, 2)"),
    (torch.ones(4, 2, dtype=torch.float64) / 0, "weights and distances is not finite"),
    (torch.ones(4, 2), "weights and distances is of type torch.float32"),
]


@pytest.mark.parametrize(("measures", "reason"), MEASURE_FAULTS)
def test_bad_distances_leave_the_global_model_alone(measures: Tensor | None, reason: str) -> None:
    parties = host("aggregation.clip=1")
    assert Upload().take(parties, sent(Upload(), parties), STEP) == []
    (block,) = sent(Regroup(), parties)
    assert isinstance(block, ModelBlock)
    bad = replace(block, measures=measures)
    assert Regroup().take(parties, [bad], STEP)[0].reason.startswith(reason)
    assert sent(Fold(), parties) == []
    plain = host("aggregation.rule=median")
    assert Regroup().take(plain, [block], STEP)[0].reason.startswith(MEASURE_FAULTS[0][1])


def test_a_block_of_another_width_does_not_make_a_model() -> None:
    parties = host("aggregation.rule=median")
    assert Upload().take(parties, sent(Upload(), parties), STEP) == []
    (block,) = sent(Regroup(), parties)
    assert isinstance(block, ModelBlock)
    assert Regroup().take(parties, [replace(block, entries=block.entries[:, 1:])], STEP) == []
    assert "the sum has the shape (17648,), not (17649,)" in Fold().take(parties, sent(Fold(), parties), STEP)[0].reason


def test_a_device_may_not_send_a_sum() -> None:
    parties = host()
    size = len(server.start(parties.server))  # type: ignore[arg-type]
    models = [ModelSum(0, SERVER, STEP, torch.ones(size, dtype=torch.float64)), *sent(Upload(), parties)]
    first = Upload().take(parties, models, STEP)[0]
    assert first.reason == "is a sum of models, which only the server may send"
    assert isinstance(models[1], LocalModel)


def test_budgets_are_those_of_the_links_own_direction(tmp_path: Path) -> None:
    table = tmp_path / "links.csv"
    table.write_text("transmitter,receiver,num_pulled,num_reserve\n1,0,1,2\n0,1,2,3\n")
    parties = host(f"exchange.budgets_file={table}", "exchange.mode=implicit")
    alone = Parties(parties.rules, {0: parties.devices[0]})
    prepared = device.prepare(parties.rules.setting, [parties.devices[0]], STEP)
    alone.devices[0] = prepared[0]
    items = [EmbeddingItems(1, 0, STEP, torch.zeros(2, 16)), EmbeddingItems(3, 0, STEP, torch.zeros(2, 16))]
    assert "has 2 rows, over the 1 agreed" in Deliver().take(alone, items, STEP)[0].reason
    other = Parties(parties.rules, {1: parties.devices[1]})
    request = [PullRequest(0, 1, STEP, 2), PullRequest(2, 1, STEP, 2)]
    assert "where the budget of the link is 1" in Request().take(other, request, STEP)[0].reason
    reserves = [EmbeddingReserve(0, 1, STEP, torch.zeros(3, 16)), EmbeddingReserve(2, 1, STEP, torch.zeros(3, 16))]
    assert "has 3 rows, over the 2 agreed" in Push().take(other, reserves, STEP)[0].reason
