"""The link between processes that share a simulation: batches of messages as bytes, and the sum of models in order."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cfcl.exchange.messages import SERVER, LocalModel, Message, ModelSum
from cfcl.protocol import codec
from cfcl.protocol.link import Expected
from cfcl.sim.group import Group


class GroupLink:
    """Every process holds a share of the devices and a server for them."""

    def __init__(self, group: Group, num_devices: int, sum_size: int, kinds: codec.Kinds = codec.KINDS) -> None:
        self._group = group
        self._num_devices = num_devices
        self._sum_size = sum_size
        self._kinds = kinds

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        """What is for this process, in order of source and target."""
        if self._group.size == 1 or (outbox and outbox[0].source == SERVER and kind is not ModelSum):
            return list(outbox)  # a server serves the devices of its own process
        if kind is LocalModel:
            return [*self._sum_before(), *outbox]
        if kind is ModelSum:
            return self._sum_of_all(outbox)
        return self._routed(outbox)

    def _sum_before(self) -> list[Message]:
        """The sum so far, from the process before; its step comes as a last entry."""
        if self._group.leads:
            return []
        return [_unpacked(self._group.receive(self._sum_size + 1))]

    def _sum_of_all(self, outbox: Sequence[Message]) -> list[Message]:
        (message,) = outbox
        assert isinstance(message, ModelSum)
        return [_unpacked(self._group.pass_on(torch.cat([message.total, message.total.new_tensor([message.step])])))]

    def _routed(self, outbox: Sequence[Message]) -> list[Message]:
        piles: list[list[Message]] = [[] for _ in range(self._group.size)]
        for message in outbox:
            piles[self._group.owner(message.target, self._num_devices)].append(message)
        own, piles[self._group.rank] = piles[self._group.rank], []
        arrived = self._group.swap([codec.encode(pile) if pile else b"" for pile in piles])
        found = own + [message for data in arrived if data for message in codec.decode(data, self._kinds)]
        return sorted(found, key=lambda message: (message.source, message.target))


def _unpacked(vector: Tensor) -> ModelSum:
    return ModelSum(SERVER, SERVER, int(vector[-1]), vector[:-1])
