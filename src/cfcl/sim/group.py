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

    def receive(self, size: int) -> Tensor:
        """The float64 vector that the process before passes on."""
        found = torch.empty(size, dtype=torch.float64)
        with self._talking():
            dist.recv(found, group=self.handle, group_src=self.rank - 1)
        return found

    def pass_on(self, vector: Tensor) -> Tensor:
        """Give a vector to the next process; the last one's comes back to all.

        A sum that visits processes in order is the same to the bit for any number of them; an all-reduce is not, as
        floating-point addition depends on the order.
        """
        with self._talking():
            if self.rank < self.size - 1:
                dist.send(vector, group=self.handle, group_dst=self.rank + 1)
            dist.broadcast(vector, group=self.handle, group_src=self.size - 1)
        return vector

    def swap(self, piles: Sequence[bytes]) -> list[bytes]:
        """Send `piles[r]` to process r; what came in, in order of rank."""
        if self.size == 1:
            return list(piles)
        received, counts = self._exchange(_as_tensor(b"".join(piles)), [len(pile) for pile in piles])
        return [bytes(part.numpy()) for part in torch.split(received, counts)]

    def gather_lines(self, lines: Sequence[str]) -> list[str]:
        """All processes' lines of text, in order of rank, at the leader; nothing elsewhere."""
        text = "".join(f"{line}\n" for line in lines).encode()
        return b"".join(self.swap([text, *[b""] * (self.size - 1)])).decode().splitlines()

    def gather(self, rows: Tensor) -> Tensor:
        """All processes' rows, in order of rank, at the leader; nothing elsewhere."""
        return self.route(rows, [len(rows), *[0] * (self.size - 1)])

    def route(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Send the first `counts[0]` rows to process 0, the next to process 1...; what came in, in order of rank."""
        if self.size == 1:
            return rows
        width = rows.shape[1:].numel()
        received, _ = self._exchange(rows.cpu().reshape(-1), [count * width for count in counts])
        return received.view(-1, *rows.shape[1:]).to(rows.device)

    def _exchange(self, vector: Tensor, counts: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Entries of `vector` to process 0, to process 1...; what came in, in order of rank, and how many from each."""
        incoming = torch.empty(self.size, dtype=torch.int64)
        with self._talking():
            dist.all_to_all_single(incoming, torch.tensor(counts), group=self.handle)
            arriving: list[int] = incoming.tolist()
            received = torch.empty(sum(arriving), dtype=vector.dtype)
            dist.all_to_all_single(received, vector, arriving, list(counts), group=self.handle)
        return received, arriving

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self.explain(error) from error


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


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)
