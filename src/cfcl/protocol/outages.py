"""Which devices are offline and which links are down, at every step: known from config and seed alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cfcl import reading, rng, topology
from cfcl.config import Config
from cfcl.config.fields import MOST
from cfcl.errors import CfclError
from cfcl.exchange import tables
from cfcl.exchange.messages import SERVER
from cfcl.topology import Graph

Pair = tuple[int, int]
Span = tuple[int, int]
"""From a step until before another."""
Key = tuple[int, ...]


@dataclass(frozen=True)
class Outages:
    """Everybody's absences. Draws are named by device or link and step, so that all processes see the same."""

    config: Config
    away: Mapping[Key, Sequence[Span]] = field(default_factory=dict)
    """When devices are offline by schedule."""
    down: Mapping[Key, Sequence[Span]] = field(default_factory=dict)
    """When links, from source to target, are down."""
    graphs: Sequence[tuple[int, Graph]] = ()
    """From which step on which graph holds, in order; the first from step 0."""

    def offline(self, device: int, step: int) -> bool:
        """Whether `device` can neither send nor receive at `step`; the server always can."""
        if device == SERVER:
            return False
        faults, seed = self.config.faults, self.config.seed
        period = faults.offline_steps or self.config.aggregation.period
        return (
            (faults.offline > 0 and rng.uniform(seed, "offline", device, step // period) < faults.offline)
            or step >= self._gone.get(device, MOST)
            or _within(step, self.away.get((device,), ()))
        )

    def online(self, step: int) -> float:
        """The share of devices that are not offline."""
        size = self.config.partition.num_devices
        return sum(not self.offline(device, step) for device in range(size)) / size

    def is_down(self, link: Pair, step: int) -> bool:
        """Whether nothing passes from one party to another at `step`."""
        return any(self.offline(party, step) for party in link) or _within(step, self.down.get(link, ()))

    def exists(self, link: Pair, step: int) -> bool:
        """Whether two parties have a link at `step`; with the server everybody has."""
        newest = next((graph for start, graph in reversed(self.graphs) if start <= step), None)
        return newest is None or SERVER in link or link[1] in newest.neighbours(link[0])

    @cached_property
    def _gone(self) -> dict[int, int]:
        """The devices that are lost for good, and from which step on."""
        chance, seed, steps = self.config.faults.gone, self.config.seed, self.config.train.steps
        lost = [i for i in range(self.config.partition.num_devices) if rng.uniform(seed, "gone", i) < chance]
        return {device: int(rng.uniform(seed, "gone-from", device) * steps) for device in lost}


def load(config: Config, graph: Graph) -> tuple[Graph, Outages | None]:
    """The graph with every edge that there ever is, and what goes wrong on it; None if nothing does."""
    faults = config.faults
    if not faults.active:
        return graph, None
    graphs = _graphs(faults.graphs_file, graph)
    whole = topology.joined([found for _, found in graphs]) if graphs else graph
    devices = range(graph.num_devices)
    links = {*whole.links, *((i, SERVER) for i in devices), *((SERVER, i) for i in devices)}
    away = _spans(faults.offline_file, ("device", "from", "to"), lambda key: key[0] in devices)
    down = _spans(faults.links_file, ("source", "target", "from", "to"), lambda key: key in links)
    return whole, Outages(config, away, down, graphs)


def _within(step: int, spans: Sequence[Span]) -> bool:
    return any(start <= step < end for start, end in spans)


def _spans(path: Path | None, columns: tuple[str, ...], known: Callable[[Key], bool]) -> dict[Key, list[Span]]:
    """Times by device or link, from a CSV file; an empty last cell is the end of all runs."""
    found: dict[Key, list[Span]] = {}
    if path is None:
        return found
    rows = tables.read(path, columns)
    tables.check_header(path, rows, columns)
    for number, row in rows[1:]:
        where = f"{path}, line {number}"
        cells = [*row[:-1], row[-1] if row[-1].strip() else str(MOST)]
        numbers = tables.numbers(cells, len(columns), where)
        *key, start, end = map(int, numbers)
        if tuple(map(int, numbers)) != numbers:
            raise CfclError(f"{where}: {','.join(row)!r:.60} has a fraction: give whole numbers of devices and steps")
        if not known(tuple(key)):
            what = "device" if columns[0] == "device" else "link"
            raise CfclError(f"{where}: {','.join(row[:-2])!r:.60} is no {what} of this run: name one that there is")
        if not 0 <= start < end <= MOST:
            raise CfclError(f"{where}: from {start} to {end} is no time: give a step and a later one, up to {MOST:g}")
        found.setdefault(tuple(key), []).append((start, end))
    return found


def _graphs(path: Path | None, first: Graph) -> list[tuple[int, Graph]]:
    """The graph of each step from which another holds, in order; files are found beside the one that names them."""
    if path is None:
        return []
    columns = ("from", "edges_file")
    rows = tables.read(path, columns)
    tables.check_header(path, rows, columns)
    later: dict[int, Graph] = {}
    for number, row in rows[1:]:
        where = f"{path}, line {number}"
        if len(row) != 2 or not row[1].isprintable():
            raise CfclError(f"{where}: {','.join(row)!r:.60} is not a step and a file of pairs: fix the line")
        (start,) = tables.numbers(row[:1], 1, where)
        if start != int(start) or not 0 <= start <= MOST or start in later:
            raise CfclError(f"{where}: from={row[0]:.40} is not a step that is named once: fix the line")
        place = reading.expanded(path).parent / row[1].strip()
        later[int(start)] = topology.from_file(place, first.num_devices, connected=False)
    return sorted({0: first, **later}.items())
