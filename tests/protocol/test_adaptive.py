"""Adaptive budgets: who is asked for how much, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import cfcl
from cfcl import config as configs
from cfcl import device
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.exchange.messages import DataItems, PullRequest
from cfcl.exchange.policies import Choice, Policy, Pull
from cfcl.protocol.phases import Deliver, Request
from cfcl.sim import world
from tests.conftest import small
from tests.protocol.test_refusals import STEP, host, pushed, sent
from tests.sim.test_faults import play

ADAPTIVE = ("exchange.method=cover", "exchange.budget=adaptive")
NEW = {0: 0, 1: 3, 2: 3, 3: 8}
"""How many of its eight candidates each device finds new, whoever asks."""


def choose(pull: Pull) -> Choice:
    found = policies.choose_uniform(pull)
    number = torch.tensor([[NEW[transmitter]] for transmitter, _ in pull.links])
    # the others are as likely known as new, which is not new
    new = torch.where(torch.arange(8) < number, 0.0, math.log(0.5))
    return replace(found, scores={"mine": new})


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(offer=None, choose=choose, needs=frozenset(), newness="mine")
    monkeypatch.setitem(policies.POLICIES, "mine", policy)


@pytest.mark.usefixtures("mine")
def test_items_go_where_most_is_new_and_answers_pay_for_saying_so(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    config = small("exchange.method=mine", "exchange.budget=adaptive")
    result = cfcl.run(config, engine="loop", trace=trace)
    pulls = {
        (row["step"], row["receiver"], row["transmitter"]): (row["items"], row["new"]) for row in result.of("pull")
    }
    # nothing is known at t = 3: two from each neighbour, as with fixed budgets
    assert {items for (step, *_), (items, _) in pulls.items() if step == 3} == {2}
    # then four from both: 4 * 3/11 = 1.1 and 4 * 8/11 = 2.9; or no more than the 3 that are new
    expected = {(0, 1): 1, (0, 3): 3, (1, 0): 0, (1, 2): 3, (2, 1): 1, (2, 3): 3, (3, 0): 0, (3, 2): 3}
    for step in (6, 9):
        assert {link: pulls[step, *link][0] for link in expected} == expected
    assert {(other, new) for (_, _, other), (_, new) in pulls.items()} == set(NEW.items())
    # 64 bytes per item and 4 per answer, on 8 links: 16 items, then twice 14
    assert result.evaluations[-1].bytes_pull == 64 * (16 + 14 + 14) + 3 * 8 * 4
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    answers = {(row["from"], row["to"]): row["bytes"] for row in rows if (row["step"], row["kind"]) == (6, "DataItems")}
    assert answers[0, 1] == 4
    assert answers[3, 0] == 3 * 64 + 4


def test_the_neighbours_whose_number_was_lost_are_asked_by_the_last_one_or_for_their_own_budget() -> None:
    parties = pushed(*ADAPTIVE)
    setting, state = parties.rules.setting, parties.devices[0]

    def wanted(news: dict[int, int]) -> list[int]:
        return [message.num_items for message in device.request(setting, replace(state, news=news), STEP, (1, 3))]

    assert wanted({}) == [2, 2]
    assert wanted({3: 8}) == [2, 2]  # two of its own for device 1, and two are left
    assert wanted({3: 1}) == [2, 1]
    Request().take(parties, sent(Request(), parties), STEP)
    items = [message for message in sent(Deliver(), parties) if (message.source, message.target) != (1, 0)]
    parties.devices[0] = replace(parties.devices[0], news={1: 5, 3: 99})
    Deliver().take(parties, items, STEP)
    (told,) = [message.new for message in items if isinstance(message, DataItems) and message.target == 0]
    assert parties.devices[0].news == {1: 5, 3: told}


def test_a_link_may_carry_the_budget_of_all_up_to_the_candidates() -> None:
    for pulled, most in ((2, 4), (5, 8)):  # two neighbours, eight candidates
        parties = pushed(*ADAPTIVE, f"exchange.num_pulled={pulled}")
        other = PullRequest(2, 1, STEP, 0)
        for number in (0, most):
            assert all(
                item.target != 1 for item in Request().take(parties, [PullRequest(0, 1, STEP, number), other], 3)
            )
            assert [request.num_items for request in parties.devices[1].requests] == [number, 0]
        for number in (-1, most + 1):
            first = Request().take(parties, [PullRequest(0, 1, STEP, number), other], STEP)
            assert f"asks for {number} items, where the budget of the link is {most}" in {item.reason for item in first}


def test_answers_must_say_what_is_new_and_bring_no_more_than_was_asked_for() -> None:
    parties = pushed(*ADAPTIVE)
    parties.devices[0] = replace(parties.devices[0], news={1: 1, 3: 8})  # 4/9 and 32/9: none and four
    Request().send(parties, STEP)
    pixels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    good = DataItems(3, 0, STEP, pixels, 8)
    for message, reason in [
        (DataItems(1, 0, STEP, pixels[:0]), "does not say how much is new, where budgets are adaptive"),
        (DataItems(1, 0, STEP, pixels[:0], 9), "says that 9 candidates are new, of 8"),
        (DataItems(1, 0, STEP, pixels[:0], -1), "says that -1 candidates are new, of 8"),
        (DataItems(1, 0, STEP, pixels[:1], 8), "what was sent has 1 rows, over the 0 agreed"),
    ]:
        reasons = [item.reason for item in Deliver().take(parties, [message, good], STEP) if item.target == 0]
        assert reasons == [reason, "did not arrive"]
    assert parties.devices[0].news == {1: 1, 3: 8}
    fixed = pushed("exchange.method=cover")
    assert Deliver().take(fixed, [good], STEP)[0].reason == "says how much is new, where budgets are fixed"


@pytest.mark.parametrize("method", ["uniform", "cfcl", "bulk", "kmeans", "oracle"])
def test_rules_that_do_not_know_what_is_new_keep_to_fixed_budgets(method: str) -> None:
    config = small(f"exchange.method={method}", "exchange.budget=adaptive")
    assert not world.build(config).setting.adaptive
    assert configs.notes(["exchange.budget"], [config]) == [
        "exchange.budget has no effect here, only with methods novel and cover"
    ]


@pytest.mark.parametrize("method", ["cover", "novel"])
def test_others_do_not(method: str) -> None:
    assert host(f"exchange.method={method}", "exchange.budget=adaptive").rules.setting.adaptive


def test_a_policy_must_give_the_score_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(offer=None, choose=policies.choose_uniform, needs=frozenset(), newness="mine")
    monkeypatch.setitem(policies.POLICIES, "mine", policy)
    with pytest.raises(CfclError, match=r"its newness is the score 'mine', but it gives \[\]; fix the policy"):
        cfcl.run(small("exchange.method=mine", "exchange.budget=adaptive"), engine="loop")


def test_what_was_sent_and_kept_is_not_new() -> None:
    parties = pushed(*ADAPTIVE, "exchange.buffer=keep", "exchange.cover_edge=1e-9")  # all is outside so small balls
    every = torch.arange(len(parties.devices[1].points))
    for had, new in ((every[:0], 8), (every, 0)):
        parties.devices[1] = replace(parties.devices[1], sent={0: had})
        Request().take(parties, sent(Request(), parties), STEP)
        assert [item.new for item in sent(Deliver(), parties) if isinstance(item, DataItems) and item.source == 1] == [
            new,
            8,
        ]


def test_a_run_goes_on_without_the_answers_that_are_lost() -> None:
    _, simulation, link = play(DataItems, *ADAPTIVE, "exchange.buffer=keep")
    assert link.lost > 2
    assert simulation.run.refused == link.lost
    assert bool(simulation.model.params.isfinite().all())
