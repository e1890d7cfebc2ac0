import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfcl.config import build
from cfcl.errors import CfclError
from cfcl.exchange import links
from cfcl.topology import Graph
from tests.strategies import CELLS, tables

LINE = Graph(num_devices=3, edges=((0, 1), (1, 2)), positions=None)


def test_budgets_of_named_links_differ(tmp_path: Path) -> None:
    file = tmp_path / "budgets.csv"
    file.write_text("transmitter,receiver,num_pulled,num_reserve\n0,1,2,7\n1,0,0,3\n")
    config = build({"exchange": {"budgets_file": str(file), "num_pulled": 5, "num_reserve": 10}})

    found = links.budgets(config, LINE)

    assert [found.pulled(0, 1, 0), found.pulled(1, 0, 0), found.pulled(1, 2, 0)] == [2, 0, 5]
    assert [found.reserve(0, 1), found.reserve(1, 0), found.reserve(2, 1)] == [7, 3, 10]


def test_without_a_table_all_links_are_alike() -> None:
    found = links.budgets(build({"exchange": {"num_pulled": 5, "num_reserve": 10}}), LINE)
    assert found == links.Budgets(5, 10, num_candidates=50)
    assert (found.pulled(0, 1, 0), found.reserve(0, 1)) == (5, 10)


def test_rates_of_named_links_differ(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("source,target,mbps\n2,1,0.25\n")
    assert links.rates(file, LINE) == {(2, 1): 0.25}
    assert links.rates(None, LINE) == {}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "header '' is not"),
        ("a,b\n", "header 'a,b' is not"),
        ("source,target,mbps\n0,1\n", r", line 2: '0,1' is not 3 numbers"),
        ("source,target,mbps\n0,x,1\n", r", line 2: '0,x,1' is not 3 numbers"),
        ("source,target,mbps\n0,2,1\n", r", line 2: 0->2 is not a link of the graph: remove"),
        ("source,target,mbps\n0,1,1\n0,1,2\n", r", line 3: link 0->1 is named twice: remove"),
        ("source,target,mbps\n0,1,1e-13\n", r", line 2: mbps=1e-13 must be from"),
        ("source,target,mbps\n0,1,nan\n", r", line 2: '0,1,nan' is not 3 numbers"),
        ("source,target,mbps\n0,1,1e400\n", r", line 2: '0,1,1e400' is not 3 numbers up to 1e\+12"),
        ("source,target,mbps\n0,1,1_0\n", r", line 2: '0,1,1_0' is not 3 numbers"),
        ("source,target,mbps\n0,1,\u0661\n", r", line 2: '0,1,.' is not 3 numbers"),
        ('source,target,mbps\n"0\n",1,1\n', r", line 3: '0\\n,1,1' is not 3 numbers"),
        ("source,target,mbps\n0,1,1\0\n", r", line 2: .* is not 3 numbers"),
        ("source,target,mbps\n0,1,0\n", r", line 2: mbps=0 must be from 1e-12 to 1e\+12: fix"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(content)
    with pytest.raises(CfclError, match=complaint):
        links.rates(file, LINE)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("0,1,-1,3", "whole numbers"),
        ("0,1,1.5,3", "whole numbers"),
        ("0,1,1,0", "whole numbers"),
        ("0,1,51,3", "exceeds"),
    ],
)
def test_bad_budgets_are_refused(tmp_path: Path, row: str, complaint: str) -> None:
    file = tmp_path / "budgets.csv"
    file.write_text(f"transmitter,receiver,num_pulled,num_reserve\n{row}\n")
    with pytest.raises(CfclError, match=complaint):
        links.budgets(build({"exchange": {"budgets_file": str(file)}}), LINE)


def test_a_mark_of_utf_8_is_no_part_of_a_table(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_bytes(b"\xef\xbb\xbfsource,target,mbps\r\n2,1,0.25\r\n")
    assert links.rates(file, LINE) == {(2, 1): 0.25}


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    (tmp_path / "long").write_text("source,target,mbps\n" + "x" * 200_000)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    reasons = {"pipe": "not a regular file", "binary": "utf-8", "long": "limit", "huge": "1,099,511,627,776 bytes"}
    for name, reason in reasons.items():
        with pytest.raises(CfclError, match=f"cannot read .*{name}.*{reason}.*; give a CSV file with the columns"):
            links.rates(tmp_path / name, LINE)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CfclError, match=r"cannot read .*rates\.csv"):
        links.rates(tmp_path / "rates.csv", LINE)


BUDGETS = ["transmitter", "receiver", "num_pulled", "num_reserve"]
READERS: dict[str, tuple[Sequence[str], Callable[[Path], object]]] = {
    "rates": (["source", "target", "mbps"], lambda file: links.rates(file, LINE)),
    "budgets": (BUDGETS, lambda file: links.budgets(build({"exchange": {"budgets_file": str(file)}}), LINE)),
    "steps": ([*BUDGETS, "step"], lambda file: links.budgets(build({"exchange": {"budgets_file": str(file)}}), LINE)),
    "candidates": (
        ["device", "num_candidates"],
        lambda file: links.budgets(build({"exchange": {"candidates_file": str(file)}}), LINE),
    ),
}


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_table_holds_it_is_used_or_refused(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    columns, read = READERS[kind]
    text = data.draw(tables(columns, CELLS))
    (tmp_path / "table.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(CfclError):
        read(tmp_path / "table.csv")
