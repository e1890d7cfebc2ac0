"""The link between processes that share a simulation: messages as bytes, and models as a sum or in blocks."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cfcl.exchange.messages import SERVER, GlobalModel, LocalModel, Message, ModelBlock, ModelSum
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
        if self._group.size == 1 or kind is GlobalModel:
            return list(outbox)  # a server serves the devices of its own process
        if kind is LocalModel:
            return [*(self._sum_before() if SERVER in expected[SERVER] else []), *outbox]
        if kind is ModelBlock:
            return self._block_of_all(outbox)
        if kind is ModelSum:
            return self._sum_of_all(outbox)
        return self._routed(outbox)

    def _sum_before(self) -> list[Message]:
        """The sum so far, from the process before; its step comes as a last entry."""
        return [_unpacked(self._group.receive(self._sum_size + 1))]

    def _sum_of_all(self, outbox: Sequence[Message]) -> list[Message]:
        (message,) = outbox
        assert isinstance(message, ModelSum)
        if len(message.total) < self._sum_size:  # blocks of the result, in order, make it whole
            size = self._group.size
            return [replace(message, total=self._group.route(message.total.repeat(size), [len(message.total)] * size))]
        return [_unpacked(self._group.pass_on(torch.cat([message.total, message.total.new_tensor([message.step])])))]

    def _block_of_all(self, outbox: Sequence[Message]) -> list[Message]:
        """All processes' models, in order of device, but only the entries that are this process's share."""
        (message,) = outbox
        assert isinstance(message, ModelBlock)
        size, measures = self._group.size, message.measures
        shares = [Group(rank, size).share(self._sum_size) for rank in range(size)]
        blocks = torch.split(message.entries, [len(share) for share in shares], dim=1)
        found = self._group.route(torch.cat([block.flatten() for block in blocks]), [block.numel() for block in blocks])
        if measures is not None:
            measures = self._group.route(measures.repeat(size, 1), [len(measures)] * size)
        mine = shares[self._group.rank]
        return [replace(message, entries=found.view(-1, len(mine)), first=mine.start, measures=measures)]

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
