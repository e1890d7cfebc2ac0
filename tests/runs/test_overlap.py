import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from rich.console import Console

from cfcl.errors import CfclError
from cfcl.records import LinkOverlap, Overlap
from cfcl.runs import heatmap, overlap

FOUND = Overlap(
    dataset="made",
    own=(0.01, 0.03, None),
    links=(
        LinkOverlap(0, 1, 0.75, 1.0),
        LinkOverlap(1, 0, 0.5, 0.25),
        LinkOverlap(1, 2, 0.04, 0.25),
        LinkOverlap(2, 1, 0.05, 0.0),
    ),
    bytes_push=10_400,
)
BLIND = replace(FOUND, links=tuple(replace(link, lacked=None) for link in FOUND.links))


def many(number: int) -> Overlap:
    """A ring of so many devices."""
    links = tuple(LinkOverlap(i, (i + 1) % number, 0.5 if i else 0.125, None) for i in range(number))
    return Overlap("made", (0.02,) * number, links, 100)


def printed(found: Overlap) -> list[str]:
    console = Console(width=100)
    with console.capture() as said:
        for part in overlap.tables(found):
            console.print(part)
    return [" ".join(line.split()) for line in said.get().splitlines() if line.strip()]


def cells(axes: Axes) -> Any:
    values: Any = axes.images[0].get_array()
    return values.filled(np.nan)


def test_figures_over_all_links() -> None:
    assert FOUND.new == pytest.approx(0.335)
    assert FOUND.floor == pytest.approx(0.02)
    assert FOUND.lacked == 0.375
    # Deviations .415 .165 -.295 -.285 and .625 -.125 -.125 -.375: products sum to .3825, squares to .3677 and .5625.
    assert FOUND.correlation == pytest.approx(0.3825 / (0.3677 * 0.5625) ** 0.5)


def test_where_there_is_nothing_to_correlate() -> None:
    assert BLIND.lacked is None
    assert BLIND.correlation is None
    even = replace(FOUND, links=tuple(replace(link, lacked=0.5) for link in FOUND.links))
    assert (even.lacked, even.correlation) == (0.5, None)
    assert replace(FOUND, links=FOUND.links[:1]).correlation is None


def test_rows_are_transmitters_and_columns_receivers() -> None:
    lines = printed(FOUND)
    assert lines[0] == "Percent of a transmitter's data (row) that is new to a receiver (column)"
    assert lines[1] == "0 1 2"
    assert lines[3:7] == ["0 (1) 75 –", "1 50 (3) 4", "2 – 5 –", "mean 50 40 4"]
    assert lines[8] == "Percent whose label the receiver lacks: a check, which needs labels"
    assert lines[11:] == ["0 – 100 –", "1 25 – 25", "2 – 0 –", "mean 25 50 25"]
    assert len(printed(BLIND)) == 8


def test_of_many_devices_there_is_a_summary() -> None:
    assert len(printed(many(16))) > 16
    lines = printed(many(17))
    assert lines[0] == "Percent that is new, over 17 links of 17 devices"
    # (16 * 0.5 + 0.125) / 17 = 0.478
    assert lines[3:] == [
        "of a transmitter's data, to the receiver 48 12 50",
        "of a device's own data, to itself 2 2 2",
        "--out overlap.png draws every link",
    ]


def test_links_on_which_all_a_part_or_nothing_is_new() -> None:
    # All from 0.75 on; nothing up to twice the floor of 0.02.
    assert overlap.kinds(FOUND) == {"all": 1, "part": 2, "none": 1}


def test_sentences() -> None:
    cost, check, mean, advice = overlap.sentences(FOUND)
    assert cost == "The estimate moves 10.4 kB, reserves and radii: 2.6 kB over each of 4 links."
    assert check == (
        "As a check, which needs labels: of 38 % the receiver lacks the label; this and the estimate correlate over "
        "links by 0.84."
    )
    assert mean == "On average 34 % of what a neighbour holds is new to a device, from 4 % (1 to 2) to 75 % (0 to 1)."
    assert advice == (
        "Where nearly everything is new (1 link, 75 % or more) any exchange will do, where less is (2 links) choosing "
        "pays (exchange.method=cover), and where nothing is (1 link, 4.0 % or less) exchange is not worth its bytes."
    )
    assert overlap.sentences(BLIND) == [cost, mean, advice]


def test_numbers_as_files() -> None:
    assert overlap.content(FOUND, Path("a.csv")).decode() == (
        "transmitter,receiver,new,lacked\n0,1,0.75,1.0\n1,0,0.5,0.25\n1,2,0.04,0.25\n2,1,0.05,0.0\n"
    )
    assert overlap.content(BLIND, Path("a.CSV")).decode().splitlines()[1] == "0,1,0.75,"
    read = json.loads(overlap.content(FOUND, Path("a.json")))
    assert read == {key: value for key, value in json.loads(FOUND.to_line()).items() if key != "kind"}
    assert (read["new"], read["floor"], read["bytes_push"]) == (FOUND.new, FOUND.floor, 10_400)
    assert read["own"] == [0.01, 0.03, None]
    assert read["links"][1] == {"transmitter": 1, "receiver": 0, "new": 0.5, "lacked": 0.25}
    assert "lacked" not in json.loads(overlap.content(BLIND, Path("a.json")))["links"][0]


def test_the_heat_map_has_a_cell_for_each_link() -> None:
    figure = heatmap.draw(FOUND)
    estimate, truth, _ = figure.axes
    no = np.nan
    np.testing.assert_allclose(cells(estimate), np.array([[1.0, 75.0, no], [50.0, 3.0, 4.0], [no, 5.0, no]]))
    np.testing.assert_allclose(cells(truth), np.array([[0.0, 100.0, no], [25.0, 0.0, 25.0], [no, 0.0, 0.0]]))
    assert [text.get_text() for text in estimate.texts] == ["1", "75", "50", "3", "4", "5"]
    assert (estimate.get_xlabel(), estimate.get_ylabel()) == ("receiver", "transmitter")
    assert "needs labels" in truth.get_title(loc="left")
    assert estimate.patch.get_hatch() == "////"
    assert "hatched: no link" in figure.axes[-1].get_xlabel()
    assert estimate.images[0].get_clim() == (0.0, 100.0)


def test_the_heat_map_of_many_devices_has_no_numbers_and_no_hatches() -> None:
    estimate, bar = heatmap.draw(many(41)).axes
    assert list(estimate.texts) == []
    assert estimate.patch.get_hatch() is None
    assert "blank: no link" in bar.get_xlabel()


def test_the_same_numbers_give_the_same_picture() -> None:
    first, second = (overlap.content(FOUND, Path("a.png")) for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG")


def test_files_that_cannot_be_are_refused() -> None:
    overlap.check_places([Path("a.png"), Path("b.csv"), Path("c.json")], 1000)
    overlap.check_places([Path("b.csv")], 1001)
    with pytest.raises(CfclError, match=r"--out 'a\.txt' ends in none of \.png, \.csv, \.json, .*: rename it"):
        overlap.check_places([Path("b.csv"), Path("a.txt")], 3)
    with pytest.raises(CfclError, match=r"'a\.png' would show 1,001 devices, .* room for 1,000: write a \.csv"):
        overlap.check_places([Path("a.png")], 1001)
