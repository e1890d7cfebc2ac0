"""Hostile devices: what they send in place of what an honest device would. In simulation only.

All of it happens between what devices send and the link. A hostile device is honest in everything else, and knows what
any device knows: its points, the last global model, and the reserves that neighbours have pushed to it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from cfcl import device, rng
from cfcl.config import Config
from cfcl.device import Answer, DeviceState, Setting
from cfcl.errors import CfclError
from cfcl.exchange.messages import (
    DataItems,
    DataReserve,
    EmbeddingItems,
    EmbeddingReserve,
    Items,
    LocalModel,
    Message,
    PullRequest,
    Reserve,
)
from cfcl.protocol.parties import Parties
from cfcl.protocol.phases import Phase, Sent
from cfcl.protocol.refusals import Refusal
from cfcl.protocol.steps import Send

Carrier = TypeVar("Carrier", Items, Reserve)
Positions = Mapping[tuple[int, int], Tensor]
"""Of the points chosen for each link, among those of the transmitter."""

GREY = 128
MOST = 2**31
"""Items that a message can ask for and still be one."""
STRENGTHS = {"items-far": 1e6, "reserve-radii": 1e6, "request-all": 1e3, "model-weight": 1e6}
USUAL = 10.0
"""Strength of the other kinds, where none is set."""


@dataclass(frozen=True)
class Attack:
    """The hostile devices of a run; it may have none."""

    setting: Setting
    devices: frozenset[int]

    def around(self, send: Send) -> Send:
        """The same as `send` for honest devices."""
        return self._sender(send) if self.devices else send

    def explains(self, refusal: Refusal) -> bool:
        """Whether a refusal is of what a hostile device sent, or of what it got nothing of."""
        return refusal.source in self.devices or refusal.target in self.devices

    def _sender(self, send: Send) -> Send:
        def sent(phase: Phase, parties: Parties, step: int) -> Sent:
            honest = send(phase, parties, step)
            answers = [report for report in honest.reports if isinstance(report, Answer)]
            positions = {(item.items.source, item.items.target): item.positions for item in answers}
            messages = [
                self._altered(parties.devices[message.source], message, positions)
                if message.source in self.devices
                else message
                for message in honest.messages
            ]
            return Sent(messages, [self._unseen(item) if isinstance(item, Answer) else item for item in honest.reports])

        return sent

    def _altered(self, state: DeviceState, message: Message, positions: Positions) -> Message:
        """What `state` sends in place of `message`; the message itself where its kind of attack lies elsewhere."""
        aim = self._kind.partition("-")[0]
        if aim == "items" and isinstance(message, Items):
            return self._items(state, message, positions[message.source, message.target])
        if aim == "reserve" and isinstance(message, Reserve):
            return self._reserve(state, message)
        if aim == "request" and isinstance(message, PullRequest):
            return replace(message, num_items=min(math.ceil(message.num_items * self._strength), MOST))
        if aim == "model" and isinstance(message, LocalModel):
            stream = rng.stream(self.setting.config.seed, "attack", message.source, message.step)
            return poisoned(message, state.anchor.params, self._kind, self._strength, stream)
        return message

    def _items(self, state: DeviceState, message: Items, positions: Tensor) -> Items:
        if self._kind == "items-far":
            return _carrying(self.setting, message, message.content * self._strength)
        if self._kind == "items-centroids":
            reserve = state.reserves[message.target].content
            return _carrying(self.setting, message, reserve[torch.arange(len(message.content)) % len(reserve)])
        stream = rng.stream(self.setting.config.seed, "attack", message.source, message.target, message.step)
        images = spoilt(state.points[positions], self._kind, stream)
        return _carrying(self.setting, message, device.as_payload(self.setting, state, images, message.step))

    def _reserve(self, state: DeviceState, message: Reserve) -> Reserve:
        if self._kind == "reserve-radii":
            assert message.numbers is not None
            return replace(message, numbers=message.numbers / self._strength)
        # The same for all neighbours: who shares a process looks at a reserve once.
        stream = rng.stream(self.setting.config.seed, "attack", message.source, message.step)
        places = torch.zeros(len(message.content), dtype=torch.int64)
        images = spoilt(state.points[places], "items-noise", stream)
        return _carrying(self.setting, message, device.as_payload(self.setting, state, images, message.step))

    def _unseen(self, answer: Answer) -> Answer:
        """An answer without the embeddings of items that were never sent."""
        if answer.items.source not in self.devices or not self._kind.startswith("items"):
            return answer
        return replace(answer, embeddings=device.no_embeddings(self.setting))

    @property
    def _kind(self) -> str:
        return self.setting.config.attack.kind

    @property
    def _strength(self) -> float:
        return self.setting.config.attack.strength or STRENGTHS.get(self._kind, USUAL)


def build(setting: Setting) -> Attack:
    """The hostile devices of a run."""
    return Attack(setting, hostile(setting.config))


def check(setting: Setting) -> None:
    """Refuse a kind of attack that a run's method leaves no room for."""
    kind, policy = setting.config.attack.kind, setting.policy
    if not setting.config.attack.devices or policy.choose is None:
        return
    if kind == "items-far" and setting.explicit:
        raise CfclError(
            "attack.kind='items-far' needs numbers without bounds, but exchange.mode='explicit' sends bytes: choose "
            "another attack.kind, or exchange.mode='implicit' or 'activations'"
        )
    if (kind == "items-centroids" or kind.startswith("reserve")) and policy.offer is None:
        raise CfclError(
            f"attack.kind={kind!r} needs reserves, but exchange.method={setting.config.exchange.method!r} pushes none: "
            "choose another attack.kind, or exchange.method='cfcl'"
        )
    if kind == "reserve-radii" and policy.measure is None:
        raise CfclError(
            f"attack.kind='reserve-radii' needs radii, but exchange.method={setting.config.exchange.method!r} sends "
            "none with a reserve: choose attack.kind='reserve-noise', or exchange.method='cover'"
        )


def hostile(config: Config) -> frozenset[int]:
    """The devices that `attack.devices` names, or a draw of so many."""
    wanted = config.attack.devices
    if not wanted or isinstance(wanted, tuple):
        return frozenset(wanted or ())
    return frozenset(rng.places(config.partition.num_devices, wanted, config.seed, "hostile").tolist())


def spoilt(images: Tensor, kind: str, stream: torch.Generator) -> Tensor:
    """Images of noise, negatives of `images`, or flat grey ones, as many as there are."""
    if kind == "items-negative":
        return 255 - images
    if kind == "items-constant":
        return torch.full_like(images, GREY)
    return torch.randint(0, 256, images.shape, generator=stream, dtype=torch.uint8).to(images.device)


def poisoned(message: LocalModel, anchor: Tensor, kind: str, strength: float, stream: torch.Generator) -> LocalModel:
    """A model whose way from the last global one, the `anchor`, is `strength` times as long: back, onwards, or
    anywhere; or the same model with so many times the weight.
    """
    if kind == "model-weight":
        return replace(message, weight=message.weight * strength)
    update = message.params - anchor
    if kind == "model-flipped":
        return replace(message, params=anchor - strength * update)
    if kind == "model-scaled":
        return replace(message, params=anchor + strength * update)
    noise = torch.randn(update.shape, generator=stream).to(update)
    return replace(message, params=anchor + noise * (strength * float(update.norm()) / float(noise.norm())))


def _carrying(setting: Setting, message: Carrier, content: Tensor) -> Carrier:
    """The message with another content."""
    if isinstance(message, DataItems | DataReserve):
        return replace(message, points=content)
    if isinstance(message, EmbeddingItems | EmbeddingReserve):
        return replace(message, embeddings=content)
    values, ranges = device.as_sent(setting, content)
    return replace(message, values=values, ranges=ranges)
