"""Policies that give back what cannot be sent."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import cfcl
from cfcl.config import ExchangeConfig
from cfcl.errors import CfclError
from cfcl.exchange import checks, policies
from cfcl.exchange.policies import Choice, Policy, Pull, Randomness, Stages, choose_uniform
from tests.conftest import small
from tests.exchange.test_policies import make_pull

CONFIG = ExchangeConfig(method="mine", num_candidates=6, num_reserve=3, num_clusters=2, num_pulled=2)
LAW = torch.full((2, 6), -math.log(6), dtype=torch.float64)
GOOD = (torch.tensor([5, 0]), torch.tensor([0]))


def choice(**parts: Any) -> Choice:
    """A choice for two links that ask for two items and one, with other parts than it should have."""
    found = Choice(GOOD, LAW)
    for name, part in parts.items():  # past the types, which are checked in tests only
        object.__setattr__(found, name, part)
    return found


def wrong(found: object) -> str:
    """Why a policy that chooses `found` is refused."""
    policy = Policy(offer=None, choose=lambda pull: found)  # type: ignore[arg-type, return-value]
    with pytest.raises(CfclError) as caught:
        checks.choose(policy, make_pull(CONFIG, num_items=(2, 1)))
    assert str(caught.value).startswith("exchange.method='mine' cannot be used: ")
    assert str(caught.value).endswith("; fix the policy")
    return str(caught.value)


def test_what_can_be_sent_passes() -> None:
    pull = make_pull(CONFIG, num_items=(2, 1))
    fewer, impossible = choice(chosen=(GOOD[1], GOOD[1][:0])), choice(log_probabilities=LAW - math.inf)
    for found in (choice(), fewer, impossible):
        assert checks.choose(Policy(None, lambda _, found=found: found), pull) is found  # type: ignore[misc]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_law_that_is_no_law_is_refused(value: float) -> None:
    message = "its law has entries that are no logarithm of a probability"
    assert message in wrong(choice(log_probabilities=LAW.index_fill(1, torch.tensor([4]), value)))
    assert message in wrong(choice(log_probabilities=torch.zeros(2, 6, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (torch.tensor([6]), "positions are not all in 0..5"),
        (torch.tensor([-1]), "positions are not all in 0..5"),
        (torch.tensor([3, 3]), "a position occurs twice"),
        (torch.tensor([1, 2, 3]), "it chooses more items than the 2 that a receiver asks for"),
        (torch.tensor([[1, 2]]), "positions are not in 1-D tensors of int64"),
        (torch.tensor([1.0, 2.0]), "positions are not in 1-D tensors of int64"),
        (torch.tensor([True, True, False, False, False, False]), "positions are not in 1-D tensors of int64"),
        ([1, 2], "positions are not in 1-D tensors of int64"),
    ],
)
def test_items_that_cannot_be_sent_are_refused(first: object, message: str) -> None:
    assert message in wrong(choice(chosen=(first, GOOD[1])))


def test_what_is_not_there_for_every_link_and_candidate_is_refused() -> None:
    assert "it chooses NoneType, not a Choice" in wrong(None)
    assert "it chooses for 1 links, where 2 are due" in wrong(choice(chosen=GOOD[:1]))
    assert "its law is not a tensor of 2 links by 6 candidates" in wrong(choice(log_probabilities=LAW[:, 1:]))
    assert "its law is not a tensor of 2 links by 6 candidates" in wrong(choice(log_probabilities=LAW.tolist()))
    assert "its score 'novelty' is not a tensor of 2" in wrong(choice(scores={"novelty": LAW[0]}))
    stages = Stages(torch.zeros(1, 6, dtype=torch.int64), LAW[:1], LAW[:1])
    assert "its clusters is not a tensor of 2" in wrong(choice(stages=stages))


@pytest.mark.parametrize(
    ("offering", "message"),
    [
        (torch.tensor([0, 9]), "positions are not all in 0..8"),
        (torch.tensor([4, 4]), "a position occurs twice"),
        (torch.tensor([0, 1, 2, 3]), "it offers 4 points, where 1 to 3 are due"),
        (torch.tensor([0, 1])[:0], "it offers 0 points, where 1 to 3 are due"),
        (torch.tensor([0.0]), "positions are not in 1-D tensors of int64"),
        (None, "it offers NoneType, not a tensor of positions"),
    ],
)
def test_a_reserve_that_cannot_be_pushed_is_refused(offering: Any, message: str) -> None:
    policy = Policy(offer=lambda *_: offering, choose=None)
    with pytest.raises(CfclError, match=f"exchange.method='mine' cannot be used: {message}; fix the policy"):
        checks.offer(policy, torch.zeros(9, 4), 3, CONFIG, Randomness(0, 0, 0))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (torch.ones(2), "not 3 numbers in float32, one with each point of the reserve"),
        (torch.ones(3, dtype=torch.float64), "not 3 numbers in float32"),
        (None, "not 3 numbers in float32"),
        (torch.tensor([1.0, math.inf, 1.0]), "not finite"),
    ],
)
def test_numbers_that_cannot_be_sent_are_refused(numbers: Any, message: str) -> None:
    policy = Policy(offer=None, choose=None, measure=lambda *_: numbers)
    with pytest.raises(CfclError, match=f"exchange.method='mine' cannot be used: what it measures is {message}"):
        checks.measure(policy, torch.zeros(9, 4), torch.zeros(3, 4), CONFIG)


@pytest.fixture
def _odd() -> Iterator[None]:
    def choose(pull: Pull) -> Choice:
        return policies.draw(torch.full_like(choose_uniform(pull).log_probabilities, math.nan), pull)

    policies.register("odd", Policy(offer=None, choose=choose, needs=frozenset()))
    yield
    del policies.POLICIES["odd"]


@pytest.mark.usefixtures("_odd")
@pytest.mark.parametrize("engine", ["sharded", "loop"])
def test_both_engines_refuse_alike(engine: Any) -> None:
    with pytest.raises(CfclError, match=r"exchange.method='odd' cannot be used: its law has entries"):
        cfcl.run(small("exchange.method=odd"), engine=engine)
