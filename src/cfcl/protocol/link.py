"""What carries messages. A link is the only thing in which runtimes differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cfcl.exchange.cost import Ledger
from cfcl.exchange.messages import LocalModel, Message, ModelBlock, ModelSum
from cfcl.protocol import codec

Expected = Mapping[int, tuple[int, ...]]
"""For each party of this process, from whom it expects a message."""


@runtime_checkable
class Link(Protocol):
    """Carries the messages of one phase, between the parties of a process and to other processes."""

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """Give `outbox` away; what has arrived for the parties of this process."""
        ...


class Direct:
    """All parties are in this process: what is sent arrives."""

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """The outbox itself."""
        return list(outbox)


class Bytes:
    """All parties are in this process, but nothing passes that is not bytes."""

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """Every message, encoded and decoded by itself."""
        return [arrived for message in outbox for arrived in codec.decode(codec.encode([message]))]


@dataclass(frozen=True)
class Counted:
    """Charges every message to a ledger: where its receiver is, and an upload where its sender is."""

    link: Link
    ledger: Ledger

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """As the link inside."""
        inbox = self.link.carry(kind, outbox, expected)
        for message in outbox if kind is LocalModel else inbox:
            self.ledger.charge(message)
        return inbox


@dataclass(frozen=True)
class Traced:
    """Shows every message that this process sends, in order of phase, source and target."""

    link: Link
    see: Callable[[Sequence[Message]], None] = field(repr=False)

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """As the link inside."""
        # What the server tells itself is no message to others, and its processes take turns in telling it.
        if kind not in (ModelSum, ModelBlock):
            self.see(outbox)
        return self.link.carry(kind, outbox, expected)
