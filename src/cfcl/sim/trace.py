"""Every message of a run, one line of JSON each."""

import json
from collections.abc import Callable, Sequence

from cfcl.exchange.cost import Ledger, size_of
from cfcl.exchange.messages import Message
from cfcl.sim.group import Group


def tracer(group: Group, ledger: Ledger, write: Callable[[str], None]) -> Callable[[Sequence[Message]], None]:
    """Writes who sent what to whom, phase by phase and in order of source and target, at the leader of `group`."""

    def see(outbox: Sequence[Message]) -> None:
        lines = group.gather_lines([_line(message, ledger.num_parameters) for message in outbox])
        for line in sorted(lines, key=_order):
            write(line)

    return see


def _line(message: Message, num_parameters: int) -> str:
    return json.dumps(
        {
            "from": message.source,
            "to": message.target,
            "kind": type(message).__name__,
            "step": message.step,
            "bytes": size_of(message, num_parameters=num_parameters),
        }
    )


def _order(line: str) -> tuple[int, int]:
    row = json.loads(line)
    return row["from"], row["to"]
