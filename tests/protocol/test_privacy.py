"""Datapoints neither leave nor enter a device that does not allow it, whatever the others do."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cfcl import device
from cfcl.device import Setting
from cfcl.errors import CfclError
from cfcl.exchange.messages import DataItems, DataReserve, EmbeddingItems, Message, PullRequest
from cfcl.protocol import releases
from cfcl.protocol.link import Direct, Expected
from cfcl.protocol.parties import Parties, together
from cfcl.protocol.phases import Deliver, Phase, Push, Request, Sent
from cfcl.protocol.refusals import Refused
from cfcl.protocol.steps import play
from cfcl.sim import world
from cfcl.sim.simulation import Simulation
from tests.conftest import small

POINTS = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
NEVER = "privacy.never_devices=[1]"


def host(*overrides: str) -> Parties:
    scene = world.build(small(*overrides))
    states = [device.start(scene.setting, i, scene.dataset.train_images, part) for i, part in enumerate(scene.parts)]
    return together(scene.rules, states)[0]


def test_nobody_waits_for_a_device_that_sends_no_datapoints() -> None:
    parties = host(NEVER)
    without = {0: (3,), 1: (), 2: (3,), 3: (0, 2)}
    assert Push().expects(parties, 0) == without
    assert Request().expects(parties, 3) == without
    assert Deliver().expects(parties, 3) == without
    assert {message.source for message in Push().send(parties, 0).messages} == {0, 2, 3}


def test_in_modes_without_datapoints_it_takes_part() -> None:
    parties = host(NEVER, "exchange.mode=implicit")
    assert Push().expects(parties, 3) == {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}


def test_whoever_asks_it_all_the_same_gets_no_answer() -> None:
    parties = host(NEVER)
    play(Push(), [parties], Direct(), 0)
    (refusal,) = Request().take(parties, [PullRequest(0, 1, 3, 2), *_honest(parties)], 3)
    assert (refusal.source, refusal.target, refusal.blame) == (0, 1, "sender")
    assert parties.devices[1].requests == ()
    assert {message.source for message in Deliver().send(parties, 3).messages} == {0, 2, 3}


def _honest(parties: Parties) -> list[Message]:
    return list(Request().send(parties, 3).messages)


@pytest.mark.parametrize(
    ("phase", "message"),
    [(Push(), DataReserve(0, 1, 3, POINTS)), (Deliver(), DataItems(2, 1, 3, POINTS))],
    ids=["reserve", "items"],
)
@pytest.mark.parametrize("overrides", [(NEVER,), ("exchange.mode=implicit", NEVER)], ids=["explicit", "implicit"])
def test_datapoints_that_are_sent_to_it_are_not_taken(
    phase: Phase, message: Message, overrides: tuple[str, ...]
) -> None:
    parties = host(*overrides)
    before = parties.devices[1]
    refusals = [item for item in phase.take(parties, [message], 3) if item.target == 1 and "datapoints" in item.reason]
    assert [str(item) for item in refusals] == [
        f"step 3: {type(message).__name__} from device {message.source} to device 1: holds datapoints, which device 1 "
        "neither sends nor takes: its privacy setting (the sender's fault)"
    ]
    assert parties.devices[1].reserves == before.reserves == {}
    assert torch.equal(parties.devices[1].pulled, before.pulled)


class _Seen(Direct):
    """Keeps what it carries."""

    carried: tuple[Message, ...] = ()

    def carry(self, kind: type[Message], outbox: Any, expected: Expected) -> list[Message]:
        self.carried = tuple(outbox)
        return super().carry(kind, outbox, expected)


@pytest.mark.parametrize("overrides", [(NEVER,), ("exchange.mode=implicit", "privacy.raw=never")])
def test_datapoints_that_it_would_send_never_reach_the_link(overrides: tuple[str, ...]) -> None:
    link = _Seen()
    bad = DataItems(1, 0, 3, POINTS)
    played = play(Deliver(), [host(*overrides)], link, 3, lambda phase, parties, step: Sent([bad]))
    assert link.carried == ()
    assert "holds datapoints" in played.refusals[0].reason


def test_a_run_with_such_a_sender_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "permits", lambda self, *devices: True)  # as if it had forgotten its own setting
    with pytest.raises(Refused, match="DataReserve from device 0 to device 1: holds datapoints, which device 1"):
        list(Simulation(small(NEVER), reference=True).rows())


def test_the_rest_of_a_run_goes_on_and_nothing_raw_is_charged_to_it() -> None:
    run = Simulation(small(NEVER), reference=True)
    assert sum(1 for _ in run.rows()) > 10
    raw = [row for row in run.ledger.table() if row["kind"] == "datapoint"]
    assert {row["source"] for row in raw} == {row["target"] for row in raw} == {0, 2, 3}
    assert run.run.refused == 0


def test_a_run_that_would_move_datapoints_is_refused_and_others_are_not() -> None:
    for method in ("cfcl", "uniform", "bulk"):
        with pytest.raises(CfclError, match=r"privacy\.raw='never' forbids .* set exchange\.mode='implicit'"):
            world.build(small("privacy.raw=never", f"exchange.method={method}"))
    for overrides in (("exchange.mode=implicit",), ("exchange.method=fedavg",)):
        assert world.build(small("privacy.raw=never", *overrides)).setting.allows_raw(0) is False
        assert world.build(small("privacy.never_devices=[0, 1, 2, 3]", *overrides)).setting.allows_raw(0) is False
    assert world.build(small("privacy.never_devices=[0, 1]")).setting.permits(2, 3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("privacy.noise=0.5",), r"noise=0\.5 is in units of clip, which is not set: set privacy\.clip"),
        (("privacy.never_devices=[1, 1]",), r"never_devices=\[1, 1\] names a device twice"),
        (("privacy.never_devices=[4]",), r"privacy\.never_devices=\[4\] names a device above 3, the last of partition"),
        (
            ("privacy.never_devices=[0, 1, 3]",),
            r"=\[0, 1, 3\] leaves no two devices that could .* or name fewer devices",
        ),
        (("privacy.clip=1.0",), r"privacy\.clip=1 and noise=0 blur embeddings .* sends datapoints as they are"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(CfclError, match=message) as caught:
        world.build(small(*overrides))
    assert "\n" not in str(caught.value)


def _sent(*overrides: str) -> dict[tuple[int, int], torch.Tensor]:
    """What a first exchange moves, by link."""
    parties = host("exchange.mode=implicit", *overrides)
    for phase in (Push(), Request()):
        play(phase, [parties], Direct(), 3)
    found = [message for message in Deliver().send(parties, 3).messages if isinstance(message, EmbeddingItems)]
    return {(message.source, message.target): message.embeddings for message in found}


def test_noise_is_on_what_leaves_and_the_choice_is_made_without_it() -> None:
    plain, loud = (
        _sent("exchange.method=uniform"),
        _sent("exchange.method=uniform", "privacy.clip=0.5", "privacy.noise=0.2"),
    )
    shortened = _sent("exchange.method=uniform", "privacy.clip=0.5")
    off = torch.stack([loud[link] - shortened[link] for link in plain])
    # 8 links of 2 embeddings of length 16 or more: of deviation 0.2 * 0.5, within a fifth
    assert abs(float(off.std()) - 0.1) < 0.02
    for link, vectors in shortened.items():
        assert bool((vectors.norm(dim=1) <= 0.5 + 1e-6).all())
        torch.testing.assert_close(vectors / vectors.norm(dim=1, keepdim=True),
                                   plain[link] / plain[link].norm(dim=1, keepdim=True))  # fmt: skip


def test_all_neighbours_get_the_same_noise_on_the_same_image() -> None:
    sent = _sent("exchange.num_pulled=8", "exchange.method=uniform", "privacy.clip=0.5", "privacy.noise=0.2")
    one, two = sent[0, 1], sent[0, 3]  # all eight candidates, in orders of their own
    assert torch.equal(one.sort(dim=0).values, two.sort(dim=0).values)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # twelve steps, exchanges at 3, 6 and 9, a push with each
        (("exchange.mode=implicit",), (3, 3)),
        (("exchange.mode=implicit", "exchange.push=aggregation"), (3, 3)),  # pushes at 0, 4 and 8
        (("exchange.mode=implicit", "exchange.method=uniform"), (3, 0)),
        (("exchange.mode=implicit", "exchange.method=bulk"), (1, 1)),
        (("exchange.mode=activations", "exchange.layer=features"), (6, 6)),  # two views each
        (("exchange.mode=implicit", "exchange.start=6"), (2, 2)),
    ],
)
def test_releases_of_one_image_are_counted_by_the_schedule(
    overrides: tuple[str, ...], expected: tuple[int, int]
) -> None:
    assert releases.most(world.build(small(*overrides)).rules) == expected


def test_the_same_device_of_another_run_may_change_its_mind() -> None:
    setting = world.build(small(NEVER)).setting
    other = replace(setting, config=small())
    assert [setting.allows_raw(i) for i in range(3)] == [True, False, True]
    assert other.allows_raw(1) is True
