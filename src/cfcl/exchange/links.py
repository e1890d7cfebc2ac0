"""Numbers that differ from link to link, read from small CSV files."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.topology import Graph


@dataclass(frozen=True)
class Budgets:
    """Items pulled and reserve points pushed on every (transmitter, receiver) link."""

    num_pulled: int
    num_reserve: int
    special: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Both numbers, on the links where they differ."""
    later: Mapping[tuple[int, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """On links whose number of items changes: from which step on it is how much, in order of step."""

    def pulled(self, transmitter: int, receiver: int, step: int) -> int:
        """N of the link at `step`."""
        link = transmitter, receiver
        known = [number for start, number in self.later.get(link, ()) if start <= step]
        return known[-1] if known else self.special.get(link, (self.num_pulled, 0))[0]

    def ever_pulled(self, transmitter: int, receiver: int) -> bool:
        """Whether the link carries items at any step."""
        link = transmitter, receiver
        return self.pulled(*link, 0) > 0 or any(number > 0 for _, number in self.later.get(link, ()))

    def reserve(self, transmitter: int, receiver: int) -> int:
        """K^Reserve that `receiver` pushes to `transmitter`."""
        return self.special.get((transmitter, receiver), (0, self.num_reserve))[1]


def budgets(config: Config, graph: Graph) -> Budgets:
    """The budgets of a run."""
    exchange = config.exchange
    special: dict[tuple[int, int], tuple[int, int]] = {}
    if exchange.budgets_file is not None:
        rows = _read(exchange.budgets_file, ("transmitter", "receiver", "num_pulled", "num_reserve"), graph)
        for line, link, (pulled, reserve) in rows:
            where = f"{exchange.budgets_file}, line {line}"
            if pulled != int(pulled) or pulled < 0 or reserve != int(reserve) or reserve < 1:
                raise CfclError(
                    f"{where}: num_pulled={pulled:g}, num_reserve={reserve:g} on link {link[0]}->{link[1]}: they must "
                    "be whole numbers from 0 and from 1; mend the line"
                )
            if pulled > exchange.num_candidates:
                raise CfclError(
                    f"{where}: num_pulled={pulled:g} exceeds exchange.num_candidates={exchange.num_candidates}, but "
                    "items are drawn without replacement: lower it or raise exchange.num_candidates"
                )
            special[link] = int(pulled), int(reserve)
    return Budgets(exchange.num_pulled, exchange.num_reserve, special)


def rates(path: Path | None, graph: Graph) -> dict[tuple[int, int], float]:
    """Mbit/s of the links that `path` names."""
    found: dict[tuple[int, int], float] = {}
    for line, link, (rate,) in _read(path, ("source", "target", "mbps"), graph) if path is not None else ():
        if rate <= 0:
            raise CfclError(f"{path}, line {line}: mbps={rate:g} must be above 0: mend the line")
        found[link] = rate
    return found


def _read(path: Path, columns: tuple[str, ...], graph: Graph) -> list[tuple[int, tuple[int, int], tuple[float, ...]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), start=1) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise CfclError(f"cannot read {path}: {error}; give a CSV file with the columns {','.join(columns)}") from None
    if not rows or tuple(cell.strip() for cell in rows[0][1]) != columns:
        given = ",".join(rows[0][1]) if rows else ""
        raise CfclError(f"{path}, line 1: header {given!r} is not {','.join(columns)!r}: make it the first line")
    known = set(graph.links)
    result: list[tuple[int, tuple[int, int], tuple[float, ...]]] = []
    for number, row in rows[1:]:
        link, values = _parse(row, len(columns), f"{path}, line {number}")
        if link not in known:
            raise CfclError(f"{path}, line {number}: {link[0]}->{link[1]} is not a link of the graph: remove the line")
        if any(link == other for _, other, _ in result):
            raise CfclError(f"{path}, line {number}: link {link[0]}->{link[1]} is named twice: remove one line")
        result.append((number, link, values))
    return result


def _parse(row: list[str], width: int, where: str) -> tuple[tuple[int, int], tuple[float, ...]]:
    try:
        first, second, *rest = row
        if len(row) != width:
            raise ValueError
        return (int(first), int(second)), tuple(float(cell) for cell in rest)
    except ValueError:
        raise CfclError(f"{where}: {','.join(row)!r} is not {width} numbers: mend the line") from None
