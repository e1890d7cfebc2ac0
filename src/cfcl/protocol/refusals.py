"""What is wrong with a message, and whose fault it is. A bad message is never used."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from cfcl.device import Setting
from cfcl.errors import CfclError
from cfcl.exchange.messages import RAW, SERVER, Message

Blame = Literal["sender", "link"]
MISSING = "did not arrive"


@dataclass(frozen=True)
class Refusal:
    """A message that was not used, or did not arrive."""

    step: int
    kind: str
    source: int
    target: int
    blame: Blame
    """`sender`: no honest party sends this; `link`: it was lost, late, repeated or altered on the way."""
    reason: str

    def __str__(self) -> str:
        return (
            f"step {self.step}: {self.kind} from {party(self.source)} to {party(self.target)}: {self.reason} "
            f"(the {self.blame}'s fault)"
        )


class Refused(CfclError):  # noqa: N818
    """A run without configured faults has met a message that it cannot use."""

    exit_code = 1


Fault = Callable[[Message], str | None]
"""What is wrong with the content of a message, if anything."""


def party(number: int) -> str:
    """A party for people."""
    return "the server" if number == SERVER else f"device {number}"


def sift(
    inbox: Iterable[Message],
    *,
    target: int,
    step: int,
    kinds: tuple[type[Message], ...],
    expected: Iterable[int],
    fault: Fault,
) -> tuple[list[Message], list[Refusal]]:
    """The messages that `target` may use, in order of source, and a refusal of each other one and of each missing."""
    waiting, used = set(expected), set[int]()
    accepted: list[Message] = []
    refused: list[Refusal] = []
    for message in inbox:
        found = _envelope(message, step, kinds) or _sender(message, waiting, used)
        if found is None and (reason := fault(message)) is not None:
            found = "sender", reason
        if found is None:
            accepted.append(message)
            used.add(message.source)
        else:
            refused.append(Refusal(step, type(message).__name__, message.source, target, *found))
    missing = sorted(waiting - used)
    refused += [Refusal(step, kinds[0].__name__, source, target, "link", MISSING) for source in missing]
    return sorted(accepted, key=lambda message: message.source), refused


def permitted(setting: Setting, messages: Iterable[Message], step: int) -> tuple[list[Message], list[Refusal]]:
    """The messages that may leave or enter a device, and refusals of datapoints from, or for, one that allows none."""
    allowed: list[Message] = []
    refused: list[Refusal] = []
    for message in messages:
        ends = (message.source, message.target) if isinstance(message, RAW) else ()
        barred = next((end for end in ends if not setting.allows_raw(end)), None)
        if barred is None:
            allowed.append(message)
        else:
            reason = f"holds datapoints, which {party(barred)} neither sends nor takes: its privacy setting"
            refused.append(Refusal(step, type(message).__name__, message.source, message.target, "sender", reason))
    return allowed, refused


def astray(message: Message, step: int) -> Refusal:
    """The refusal of a message whose target is not here, or waits for nothing."""
    kind, target = type(message).__name__, message.target
    return Refusal(step, kind, message.source, target, "link", f"{party(target)} is not here, or waits for nothing")


def _envelope(message: Message, step: int, kinds: tuple[type[Message], ...]) -> tuple[Blame, str] | None:
    if type(message) not in kinds:
        return "sender", f"is not the {kinds[0].__name__} that this phase and mode expect"
    if message.step != step:
        return ("link", f"is late: of step {message.step}") if message.step < step else ("sender", "is of a later step")
    return None


def _sender(message: Message, waiting: set[int], used: set[int]) -> tuple[Blame, str] | None:
    if message.source not in waiting:
        return "sender", "was not asked for: its sender is no neighbour, or has no part in this phase"
    return ("link", "arrived before: it is a duplicate") if message.source in used else None


def unlike(name: str, tensor: Tensor, like: Tensor, *, rows: int | None = None) -> str | None:
    """How `tensor` differs from `like` in type or shape, or is not finite; with `rows`, any number up to that."""
    free = 0 if rows is None else 1
    if tensor.dtype != like.dtype:
        return f"{name} is of type {tensor.dtype}, not {like.dtype}"
    if tensor.ndim != like.ndim or tensor.shape[free:] != like.shape[free:]:
        return f"{name} has the shape {tuple(tensor.shape)}, not {('any',) * free + tuple(like.shape[free:])}"
    if rows is not None and len(tensor) > rows:
        return f"{name} has {len(tensor)} rows, over the {rows} agreed"
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        return f"{name} is not finite"
    return None
