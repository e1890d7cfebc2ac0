"""Processes that share a simulation, and what they tell each other: tensors only, in a fixed order."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from cfcl.errors import WorkerLost


@dataclass(frozen=True)
class Parcel:
    """Something for another process: a few numbers, and tensors that may have any number of rows."""

    to: int
    head: tuple[int | float, ...]
    parts: tuple[Tensor, ...]


@dataclass(frozen=True)
class Group:
    """One process's view of all of them; alone, every collective is the identity."""

    rank: int = 0
    size: int = 1
    handle: dist.ProcessGroup | None = None
    explain: Callable[[RuntimeError], Exception] = lambda error: WorkerLost(
        f"another process of the group is gone ({str(error).splitlines()[0]:.200}): see its own output, and run again"
    )
    """What a broken connection means."""

    @property
    def leads(self) -> bool:
        """Whether this process keeps the records."""
        return self.rank == 0

    def share(self, total: int) -> range:
        """The part of `total` things that is this process's own; parts follow each other in order of rank."""
        return range(self.rank * total // self.size, (self.rank + 1) * total // self.size)

    def owner(self, thing: int, total: int) -> int:
        """The process whose share `thing` is in."""
        return ((thing + 1) * self.size - 1) // total

    def maximum(self, value: float) -> float:
        """The largest of all processes' values."""
        if self.size == 1:
            return value
        found = torch.tensor([value], dtype=torch.float64)
        with self._talking():
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.handle)
        return float(found)

    def agree(self, value: int) -> int:
        """The leader's value, everywhere."""
        if self.size == 1:
            return value
        found = torch.tensor([value])
        with self._talking():
            dist.broadcast(found, group=self.handle, group_src=0)
        return int(found)

    def sum_in_order(self, size: int, add: Callable[[Tensor], None]) -> Tensor:
        """A sum of float64 vectors over all things in their order, whoever owns them: `add` adds this process's own.

        The sum travels from the first process to the last and comes back to all. Floating-point addition depends on
        the order, so this is the same to the bit for any number of processes; an all-reduce is not.
        """
        total = torch.zeros(size, dtype=torch.float64)
        if self.size == 1:
            add(total)
            return total
        with self._talking():
            if self.rank > 0:
                dist.recv(total, group=self.handle, group_src=self.rank - 1)
            add(total)
            if self.rank < self.size - 1:
                dist.send(total, group=self.handle, group_dst=self.rank + 1)
            dist.broadcast(total, group=self.handle, group_src=self.size - 1)
        return total

    def gather(self, rows: Tensor) -> Tensor:
        """All processes' rows, in order of rank, at the leader; nothing elsewhere."""
        return self.route(rows, [len(rows), *[0] * (self.size - 1)])

    def deliver(self, parcels: Sequence[Parcel], head: int, empty: Sequence[Tensor]) -> list[Parcel]:
        """What is for this process, in order of sender.

        `head` is the length of every head; `empty` has the type and the shape of each part, and no rows.
        """
        if self.size == 1:
            return list(parcels)
        sent = sorted(parcels, key=lambda parcel: parcel.to)
        lines = [[*parcel.head, *map(len, parcel.parts)] for parcel in sent]
        table = torch.tensor(lines, dtype=torch.float64).view(-1, head + len(empty))
        arrived = self.route(table, self._counts(sent, [1] * len(sent))).tolist()
        columns = []
        for number, nothing in enumerate(empty):
            parts = [parcel.parts[number] for parcel in sent]
            rows = self.route(torch.cat([nothing, *parts]), self._counts(sent, [len(part) for part in parts]))
            columns.append(torch.split(rows, [int(line[head + number]) for line in arrived]))
        return [
            Parcel(self.rank, tuple(line[:head]), tuple(column[row] for column in columns))
            for row, line in enumerate(arrived)
        ]

    def route(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Send the first `counts[0]` rows to process 0, the next to process 1...; what came in, in order of rank."""
        if self.size == 1:
            return rows
        where, shape = rows.device, rows.shape[1:]
        incoming, width = torch.empty(self.size, dtype=torch.int64), shape.numel()
        with self._talking():
            dist.all_to_all_single(incoming, torch.tensor(counts), group=self.handle)
            received = torch.empty(int(incoming.sum()) * width, dtype=rows.dtype)
            dist.all_to_all_single(
                received,
                rows.cpu().reshape(-1),
                [size * width for size in incoming.tolist()],
                [count * width for count in counts],
                group=self.handle,
            )
        return received.view(-1, *shape).to(where)

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self.explain(error) from error

    def _counts(self, parcels: Sequence[Parcel], sizes: Sequence[int]) -> list[int]:
        """Sizes summed by where the parcels go."""
        counts = [0] * self.size
        for parcel, size in zip(parcels, sizes, strict=True):
            counts[parcel.to] += size
        return counts


ALONE = Group()


def launched() -> bool:
    """Whether torchrun, or the caller, has made this process one of several."""
    return dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined() -> Iterator[Group]:
    """The group that torchrun describes in the environment, or that the caller has set up with torch.distributed."""
    if dist.is_initialized():
        yield Group(dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo"))
        return
    dist.init_process_group("gloo")
    try:
        yield Group(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
