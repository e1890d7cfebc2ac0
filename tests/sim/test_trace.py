"""Every message of a run, in order."""

import json
from pathlib import Path
from typing import Any

import pytest

import cfcl
from cfcl.errors import CfclError
from tests.conftest import small

Row = dict[str, Any]


def traced(tmp_path: Path, *overrides: str, **options: Any) -> tuple[list[Row], cfcl.Result]:
    file = tmp_path / f"trace-{len(list(tmp_path.iterdir()))}.jsonl"
    result = cfcl.run(small(*overrides), trace=file, **options)
    return [json.loads(line) for line in file.read_text().splitlines()], result


def test_a_trace_tells_who_sent_what_to_whom_in_order(tmp_path: Path) -> None:
    rows, result = traced(tmp_path, "train.steps=4", "aggregation.period=3", engine="loop")
    told = list(dict.fromkeys((row["step"], row["kind"]) for row in rows))
    # T = 4, T_a = T_p = 3: reserves at the start; at 3 models up and down, then an exchange; a last aggregation at 4
    assert told == [
        (0, "DataReserve"),
        (3, "LocalModel"),
        (3, "GlobalModel"),
        (3, "PullRequest"),
        (3, "DataItems"),
        (4, "LocalModel"),
        (4, "GlobalModel"),
    ]
    # a ring of four: 8 links; 3 reserve points, 2 items of 64 bytes; 17,648 parameters of four
    assert [row["bytes"] for row in rows if row["kind"] == "DataReserve"] == [192] * 8
    assert [row["bytes"] for row in rows if row["kind"] == "PullRequest"] == [0] * 8
    assert [row["bytes"] for row in rows if row["kind"] == "DataItems"] == [128] * 8
    up = [(row["from"], row["to"], row["bytes"]) for row in rows if row["kind"] == "LocalModel"][:4]
    assert up == [(i, -1, 4 * 17_648) for i in range(4)]
    last = result.metrics[-1]
    assert sum(row["bytes"] for row in rows if row["kind"] == "DataItems") == last["bytes_pull"]


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_a_trace_is_the_same_for_any_number_of_workers(mode: str, tmp_path: Path) -> None:
    found = [traced(tmp_path, f"exchange.mode={mode}", workers=workers)[0] for workers in (1, 3)]
    found.append(traced(tmp_path, f"exchange.mode={mode}", engine="loop")[0])
    assert found[0] == found[1] == found[2]


def test_a_trace_overwrites_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("mine")
    with pytest.raises(CfclError, match=r"kept' exists already: choose another file"):
        cfcl.run(small(), trace=file)
    assert file.read_text() == "mine"
    with pytest.raises(CfclError, match=r"cannot write the trace to .*: No such file or directory"):
        cfcl.run(small(), trace=tmp_path / "nowhere" / "trace")
