"""Numbers that differ from link to link, from device to device or over time, read from small CSV files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cfcl.config import Config, ExchangeConfig
from cfcl.config.fields import LARGEST, MOST
from cfcl.errors import CfclError
from cfcl.exchange import tables
from cfcl.topology import Graph

Link = tuple[int, int]
Line = tuple[str, Link, tuple[float, ...]]
"""Where it stands, which link it is about, and its numbers."""


@dataclass(frozen=True)
class Budgets:
    """Items pulled and reserve points pushed on every (transmitter, receiver) link, and candidates of every device."""

    num_pulled: int
    num_reserve: int
    special: Mapping[Link, tuple[int, int]] = field(default_factory=dict)
    """Both numbers, on the links where they differ."""
    later: Mapping[Link, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """On links whose number of items changes: from which step on it is how much, in order of step."""
    num_candidates: int = 0
    special_candidates: Mapping[int, int] = field(default_factory=dict)
    """On the devices where it differs."""

    def pulled(self, transmitter: int, receiver: int, step: int) -> int:
        """N of the link at `step`."""
        link = transmitter, receiver
        known = [number for start, number in self.later.get(link, ()) if start <= step]
        return known[-1] if known else self.special.get(link, (self.num_pulled, 0))[0]

    def pulled_over(self, transmitter: int, receiver: int, steps: Sequence[int]) -> int:
        """The sum of N of the link over `steps`."""
        if (transmitter, receiver) not in self.later:
            return len(steps) * self.pulled(transmitter, receiver, 0)
        return sum(self.pulled(transmitter, receiver, step) for step in steps)

    def ever_pulled(self, transmitter: int, receiver: int) -> bool:
        """Whether the link carries items at any step."""
        link = transmitter, receiver
        return self.pulled(*link, 0) > 0 or any(number > 0 for _, number in self.later.get(link, ()))

    def reserve(self, transmitter: int, receiver: int) -> int:
        """K^Reserve that `receiver` pushes to `transmitter`."""
        return self.special.get((transmitter, receiver), (0, self.num_reserve))[1]

    def candidates(self, device: int) -> int:
        """K^Approx of a device."""
        return self.special_candidates.get(device, self.num_candidates)


def budgets(config: Config, graph: Graph) -> Budgets:
    """The budgets of a run."""
    exchange = config.exchange
    candidates = _candidates(exchange, graph.num_devices)
    special: dict[Link, tuple[int, int]] = {}
    later: dict[Link, list[tuple[int, int]]] = {}
    for where, link, (pulled, reserve, step) in _budget_lines(exchange.budgets_file, graph):
        _check_budget(where, link, pulled, reserve, step, candidates.get(link[0], exchange.num_candidates))
        if step == 0:
            special[link] = int(pulled), int(reserve)
        else:
            later.setdefault(link, []).append((int(step), int(pulled)))
    return Budgets(
        exchange.num_pulled,
        exchange.num_reserve,
        special,
        {link: tuple(sorted(changes)) for link, changes in later.items()},
        exchange.num_candidates,
        candidates,
    )


def rates(path: Path | None, graph: Graph) -> dict[Link, float]:
    """Mbit/s of the links that `path` names."""
    found: dict[Link, float] = {}
    for where, link, (rate,) in _lines(path, ("source", "target", "mbps"), graph) if path is not None else ():
        if not 1 / LARGEST <= rate <= LARGEST:
            raise CfclError(f"{where}: mbps={rate:g} must be from {1 / LARGEST:g} to {LARGEST:g}: fix the line")
        found[link] = rate
    return found


def _budget_lines(path: Path | None, graph: Graph) -> list[Line]:
    """Lines with a step as their last number; 0 where the file has no such column."""
    columns = ("transmitter", "receiver", "num_pulled", "num_reserve")
    if path is None:
        return []
    rows = tables.read(path, columns)
    if tuple(cell.strip() for cell in rows[0][1]) == (*columns, "step"):
        return _parsed(path, rows, 5, graph, by_last=True)
    return [(where, link, (*numbers, 0.0)) for where, link, numbers in _lines(path, columns, graph)]


def _check_budget(where: str, link: Link, pulled: float, reserve: float, step: float, candidates: int) -> None:
    whole = all(value == int(value) <= MOST for value in (pulled, reserve, step))
    if not whole or pulled < 0 or reserve < 1 or step < 0:
        raise CfclError(
            f"{where}: num_pulled={pulled:g}, num_reserve={reserve:g}, step={step:g} on link {link[0]}->{link[1]}: "
            f"they must be whole numbers from 0, from 1 and from 0 to {MOST:g}; fix the line"
        )
    if pulled > candidates:
        raise CfclError(
            f"{where}: num_pulled={pulled:g} exceeds the {candidates} candidates of device {link[0]}, but items are "
            "drawn without replacement: lower it or raise exchange.num_candidates"
        )


def _candidates(exchange: ExchangeConfig, num_devices: int) -> dict[int, int]:
    """K^Approx of the devices that `exchange.candidates_file` names."""
    path, found = exchange.candidates_file, dict[int, int]()
    if path is None:
        return found
    columns = ("device", "num_candidates")
    rows = tables.read(path, columns)
    tables.check_header(path, rows, columns)
    for number, row in rows[1:]:
        where = f"{path}, line {number}"
        device, size = (int(value) if value == int(value) else -1 for value in tables.numbers(row, 2, where))
        if not 0 <= device < num_devices or device in found:
            raise CfclError(
                f"{where}: device {row[0]:.40} is not one of 0 to {num_devices - 1}, named once: fix the line"
            )
        if not max(exchange.num_clusters, exchange.num_pulled, 1) <= size <= MOST:
            raise CfclError(
                f"{where}: num_candidates={row[1]:.40} is below exchange.num_clusters={exchange.num_clusters} or "
                f"exchange.num_pulled={exchange.num_pulled}, or not a whole number up to {MOST:g}: change it"
            )
        found[device] = size
    return found


def _lines(path: Path, columns: tuple[str, ...], graph: Graph) -> list[Line]:
    rows = tables.read(path, columns)
    tables.check_header(path, rows, columns)
    return _parsed(path, rows, len(columns), graph)


def _parsed(
    path: Path, rows: Sequence[tuple[int, list[str]]], width: int, graph: Graph, *, by_last: bool = False
) -> list[Line]:
    """Lines about links of the graph, each link once, or once per value of the last column."""
    known, seen, result = set(graph.links), set[tuple[float, ...]](), list[Line]()
    for number, row in rows[1:]:
        where = f"{path}, line {number}"
        first, second, *values = tables.numbers(row, width, where)
        link = int(first), int(second)
        if link not in known or link != (first, second):
            raise CfclError(f"{where}: {row[0]:.40}->{row[1]:.40} is not a link of the graph: remove the line")
        key = (*link, *values[-1:]) if by_last else link
        if key in seen:
            raise CfclError(f"{where}: link {link[0]}->{link[1]} is named twice: remove one line")
        seen.add(key)
        result.append((where, link, tuple(values)))
    return result
