"""A run whose link loses messages: it goes on, and counts them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from cfcl.exchange.messages import DataItems, EmbeddingItems, EmbeddingReserve, GlobalModel, LocalModel, Message
from cfcl.protocol.link import Expected, Link
from cfcl.protocol.refusals import Refused
from cfcl.records import Evaluation, Pull, Record
from cfcl.sim.simulation import Simulation
from tests.conftest import small


@dataclass
class Losing:
    """Loses every third message of a kind."""

    link: Link
    kind: type[Message]
    spoilt: bool = False
    """Spoils it instead."""
    lost: int = 0
    seen: int = 0

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        found: list[Message] = []
        for message in self.link.carry(kind, outbox, expected):
            self.seen += type(message) is self.kind
            if type(message) is self.kind and self.seen % 3 == 0:
                self.lost += 1
                found += [replace(message, step=message.step + 9)] if self.spoilt else []
            else:
                found.append(message)
        return found


def play(kind: type[Message], *overrides: str, spoilt: bool = False) -> tuple[list[Record], Simulation, Losing]:
    links: list[Losing] = []

    def faults(link: Link) -> Link:
        links.append(Losing(link, kind, spoilt))
        return links[0]

    simulation = Simulation(small(*overrides), around=faults)
    return list(simulation.rows()), simulation, links[0]


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        (DataItems, ()),
        (EmbeddingItems, ("exchange.mode=implicit",)),
        (EmbeddingReserve, ("exchange.mode=implicit",)),
        (LocalModel, ()),
        (GlobalModel, ()),
        (DataItems, ("exchange.candidates=relay", "exchange.buffer=keep")),
    ],
)
def test_a_run_goes_on_without_the_messages_that_are_lost(kind: type[Message], overrides: tuple[str, ...]) -> None:
    rows, simulation, link = play(kind, *overrides)
    assert link.lost > 2
    assert simulation.run.refused >= link.lost  # a lost reserve may cost items, too
    assert bool(simulation.model.params.isfinite().all())
    assert [row.step for row in rows if isinstance(row, Evaluation)] == [0, 8, 12]


def test_pulls_are_recorded_for_what_arrived() -> None:
    rows, _, link = play(DataItems)
    whole = [row for row in Simulation(small()).rows() if isinstance(row, Pull)]
    pulls = [row for row in rows if isinstance(row, Pull)]
    assert len(pulls) == len(whole) - link.lost
    assert {(row.step, row.transmitter, row.receiver) for row in pulls} < {
        (row.step, row.transmitter, row.receiver) for row in whole
    }


def test_a_spoilt_message_counts_as_lost() -> None:
    _, lost, _ = play(DataItems)
    _, spoilt, link = play(DataItems, spoilt=True)
    assert torch.equal(lost.model.params, spoilt.model.params)
    assert spoilt.run.refused == 2 * link.lost  # refused, and missing


def test_without_faults_the_run_ends_with_the_reason() -> None:
    simulation = Simulation(small())
    state = simulation.run.hosts[0].devices[1]
    simulation.run.hosts[0].devices[1] = replace(state, points_seen=-(10**6))
    with pytest.raises(
        Refused,
        match=r"step 4: LocalModel from device 1 to the server: its weight -\d+\.\d+ is not a number above 0",
    ) as ended:
        list(simulation.rows())
    assert ended.value.exit_code == 1
