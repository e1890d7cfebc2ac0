"""A link on which messages do not leave, come late, get lost, or arrive damaged."""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from cfcl import rng
from cfcl.config import FaultsConfig
from cfcl.exchange.cost import LABELS
from cfcl.exchange.messages import LocalModel, Message, ModelBlock, ModelSum, PullRequest
from cfcl.protocol import codec
from cfcl.protocol.link import Expected, Link
from cfcl.protocol.outages import Outages
from cfcl.protocol.parties import Rules

COUNTED = ("messages", "unsent", "late", "lost", "damaged", "refused")
"""What is counted: messages that parties wanted to send, and what became of some of them."""
FLIPPED = 4
"""Bytes of a message that are flipped, at most."""
SPOILT = 0.1
"""Share of the values of a message that are spoilt, and at least one."""


@dataclass(frozen=True)
class Faulty:
    """Carries less than it is given. What has left its sender is carried by the link inside, which charges it."""

    link: Link
    outages: Outages
    counts: Counter[str]

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """What gets through, some of it spoilt."""
        if kind in (ModelSum, ModelBlock):  # the server talks to itself
            return self.link.carry(kind, outbox, expected)
        arrived = self.link.carry(kind, [message for message in outbox if self._leaves(message)], expected)
        return [message for sent in arrived for message in self._delivered(sent)]

    def _leaves(self, message: Message) -> bool:
        """Whether a message is sent at all: its sender knows who is in reach."""
        link = message.source, message.target
        if not self.outages.exists(link, message.step):
            return False
        unsent = self.outages.is_down(link, message.step)
        self.counts.update(messages=1, unsent=int(unsent))
        return not unsent

    def _delivered(self, message: Message) -> list[Message]:
        """What the receiver gets of a message that was sent: itself, another one, or nothing."""
        if isinstance(message, ModelSum):
            return [message]
        fate = self._fate(message)
        self.counts.update({fate: 1} if fate else {})
        if fate in ("late", "lost"):
            return []
        if fate != "damaged":
            return [message]
        stream = rng.stream(self.outages.config.seed, "damage", *_name(message))
        if self._faults.damaged == "values":
            return [spoilt(message, stream)]
        try:
            return unsealed(flipped(sealed(message), stream))
        except codec.Malformed:
            self.counts.update(refused=1)
            return []

    def _fate(self, message: Message) -> str:
        """What happens to a message on its way; nothing, if it is empty."""
        faults, name = self._faults, _name(message)
        chances = {"late": faults.straggling * isinstance(message, LocalModel), "lost": faults.loss}
        chances["damaged"] = faults.damage
        seed = self.outages.config.seed
        return next((fate for fate, chance in chances.items() if rng.uniform(seed, fate, *name) < chance), "")

    @property
    def _faults(self) -> FaultsConfig:
        return self.outages.config.faults


def around(link: Link, rules: Rules, counts: Counter[str]) -> Link:
    """`link` with the faults of a run, which are counted; `link` itself if there are none."""
    return link if rules.outages is None else Faulty(link, rules.outages, counts)


def sealed(message: Message) -> bytes:
    """A message as bytes after their checksum."""
    data = codec.encode([message])
    return zlib.crc32(data).to_bytes(4, "big") + data


def unsealed(frame: bytes) -> list[Message]:
    """The message in a frame; Malformed if its checksum is another."""
    if zlib.crc32(frame[4:]) != int.from_bytes(frame[:4], "big"):
        raise codec.Malformed("its checksum differs")
    return codec.decode(frame[4:])


def flipped(frame: bytes, stream: torch.Generator) -> bytes:
    """`frame` with all bits of some bytes the other way round."""
    found = bytearray(frame)
    for place in set(torch.randint(len(found), (FLIPPED,), generator=stream).tolist()):
        found[place] ^= 0xFF
    return bytes(found)


def spoilt(message: Message, stream: torch.Generator) -> Message:
    """`message` with some values replaced: floats by NaN, whole numbers by others, a request's by one below 0."""
    if isinstance(message, PullRequest):
        return replace(message, num_items=-message.num_items)
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    return replace(message, **{name: _spoilt(value, stream) for name, value in values.items()})


def _spoilt(value: Any, stream: torch.Generator) -> Any:
    if isinstance(value, Mapping):
        return {name: _spoilt(part, stream) for name, part in value.items()}
    if not isinstance(value, Tensor) or value.numel() == 0:
        return value
    size = max(1, int(SPOILT * value.numel()))
    places = torch.randint(value.numel(), (size,), generator=stream).to(value.device)
    found = value.flatten().clone()
    if value.is_floating_point():
        found[places] = float("nan")
    else:
        found[places] = torch.randint(256, (size,), generator=stream, dtype=value.dtype).to(value.device)
    return found.view(value.shape)


def _name(message: Message) -> tuple[str, int, int, int]:
    """What a draw about a message is called: the same whatever the message carries."""
    way = LABELS[type(message)][1] if type(message) in LABELS else "request"
    return way, message.source, message.target, message.step
