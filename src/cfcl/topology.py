"""Who may talk to whom: undirected graphs of devices, connected unless a config says otherwise."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cfcl import reading
from cfcl.config import GraphConfig
from cfcl.errors import CfclError

Pair = tuple[int, int]

MAX_TRIES = 1000
"""Draws of a random graph before it is given up as hardly ever connected."""


@dataclass(frozen=True)
class Graph:
    """Devices and the undirected edges between them."""

    num_devices: int
    edges: tuple[Pair, ...]
    """Each edge once, smaller device first, sorted."""
    positions: tuple[tuple[float, float], ...] | None = None
    """Where each device sits in the unit square (geometric graphs only)."""

    def neighbours(self, device: int) -> tuple[int, ...]:
        """The devices that share an edge with `device`, sorted."""
        return self._adjacency[device]

    @cached_property
    def links(self) -> tuple[Pair, ...]:
        """Both directions of every edge, sorted."""
        return tuple((device, other) for device, row in enumerate(self._adjacency) for other in row)

    @property
    def average_degree(self) -> float:
        """Mean number of neighbours."""
        return 2 * len(self.edges) / self.num_devices

    @cached_property
    def is_connected(self) -> bool:
        """Whether every device reaches every other one."""
        return len(_reachable(self, 0)) == self.num_devices

    @cached_property
    def _adjacency(self) -> tuple[tuple[int, ...], ...]:
        rows: list[list[int]] = [[] for _ in range(self.num_devices)]
        for i, j in self.edges:
            rows[i].append(j)
            rows[j].append(i)
        return tuple(tuple(sorted(row)) for row in rows)


def build(config: GraphConfig, num_devices: int, generator: torch.Generator) -> Graph:
    """The graph that `config` describes; only the random kinds draw from `generator`."""
    match config.kind:
        case "geometric":
            return geometric(num_devices, config.degree, generator, connected=config.connected)
        case "erdos_renyi":
            return erdos_renyi(num_devices, config.degree, generator, connected=config.connected)
        case "ring":
            return ring(num_devices)
        case "line":
            return line(num_devices)
        case "star":
            return star(num_devices)
        case "complete":
            return complete(num_devices)
        case "edges":
            assert config.edges_file is not None  # checked by the config
            return from_file(config.edges_file, num_devices, connected=config.connected)


def joined(graphs: Sequence[Graph]) -> Graph:
    """The graph with all edges of `graphs`, and the positions of the first."""
    return replace(graphs[0], edges=tuple(sorted({edge for graph in graphs for edge in graph.edges})))


def geometric(num_devices: int, degree: float, generator: torch.Generator, *, connected: bool = True) -> Graph:
    """Uniform positions in the unit square, the `num_devices * degree / 2` closest pairs linked."""
    num_edges = 0 if num_devices == 1 else _num_edges(num_devices, degree, connected=connected)

    def draw() -> Graph:
        points = torch.rand(num_devices, 2, generator=generator, dtype=torch.float64)
        return _graph(num_devices, _closest_pairs(points, num_edges), points)

    return _first_connected(draw, num_devices, degree) if connected else draw()


def erdos_renyi(num_devices: int, degree: float, generator: torch.Generator, *, connected: bool = True) -> Graph:
    """Each pair linked with probability `degree / (num_devices - 1)`, given that the graph is connected if it must."""
    if num_devices == 1:
        return Graph(1, ())
    _check_degree(num_devices, degree)
    probability = degree / (num_devices - 1)

    def draw() -> Graph:
        return _graph(num_devices, _coin_pairs(num_devices, probability, generator))

    return _first_connected(draw, num_devices, degree) if connected else draw()


def ring(num_devices: int) -> Graph:
    """Each device linked to the next, the last to the first."""
    closing = [(0, num_devices - 1)] if num_devices > 2 else []
    return Graph(num_devices, tuple(sorted([*line(num_devices).edges, *closing])))


def line(num_devices: int) -> Graph:
    """Each device linked to the next."""
    return Graph(num_devices, tuple((i, i + 1) for i in range(num_devices - 1)))


def star(num_devices: int) -> Graph:
    """Device 0 linked to every other one."""
    return Graph(num_devices, tuple((0, i) for i in range(1, num_devices)))


def complete(num_devices: int) -> Graph:
    """Every pair linked."""
    return Graph(num_devices, tuple(combinations(range(num_devices), 2)))


def from_file(path: Path, num_devices: int, *, connected: bool = True) -> Graph:
    """The graph in a text file: one `i j` or `i, j` pair per line, `#` starts a comment."""
    edges: dict[Pair, int] = {}
    for number, line_text in enumerate(_read(path).splitlines(), start=1):
        text = line_text.partition("#")[0].strip()
        if text:
            where = f"{path}, line {number}"
            edge = _parse_pair(text, num_devices, where)
            if edge in edges:
                raise CfclError(
                    f"{where}: pair {text!r:.60} repeats line {edges[edge]}, but an edge is given once for both "
                    "directions: delete one of the two"
                )
            edges[edge] = number
    graph = Graph(num_devices, tuple(sorted(edges)))
    if connected and not graph.is_connected:
        lost = min(set(range(num_devices)) - _reachable(graph, 0))
        raise CfclError(
            f"{path}: device {lost} cannot be reached from device 0, but the graph of {num_devices} devices must be "
            f"connected: add a pair that links device {lost}, or set graph.connected=false"
        )
    return graph


def _read(path: Path) -> str:
    try:
        return reading.text(path, limit=reading.LARGEST_BY_HAND)
    except (OSError, ValueError) as error:
        raise CfclError(
            f"the file of pairs '{path}' cannot be read as text ({error}): give a UTF-8 file with one pair of devices "
            "per line"
        ) from None


def _parse_pair(text: str, num_devices: int, where: str) -> Pair:
    words = text.replace(",", " ").split()
    # Eighteen digits always fit, and int() alone would also take '1_0' and digits of other scripts.
    if len(words) != 2 or not all(re.fullmatch(r"-?[0-9]{1,18}", word) for word in words):
        raise CfclError(
            f"{where}: {text!r:.60} is not a pair of devices: write two whole numbers such as '0 1', or start the "
            "line with #"
        )
    i, j = sorted(map(int, words))
    if i < 0 or j >= num_devices:
        raise CfclError(
            f"{where}: pair {text!r:.60} names device {i if i < 0 else j}, but devices are numbered 0 to "
            f"{num_devices - 1}: fix the line or change partition.num_devices={num_devices}"
        )
    if i == j:
        raise CfclError(
            f"{where}: pair {text!r:.60} links device {i} to itself, but an edge joins two: delete the line"
        )
    return i, j


def _reachable(graph: Graph, start: int) -> set[int]:
    reached = {start}
    frontier = [start]
    while frontier:
        new = set(graph.neighbours(frontier.pop())) - reached
        reached |= new
        frontier += new
    return reached


def _graph(num_devices: int, pairs: Int[Tensor, "edges 2"], points: Tensor | None = None) -> Graph:
    rows: Iterable[list[int]] = pairs.sort(dim=1).values.tolist()
    edges = tuple(sorted((i, j) for i, j in rows))
    positions = None if points is None else tuple((x, y) for x, y in points.tolist())
    return Graph(num_devices, edges, positions)


def _first_connected(draw: Callable[[], Graph], num_devices: int, degree: float) -> Graph:
    for _ in range(MAX_TRIES):
        graph = draw()
        if graph.is_connected:
            return graph
    raise CfclError(
        f"graph.degree={degree:g} gave no connected graph of {num_devices} devices in {MAX_TRIES} draws, but every "
        "device must be reachable: raise graph.degree, or set graph.connected=false"
    )


def _check_degree(num_devices: int, degree: float) -> None:
    if degree > num_devices - 1:
        raise CfclError(
            f"graph.degree={degree:g} exceeds {num_devices - 1}, the most neighbours that one of {num_devices} "
            "devices can have: lower graph.degree or raise partition.num_devices"
        )


def _num_edges(num_devices: int, degree: float, *, connected: bool) -> int:
    """The number of edges behind an exact average degree."""
    _check_degree(num_devices, degree)
    num_edges = round(num_devices * degree / 2)
    if connected and num_edges < num_devices - 1:
        raise CfclError(
            f"graph.degree={degree:g} makes {num_edges} edges, but to connect {num_devices} devices takes at least "
            f"{num_devices - 1}: raise graph.degree, or set graph.connected=false"
        )
    return num_edges


def _closest_pairs(points: Float[Tensor, "devices 2"], count: int) -> Int[Tensor, "count 2"]:
    """The `count` pairs of points with the smallest distances."""
    order = points[:, 0].argsort()
    # First guess: the radius of discs that hold `count` pairs of uniform points, and some more for the border.
    reach = 1.2 * math.sqrt(2 * count / math.pi) / len(points)
    pairs, distances = _pairs_within(points[order], reach)
    while len(pairs) < count:
        reach *= 1.5
        pairs, distances = _pairs_within(points[order], reach)
    return order[pairs[distances.topk(count, largest=False).indices]]


def _pairs_within(
    points: Float[Tensor, "devices 2"], reach: float
) -> tuple[Int[Tensor, "pairs 2"], Float[Tensor, " pairs"]]:
    """Pairs of points, which are sorted by x, up to `reach` apart, and their distances."""
    # Sweeping by rank distance compares only points close in x: no table of all pairs, however many devices.
    pairs = [torch.empty(0, 2, dtype=torch.int64)]
    distances = [points.new_empty(0)]
    for offset in range(1, len(points)):
        apart = points[offset:] - points[:-offset]
        if apart[:, 0].min() > reach:
            break
        distance = apart.norm(dim=1)
        first = (distance <= reach).nonzero().squeeze(1)
        pairs.append(torch.stack([first, first + offset], dim=1))
        distances.append(distance[first])
    return torch.cat(pairs), torch.cat(distances)


def _coin_pairs(num_devices: int, probability: float, generator: torch.Generator) -> Int[Tensor, "edges 2"]:
    """Each pair of devices independently with `probability`."""
    # The gaps between successes are geometric: as many draws as edges, not as pairs.
    total = num_devices * (num_devices - 1) // 2
    chunk = math.ceil(total * probability) + 1
    log_failure = torch.tensor(-probability, dtype=torch.float64).log1p()
    ranks = torch.tensor([-1.0], dtype=torch.float64)
    while ranks[-1] < total:
        uniforms = torch.rand(chunk, generator=generator, dtype=torch.float64)
        gaps = ((-uniforms).log1p() / log_failure).floor() + 1
        ranks = torch.cat([ranks, ranks[-1] + gaps.cumsum(dim=0)])
    rank = ranks[1:][ranks[1:] < total]
    # Pair (i, j), i < j, has rank j (j - 1) / 2 + i.
    j = ((1 + (1 + 8 * rank).sqrt()) / 2).floor()
    return torch.stack([rank - j * (j - 1) / 2, j], dim=1).long()
