"""Wall-clock figures, kept apart from the deterministic records."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cfcl.exchange.messages import Message
from cfcl.protocol.parties import Parties
from cfcl.protocol.phases import Deliver, Phase, Push, Sent
from cfcl.records import Timings

SHARE = 0.005
"""Of a run's time, what may go into measuring its selection."""


@dataclass
class Clocks:
    """What a run took."""

    selection: list[tuple[int, float]] = field(default_factory=list)
    """Per exchange, the slowest device's processor time for the reserve's K-means and for choosing items."""
    exchange: float = 0.0
    """Choosing, moving and taking in reserves and items, waiting for other processes included."""
    evaluation: float = 0.0
    total: float = 0.0
    """From the first evaluation on; without the start of processes and libraries."""
    _begun: float = 0.0

    @classmethod
    def of(cls, timings: Timings) -> "Clocks":
        """Clocks that go on from `timings`."""
        return cls(list(timings.selection), timings.exchange or 0.0, timings.evaluation, timings.total)

    def start(self) -> None:
        """The run begins, or goes on."""
        self._begun = time.perf_counter()

    def read(self) -> Timings:
        """What the run has taken so far."""
        now = time.perf_counter()
        self.total, self._begun = self.total + now - self._begun, now
        return Timings(tuple(self.selection), self.exchange, self.evaluation, self.total)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Counts the time inside as that of an evaluation."""
        begun = time.perf_counter()
        yield
        self.evaluation += time.perf_counter() - begun


class Stopwatch:
    """Measures what a device needs for its own work at an exchange, were it alone with it.

    Reserves are chosen device by device, so each can be timed. Items are chosen for all devices of a process together:
    the one with most requests does it once more by itself, as long as that takes little of the run's time; else the
    last reading stands.
    """

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._rehearsed = 0.0
        self._push = 0.0
        self._pull = 0.0

    def reading(self) -> float:
        """Processor seconds of the slowest device since the last reading."""
        found = self._push + self._pull
        self._push = 0.0
        return found

    def send(self, phase: Phase, parties: Parties, step: int) -> Sent:
        """What `phase.send` gives, timed if it is a selection."""
        if isinstance(phase, Push):
            return self._one_by_one(phase, parties, step)
        if isinstance(phase, Deliver) and parties.devices:
            self._rehearse(phase, parties, step)
        return phase.send(parties, step)

    def _one_by_one(self, phase: Phase, parties: Parties, step: int) -> Sent:
        found: list[Message] = []
        for i, state in parties.devices.items():
            alone = Parties(parties.rules, {i: state})
            begun = time.thread_time()
            found += phase.send(alone, step).messages
            self._push = max(self._push, time.thread_time() - begun)
            parties.devices[i] = alone.devices[i]
        return Sent(found)

    def _rehearse(self, phase: Phase, parties: Parties, step: int) -> None:
        if self._rehearsed > SHARE * (time.perf_counter() - self._begun):
            return
        busiest = max(parties.devices.values(), key=lambda state: len(state.requests))
        begun = time.thread_time()
        phase.send(Parties(parties.rules, {busiest.id: busiest}), step)
        self._pull = time.thread_time() - begun
        self._rehearsed += self._pull
