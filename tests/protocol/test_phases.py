"""What each phase sends and expects, on hosts of several devices."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cfcl import device
from cfcl.config import CostConfig
from cfcl.device import StepReport
from cfcl.exchange.cost import Ledger
from cfcl.exchange.messages import SERVER, DataItems, LocalModel, Message, ModelBlock
from cfcl.protocol import phases
from cfcl.protocol.link import Direct
from cfcl.protocol.parties import Parties, Run, apart, start_server, together
from cfcl.protocol.phases import Broadcast, Deliver, Fold, Push, Regroup, Request, Update, Upload
from cfcl.protocol.steps import Round, play, rounds
from cfcl.sim import world
from tests.conftest import small


def host(*overrides: str) -> Parties:
    scene = world.build(small(*overrides))
    images = scene.dataset.train_images
    states = [device.start(scene.setting, i, images, part) for i, part in enumerate(scene.parts)]
    return together(scene.rules, states)[0]


@pytest.mark.parametrize("most", [1, 3, 16])
def test_every_device_makes_one_update_however_many_are_drawn_together(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "MOST_TOGETHER", most)
    parties, seen = host(), list[tuple[int, int]]()
    sent = Update(lambda *where: seen.append(where)).send(parties, 5)
    assert seen == [(0, 5), (1, 5), (2, 5), (3, 5)]
    assert [state.updates for state in parties.devices.values()] == [1, 1, 1, 1]
    assert len(sent.reports) == 4
    alone, _ = device.local_step(parties.rules.setting, host().devices[2], 5)
    assert torch.equal(parties.devices[2].weights.params, alone.weights.params)
    assert all(isinstance(report, StepReport) for report in sent.reports)
    assert list(sent.messages) == []


def test_who_waits_for_whom_on_a_ring() -> None:
    parties = host()
    ring = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}
    assert Push().expects(parties, 0) == ring
    assert Request().expects(parties, 3) == ring
    assert Deliver().expects(parties, 3) == ring
    assert Broadcast().expects(parties, 4) == dict.fromkeys(range(4), (SERVER,))
    assert Upload().expects(parties, 4) == {SERVER: (0, 1, 2, 3)}
    assert Fold().expects(parties, 4) == {SERVER: (SERVER,)}
    assert Update().expects(parties, 4) == {}


def test_a_server_for_some_waits_for_its_own_and_for_the_sum_before_it() -> None:
    parties = host("aggregation.num_devices=3")
    chosen = Upload().expects(parties, 4)[SERVER]
    assert len(chosen) == 3
    (second,) = together(parties.rules, [parties.devices[i] for i in (2, 3)])
    assert Upload().expects(second, 4) == {SERVER: (SERVER, *(i for i in chosen if i in (2, 3)))}
    without = Parties(parties.rules, parties.devices)
    assert Upload().expects(without, 4) == Fold().expects(without, 4) == {}
    assert Broadcast().send(without, 4).messages == Fold().send(without, 4).messages == ()


def test_a_server_for_some_waits_for_no_sum_where_all_models_are_needed_at_once() -> None:
    parties = host("aggregation.rule=median")
    (second,) = together(parties.rules, [parties.devices[i] for i in (2, 3)])
    assert Upload().expects(second, 4) == {SERVER: (2, 3)}
    assert Regroup().expects(second, 4) == {SERVER: (SERVER,)}
    without = Parties(parties.rules, parties.devices)
    assert Regroup().expects(without, 4) == {}
    assert Regroup().send(without, 4).messages == ()


def test_models_are_kept_for_their_regrouping_and_no_longer() -> None:
    parties = host("aggregation.rule=median")
    assert play(Upload(), [parties], Direct(), 4).refusals == []
    assert parties.server is not None
    assert [message.source for message in parties.server.models] == [0, 1, 2, 3]
    (message,) = Regroup().send(parties, 4).messages
    assert isinstance(message, ModelBlock)
    assert parties.server.models == ()
    # a model, and a one behind it
    assert torch.equal(message.entries[2, :-1], parties.devices[2].weights.params)
    assert message.entries[:, -1].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert Regroup().take(parties, [message], 4) == []
    assert parties.server.total is not None
    assert parties.server.total.dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "broadcast", "expected"),
    [
        ("aggregation", False, True),
        ("exchange", False, True),
        ("update", True, False),
        ("broadcast", False, False),
        ("broadcast", True, True),
    ],
)
def test_which_rounds_cost_time_on_a_link(name: Any, broadcast: bool, expected: bool) -> None:
    assert Round(name, ()).charged(CostConfig(charge_broadcast=broadcast)) is expected


def test_an_update_needs_no_link() -> None:
    class Cut:
        def carry(self, *_: object) -> list[Message]:
            raise AssertionError

    parties = host("train.batch_size=2")
    assert play(Update(), [parties], Cut(), 5).refusals == []
    assert parties.devices[3].updates == 1


def test_the_server_starts_with_the_extras_of_the_run() -> None:
    rules = host().rules
    target = {"target": torch.zeros(2)}
    assert start_server(replace(rules, setting=replace(rules.setting, extras=target)), [0]).extras is target


def test_hosts_apart_are_the_server_and_each_device() -> None:
    parties = host()
    hosts = apart(parties.rules, list(parties.devices.values()))
    assert [found.ids for found in hosts] == [(SERVER,), (0,), (1,), (2,), (3,)]
    assert hosts[0].server is not None
    assert hosts[0].server.serves == (0, 1, 2, 3)
    assert [type(message) for message in Upload().send(hosts[1], 4).messages] == [LocalModel]
    run = Run(0, [hosts[3], hosts[0], hosts[1]], Ledger(CostConfig(), 1))
    assert list(run.devices) == [0, 2]


def names(parties: Parties, step: int) -> list[tuple[str, list[str]]]:
    return [(item.name, [type(phase).__name__ for phase in item.phases]) for item in rounds(parties.rules, step)]


@pytest.mark.equation("Alg. 1")
def test_the_rounds_of_a_step() -> None:
    explicit, implicit, silent = host(), host("exchange.mode=implicit"), host("exchange.num_pulled=0")
    up, down, update = ("aggregation", ["Upload", "Fold"]), ("broadcast", ["Broadcast"]), ("update", ["Update"])
    # T = 12, T_a = 4, T_p = 3; explicit reserves go once, implicit ones with every exchange
    assert names(explicit, 0) == [("exchange", ["Push"]), update]
    assert names(explicit, 1) == [update]
    assert names(explicit, 3) == [("exchange", ["Request", "Deliver"]), update]
    assert names(implicit, 3) == [("exchange", ["Push", "Request", "Deliver"]), update]
    assert names(explicit, 4) == [up, down, update]
    assert names(explicit, 12) == [up, down]
    assert names(host("aggregation.rule=median"), 12) == [("aggregation", ["Upload", "Regroup", "Fold"]), down]
    assert names(silent, 0) == names(silent, 3) == [update]
    charged = {item.name: item.charged(explicit.rules.setting.config.cost) for item in rounds(explicit.rules, 4)}
    assert charged == {"aggregation": True, "broadcast": False, "update": False}


def test_transmitters_note_what_they_have_sent() -> None:
    parties = host("exchange.method=novel", "exchange.buffer=keep")
    for phase in (Push(), Request()):
        assert play(phase, [parties], Direct(), 3).refusals == []
    items = Deliver().send(parties, 3).messages
    assert {i: sorted(state.sent) for i, state in parties.devices.items()} == {
        0: [1, 3],
        1: [0, 2],
        2: [1, 3],
        3: [0, 2],
    }
    for item in items:
        assert isinstance(item, DataItems)
        transmitter = parties.devices[item.source]
        assert torch.equal(transmitter.points[transmitter.sent[item.target]], item.points)
    assert [state.requests for state in parties.devices.values()] == [()] * 4
