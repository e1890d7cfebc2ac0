import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfcl import topology
from cfcl.config import GraphConfig
from cfcl.errors import CfclError
from cfcl.topology import Graph


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def num_components(num_devices: int, edges: tuple[tuple[int, int], ...]) -> int:
    """By merging labels, edge after edge: slow, and nothing like the search in the module."""
    label = list(range(num_devices))
    for i, j in edges:
        label = [label[i] if other == label[j] else other for other in label]
    return len(set(label))


def test_graph_answers_by_hand() -> None:
    #  0 - 1 - 3     2 - 3
    graph = Graph(4, ((0, 1), (1, 3), (2, 3)))

    assert [graph.neighbours(device) for device in range(4)] == [(1,), (0, 3), (3,), (1, 2)]
    assert graph.links == ((0, 1), (1, 0), (1, 3), (2, 3), (3, 1), (3, 2))
    assert graph.average_degree == 1.5
    assert graph.is_connected
    assert graph.positions is None


def test_neighbours_are_sorted_even_if_the_edges_come_from_both_sides() -> None:
    assert Graph(5, ((0, 2), (1, 2), (2, 3), (2, 4))).neighbours(2) == (0, 1, 3, 4)


@pytest.mark.parametrize(
    ("graph", "connected"),
    [
        (Graph(1, ()), True),
        (Graph(2, ()), False),
        (Graph(2, ((0, 1),)), True),
        (Graph(4, ((0, 1), (2, 3))), False),
        (Graph(4, ((0, 3), (1, 2), (1, 3))), True),
        (Graph(5, ((0, 1), (0, 2), (1, 2), (3, 4))), False),
    ],
)
def test_is_connected_by_hand(graph: Graph, connected: bool) -> None:
    assert graph.is_connected is connected


@pytest.mark.parametrize(
    ("graph", "edges"),
    [
        (topology.ring(4), ((0, 1), (0, 3), (1, 2), (2, 3))),
        (topology.ring(3), ((0, 1), (0, 2), (1, 2))),
        (topology.ring(2), ((0, 1),)),
        (topology.line(4), ((0, 1), (1, 2), (2, 3))),
        (topology.star(4), ((0, 1), (0, 2), (0, 3))),
        (topology.complete(4), ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))),
    ],
)
def test_plain_kinds_by_hand(graph: Graph, edges: tuple[tuple[int, int], ...]) -> None:
    assert graph.edges == edges


@pytest.mark.parametrize("kind", ["geometric", "ring", "line", "star", "complete", "erdos_renyi"])
def test_one_device_has_a_graph_without_edges_whatever_the_degree(kind: str) -> None:
    graph = topology.build(GraphConfig.model_validate({"kind": kind, "degree": 7.0}), 1, generator())

    assert graph.edges == ()
    assert graph.neighbours(0) == ()
    assert graph.is_connected


@given(num_devices=st.integers(2, 30), share=st.floats(0.4, 1.0), seed=st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_geometric_links_the_closest_pairs_and_their_number_is_exact(num_devices: int, share: float, seed: int) -> None:
    degree = max(share * (num_devices - 1), 2 * (num_devices - 1) / num_devices)

    graph = topology.geometric(num_devices, degree, generator(seed))

    assert graph.positions is not None
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in graph.positions)
    places = graph.positions
    pairs = [(i, j) for j in range(num_devices) for i in range(j)]
    by_distance = sorted(pairs, key=lambda pair: math.dist(places[pair[0]], places[pair[1]]))
    num_edges = round(num_devices * degree / 2)
    assert graph.edges == tuple(sorted(by_distance[:num_edges]))
    assert num_components(num_devices, graph.edges) == 1


def test_geometric_has_the_average_degree_asked_for() -> None:
    assert topology.geometric(10, 7.0, generator()).average_degree == 7.0
    assert topology.geometric(40, 8.5, generator()).average_degree == 8.5


def test_geometric_redraws_until_connected() -> None:
    # Few draws of 12 devices with degree 3 are connected: without redrawing some of these 20 would not be.
    graphs = [topology.geometric(12, 3.0, generator(seed)) for seed in range(20)]

    assert [num_components(12, graph.edges) for graph in graphs] == [1] * 20


def test_a_graph_may_fall_apart_if_it_is_asked_for(tmp_path: Path) -> None:
    graphs = [topology.geometric(12, 3.0, generator(seed), connected=False) for seed in range(20)]
    assert {len(graph.edges) for graph in graphs} == {18}
    assert any(not graph.is_connected for graph in graphs)
    assert topology.geometric(4, 0.1, generator(), connected=False).edges == ()
    loose = GraphConfig(kind="erdos_renyi", degree=0.5, connected=False)
    assert not topology.build(loose, 12, generator()).is_connected
    (tmp_path / "edges.txt").write_text("0 1\n")
    given = GraphConfig(kind="edges", edges_file=tmp_path / "edges.txt", connected=False)
    assert topology.build(given, 3, generator()).edges == ((0, 1),)


def test_closest_pairs_of_clustered_points_by_hand() -> None:
    # Two far clusters on the x axis: distances 1 (0-3), 2 (1-2), 3 (2-4), 5 (1-4), then more than 90.
    points = torch.tensor([[0.0, 0.0], [100.0, 0.0], [102.0, 0.0], [1.0, 0.0], [105.0, 0.0]], dtype=torch.float64)

    pairs = topology._closest_pairs(points, 4)

    assert sorted(sorted(pair) for pair in pairs.tolist()) == [[0, 3], [1, 2], [1, 4], [2, 4]]


def test_erdos_renyi_links_pairs_with_the_right_probability() -> None:
    # 45 pairs, each with probability 5/9: 25 edges on average, standard deviation 3.33, of the mean of 400: 0.17.
    # Nearly all draws are connected, so conditioning moves the mean by less than that.
    graphs = [topology.erdos_renyi(10, 5.0, generator(seed)) for seed in range(400)]

    assert abs(sum(len(graph.edges) for graph in graphs) / 400 - 25) < 0.7
    assert all(num_components(10, graph.edges) == 1 for graph in graphs)
    counts = {pair: sum(pair in graph.edges for graph in graphs) for pair in topology.complete(10).edges}
    assert min(counts.values()) > 400 * 5 / 9 - 50  # five standard deviations of 9.9
    assert max(counts.values()) < 400 * 5 / 9 + 50


def test_erdos_renyi_redraws_until_connected() -> None:
    graphs = [topology.erdos_renyi(8, 2.0, generator(seed)) for seed in range(20)]

    assert [num_components(8, graph.edges) for graph in graphs] == [1] * 20
    assert len({len(graph.edges) for graph in graphs}) > 1


def test_erdos_renyi_of_full_degree_is_complete() -> None:
    assert topology.erdos_renyi(5, 4.0, generator()).edges == topology.complete(5).edges


@pytest.mark.parametrize("kind", ["geometric", "erdos_renyi"])
def test_the_seed_decides_the_graph(kind: str) -> None:
    config = GraphConfig.model_validate({"kind": kind, "degree": 5.0})

    first, again, other = (topology.build(config, 12, generator(seed)) for seed in (3, 3, 4))

    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", ["ring", "line", "star", "complete"])
def test_build_finds_each_plain_kind(kind: str) -> None:
    graph = topology.build(GraphConfig.model_validate({"kind": kind}), 5, generator())

    assert graph == getattr(topology, kind)(5)


def test_from_file_reads_comments_commas_and_either_order(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("# a square\n\n1 0\n2,1\n 2 , 3  # the last side\n\t0\t3\n", encoding="utf-8")

    graph = topology.build(GraphConfig(kind="edges", edges_file=path), 4, generator())

    assert graph.edges == ((0, 1), (0, 3), (1, 2), (2, 3))


def test_from_file_of_one_device_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("# nobody to talk to\n", encoding="utf-8")

    assert topology.from_file(path, 1) == Graph(1, ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1\n1\n", ["line 2", "'1'", "is not a pair", "two whole numbers"]),
        ("0 1 2\n", ["line 1", "'0 1 2'", "is not a pair", "two whole numbers"]),
        ("0 1\n\n# x\n1 b\n", ["line 4", "'1 b'", "is not a pair", "two whole numbers"]),
        ("0 1.0\n", ["line 1", "'0 1.0'", "two whole numbers"]),
        ("0 1_0\n", ["line 1", "'0 1_0'", "two whole numbers"]),
        ("0 " + "9" * 5000 + "\n", ["line 1", "two whole numbers"]),
        ("0 1\n1 1\n", ["line 2", "'1 1'", "device 1 to itself", "delete the line"]),
        ("0 3\n", ["line 1", "'0 3'", "device 3", "0 to 2", "partition.num_devices=3"]),
        ("-1 2\n", ["line 1", "'-1 2'", "device -1", "0 to 2", "fix the line"]),
        ("0 1\n1 2\n1,0\n", ["line 3", "'1,0'", "repeats line 1", "delete one"]),
        ("0 1\n", ["device 2", "must be connected", "add a pair that links device 2"]),
        ("", ["device 1", "must be connected", "add a pair that links device 1"]),
    ],
)
def test_bad_edge_files_are_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(CfclError) as caught:
        topology.from_file(path, 3)

    message = str(caught.value)
    assert [word for word in ["edges.txt", *words] if word not in message] == []
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_unreadable_edge_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "edges.txt"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(
        CfclError, match=r"the file of pairs '.*edges\.txt' cannot be read as text .*: give a UTF-8 file"
    ):
        topology.from_file(path, 3)


@pytest.mark.parametrize(
    ("kind", "num_devices", "degree", "words"),
    [
        ("geometric", 10, 12.0, ["graph.degree=12 ", "exceeds 9", "lower graph.degree", "partition.num_devices"]),
        ("geometric", 2, 1.5, ["graph.degree=1.5 ", "exceeds 1", "lower graph.degree"]),
        ("erdos_renyi", 10, 9.5, ["graph.degree=9.5 ", "exceeds 9", "lower graph.degree"]),
        # 10 devices of degree 1.7: round(8.5) = 8 edges, and a tree takes 9
        ("geometric", 10, 1.7, ["graph.degree=1.7 ", "8 edges", "at least 9", "raise graph.degree"]),
        ("geometric", 25, 2.0, ["graph.degree=2 ", "25 devices", "1000 draws", "raise graph.degree"]),
        ("erdos_renyi", 25, 0.5, ["graph.degree=0.5 ", "25 devices", "1000 draws", "raise graph.degree"]),
    ],
)
def test_impossible_wishes_are_refused(kind: str, num_devices: int, degree: float, words: list[str]) -> None:
    config = GraphConfig.model_validate({"kind": kind, "degree": degree})

    with pytest.raises(CfclError) as caught:
        topology.build(config, num_devices, generator())

    assert [word for word in words if word not in str(caught.value)] == []
    assert "\n" not in str(caught.value)
