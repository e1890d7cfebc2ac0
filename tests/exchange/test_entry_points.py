"""Policies that other packages bring."""

from dataclasses import dataclass
from typing import Any

import pytest

from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.exchange.policies import Policy, choose_uniform


@dataclass(frozen=True)
class Entry:
    """An installed package's entry point."""

    name: str
    value: str
    found: Any

    def load(self) -> Any:
        return self.found


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        Entry("theirs", "their.package:policy", Policy(offer=None, choose=choose_uniform, needs=frozenset())),
        Entry("rubbish", "their.package:wrong", "no policy"),
    ]

    def entry_points(*, group: str, name: str | None = None) -> list[Entry]:
        assert group == "cfcl.policies"
        return [entry for entry in entries if name in (None, entry.name)]

    monkeypatch.setattr(policies, "entry_points", entry_points)


def test_an_installed_policy_is_found_and_every_process_knows_it() -> None:
    assert policies.find("theirs").choose is choose_uniform
    assert policies.is_portable("theirs")
    assert policies.is_portable("cfcl")
    assert not policies.is_portable("mine")


def test_an_entry_point_that_is_no_policy_is_refused() -> None:
    with pytest.raises(CfclError, match=r"'their.package:wrong' for policy 'rubbish' is not a cfcl Policy: fix its"):
        policies.find("rubbish")


def test_installed_policies_are_offered() -> None:
    with pytest.raises(CfclError, match=r"'other' is not a known policy: .*rubbish, theirs, uniform"):
        policies.find("other")
