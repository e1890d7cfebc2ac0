"""Processes that share a simulation, and what they tell each other: tensors only, in a fixed order."""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cfcl.errors import CfclError, WorkerLost

LOCALHOST = "127.0.0.1"
MEETING = timedelta(seconds=10)
"""What processes that are all there may take to connect, before the leader looks who is gone."""
SILENCE = timedelta(minutes=30)
"""How long a process may keep the others waiting."""

Handle = Callable[[], Any]
"""Gives a process group of torch, or None once that has been closed."""


@dataclass(frozen=True)
class Group:
    """One process's view of all of them; alone, every collective is the identity."""

    rank: int = 0
    size: int = 1
    handle: Handle = lambda: None
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
        found, options = torch.tensor([value], dtype=torch.float64), dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
        with self._talking():
            self.handle().allreduce([found], options).wait()
        return float(found)

    def agree(self, value: int) -> int:
        """The leader's value, everywhere."""
        if self.size == 1:
            return value
        found = torch.tensor([value])
        with self._talking():
            self._broadcast(found, 0)
        return int(found)

    def receive(self, size: int) -> Tensor:
        """The float64 vector that the process before passes on."""
        found = torch.empty(size, dtype=torch.float64)
        with self._talking():
            self.handle().recv([found], self.rank - 1, 0).wait()
        return found

    def pass_on(self, vector: Tensor) -> Tensor:
        """Give a vector to the next process; the last one's comes back to all.

        A sum that visits processes in order is the same to the bit for any number of them; an all-reduce is not, as
        floating-point addition depends on the order.
        """
        with self._talking():
            if self.rank < self.size - 1:
                self.handle().send([vector], self.rank + 1, 0).wait()
            self._broadcast(vector, self.size - 1)
        return vector

    def swap(self, piles: Sequence[bytes]) -> list[bytes]:
        """Send `piles[r]` to process r; what came in, in order of rank."""
        if self.size == 1:
            return list(piles)
        received, counts = self._exchange(_as_tensor(b"".join(piles)), [len(pile) for pile in piles])
        return [bytes(part.numpy()) for part in torch.split(received, counts)]

    def everywhere(self, text: str) -> list[str]:
        """Every process's text, in order of rank."""
        return [found.decode() for found in self.swap([text.encode()] * self.size)]

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
        where, shape = rows.device, rows.shape[1:]
        received, _ = self._exchange(rows.cpu().reshape(-1), [count * shape.numel() for count in counts])
        return received.view(-1, *shape).to(where)

    def _exchange(self, vector: Tensor, sizes: list[int]) -> tuple[Tensor, list[int]]:
        """What the others send of their vectors, and how much each of them; `sizes` of this one's go to each."""
        incoming = torch.empty(self.size, dtype=torch.int64)
        with self._talking():
            self.handle().alltoall_base(incoming, torch.tensor(sizes), [], [], dist.AllToAllOptions()).wait()
            counts: list[int] = incoming.tolist()
            received = torch.empty(sum(counts), dtype=vector.dtype)
            self.handle().alltoall_base(received, vector, counts, sizes, dist.AllToAllOptions()).wait()
        return received, counts

    def _broadcast(self, vector: Tensor, source: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = source
        self.handle().broadcast([vector], options).wait()

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self.explain(error) from error


ALONE = Group()


def launched() -> bool:
    """Whether torchrun, or the caller, has made this process one of several."""
    return dist.is_initialized() or _number("WORLD_SIZE", 1) > 1


@contextmanager
def joined() -> Iterator[Group]:
    """The group that torchrun describes in the environment, or that the caller has set up with torch.distributed."""
    others = dist.is_initialized()
    if not others:
        _check_environment()
        try:
            dist.init_process_group("gloo")
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise CfclError(
                f"the other processes of torchrun cannot be reached ({reason:.200}): start it again"
            ) from None
    handle: Any = dist.new_group(backend="gloo") if others else dist.group.WORLD
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), weakref.ref(handle))
    finally:
        dist.destroy_process_group(handle)


@contextmanager
def met(group: Group, meeting: Path) -> Iterator[Group]:
    """`group` connected to the other processes of this machine that name the same file, until the context ends.

    Nothing of torch's global state is touched: a process may be in several groups, and the caller's own stay as they
    are. The file is as private as its folder, and all listen on this machine's own address alone.
    """
    with group._talking():
        connection = _connection(group, meeting)
    try:
        # Its sockets close when it is deleted: nothing else may hold it, not even the frames of an error.
        yield replace(group, handle=weakref.ref(connection))
    finally:
        del connection


def _connection(group: Group, meeting: Path) -> Any:
    store = dist.FileStore(str(meeting), group.size)  # type: ignore[attr-defined]
    patience = MEETING if group.leads else SILENCE
    found: Any = dist.ProcessGroupGloo(store, group.rank, group.size, _on_this_machine(patience))
    found._set_default_timeout(SILENCE)
    return found


def _on_this_machine(patience: timedelta) -> Any:
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOCALHOST)]
    options._timeout = patience
    return options


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise CfclError(f"{name}={text!r} in the environment is not a number: start by torchrun, or unset it") from None


def _check_environment() -> None:
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    _number("MASTER_PORT", 0)
    if missing:
        raise CfclError(
            f"WORLD_SIZE={size} is in the environment, but {', '.join(missing)} not: start by torchrun, which sets "
            "them all, or unset WORLD_SIZE"
        )
    if not 0 <= rank < size:
        raise CfclError(
            f"RANK={rank} in the environment is not below WORLD_SIZE={size}: start by torchrun, or unset both"
        )


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)
