"""Records come back from a line as they were, and nothing else comes back."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from cfcl import records
from cfcl.records import (
    Done,
    Environment,
    Evaluation,
    Final,
    LinkCost,
    Pull,
    Reason,
    Record,
    Setup,
    Timings,
    Update,
    Upfront,
)
from tests.strategies import ODD_LINES, RECORDS, made


@given(RECORDS)
def test_a_record_comes_back_from_its_line_to_the_byte(record: Record) -> None:
    line = record.to_line()
    back = records.parse(line)
    assert (type(back), back) == (type(record), record)
    assert back.to_line() == line
    assert "\n" not in line
    assert line.isascii()


@given(made(LinkCost) | made(Timings))
def test_what_stands_in_files_comes_back_too(record: Record) -> None:
    text = json.dumps(record.to_dict())
    back = records.read(type(record), json.loads(text))
    assert back == record
    assert json.dumps(back.to_dict()) == text


@given(made(Environment))
def test_an_environment_comes_back_with_its_packages(found: Environment) -> None:
    packages = {"versions": "1.0", **{f"package-{name}": version for name, version in found.versions.items()}}
    environment = replace(found, versions=packages)
    row = json.loads(json.dumps(environment.to_dict()))
    assert row.keys() >= packages.keys()
    assert Environment.of(row) == environment


PULL = Pull(3, 0, 1, 1, 2.5, 0.5, 0.25, (Reason(7, 2, -1.5, -0.5, -1.0, {"novelty": 0.75}),))
EXAMPLES: dict[str, tuple[Record, str]] = {
    "setup": (
        Setup("digits", "small-cnn", 10, (3, 4), ((0,), (1, 2)), ((0, 1),), ((0.5, 1.0), (0.0, 2.5))),
        '{"kind":"setup","dataset":"digits","encoder":"small-cnn","num_parameters":10,"points":[3,4],'
        '"labels":[[0],[1,2]],"edges":[[0,1]],"positions":[[0.5,1.0],[0.0,2.5]]}',
    ),
    "a run without labels": (
        Evaluation(1, 2, 3, 4, 0.1, 0.0, 0, None, None, 0.25, -1.5, 7.5, 5e-324, None),
        '{"kind":"eval","step":0,"alignment":0.25,"uniformity":-1.5,"effective_rank":7.5,"objective":5e-324,'
        '"bytes_push":1,"bytes_pull":2,"bytes_up":3,"bytes_down":4,"seconds":0.1,"joules":0.0}',
    ),
    "what was paid at the start": (
        Upfront(1, 2, 3, 4, 0.1, 0.0, 0),
        '{"kind":"upfront","step":0,"bytes_push":1,"bytes_pull":2,"bytes_up":3,"bytes_down":4,"seconds":0.1,"joules":0.0}',
    ),
    "a pull that is explained": (
        PULL,
        '{"kind":"pull","step":3,"transmitter":0,"receiver":1,"items":1,"effective_candidates":2.5,"held_labels":0.5,'
        '"centroid_distance":0.25,"reasons":[{"index":7,"cluster":2,"log_probability":-1.5,"macro":-0.5,"micro":-1.0,'
        '"scores":{"novelty":0.75}}]}',
    ),
    "a pull that is not": (
        Pull(3, 0, 1, 0, 1, None, None),
        '{"kind":"pull","step":3,"transmitter":0,"receiver":1,"items":0,"effective_candidates":1,"held_labels":null,'
        '"centroid_distance":null}',
    ),
    "a pull with an adaptive budget": (
        Pull(3, 0, 1, 0, 1, None, None, new=0),
        '{"kind":"pull","step":3,"transmitter":0,"receiver":1,"items":0,"effective_candidates":1,"held_labels":null,'
        '"centroid_distance":null,"new":0}',
    ),
    "final": (Final(12), '{"kind":"final","step":12}'),
    "done": (Done("runs/ä"), '{"kind":"done","folder":"runs/\\u00e4"}'),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_lines_by_hand(name: str) -> None:
    record, line = EXAMPLES[name]
    assert record.to_line() == line
    assert records.parse(line) == record


def test_bytes_are_added_up() -> None:
    found = EXAMPLES["a run without labels"][0]
    assert isinstance(found, Evaluation)
    assert (found.bytes_d2d, found.bytes) == (1 + 2, 1 + 2 + 3 + 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_is_neither_written_nor_read(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(PULL, centroid_distance=value).to_line()
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(PULL, reasons=(Reason(7, None, value, None, None, {}),)).to_line()
    line = PULL.to_line()
    for field in ("centroid_distance", "log_probability", "micro", "novelty"):
        bad = line.replace(f'"{field}":', f'"{field}":{json.dumps(value)},"was":', 1)
        with pytest.raises(ValueError, match=r"is not a finite number|has unknown fields \['was'\]"):
            records.parse(bad)


Change = Callable[[dict[str, Any]], object]
BAD: list[tuple[Change, str]] = [
    (lambda row: row.pop("items"), r"a record of kind pull lacks the fields \['items'\]"),
    (lambda row: row.update(pixels=[1, 2]), r"a record of kind pull has unknown fields \['pixels'\]"),
    (lambda row: row["reasons"][0].update(pixels=[1]), r"a record of kind Reason has unknown fields \['pixels'\]"),
    (lambda row: row["reasons"][0].pop("cluster"), r"a record of kind Reason lacks the fields \['cluster'\]"),
    (lambda row: row.update(reasons=[3]), "3 is not a record of kind Reason"),
    (lambda row: row.update(reasons={}), r"reasons=\{\} is not a list"),
    (lambda row: row.update(step=1.0), "step=1.0 is not a whole number"),
    (lambda row: row.update(step=True), "step=True is not a whole number"),
    (lambda row: row.update(step=-1), r"step=-1 is not from 0 to 1e\+100"),
    (lambda row: row.update(held_labels=1.5), "held_labels=1.5 is not from 0 to 1"),
    (lambda row: row.update(centroid_distance=1e101), r"centroid_distance=1e\+101 is not a finite number"),
    (lambda row: row.update(step=None), "step=None is not a whole number"),
    (lambda row: row.update(effective_candidates="2"), "effective_candidates='2' is not a finite number"),
    (lambda row: row.update(effective_candidates=False), "effective_candidates=False is not a finite number"),
    (lambda row: row.update(effective_candidates=10**400), "effective_candidates=1000.* is not a finite number"),
    (lambda row: row.update(effective_candidates=float("inf")), "effective_candidates=inf is not a finite number"),
    (lambda row: row.update(held_labels=float("nan")), "held_labels=nan is not a finite number"),
    (lambda row: row["reasons"][0].update(scores=[1]), r"scores=\[1\] is not an object"),
    (lambda row: row["reasons"][0].update(scores={"novelty": "high"}), "scores.novelty='high' is not a finite number"),
    (
        lambda row: row.update(kind="push"),
        "is not a record of the kinds setup, eval, upfront, train, pull, faults, final, done, failed",
    ),
    (lambda row: row.update(kind=["pull"]), "is not a record of the kinds"),
    (lambda row: row.pop("kind"), "is not a record of the kinds"),
]


@pytest.mark.parametrize(("change", "complaint"), BAD, ids=[complaint for _, complaint in BAD])
def test_what_does_not_fit_is_refused(change: Change, complaint: str) -> None:
    row = json.loads(PULL.to_line())
    assert records.parse(json.dumps(row)) == PULL
    change(row)
    with pytest.raises(ValueError, match=complaint):
        records.parse(json.dumps(row))


@pytest.mark.parametrize("line", ["", "{", "[]", "3", "null", '"setup"', '{"kind":"setup"} {}'])
def test_what_is_no_object_is_no_record(line: str) -> None:
    with pytest.raises(ValueError, match=r"is not JSON|is not a record of the kinds"):
        records.parse(line)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[" * 100_000, "is nested too deeply"),
        ('{"kind":"final","step":' + "9" * 5000 + "}", "Exceeds the limit"),
        ('{"kind":"final","step":' + "9" * 4000 + "}", "step=999.* is not from 0"),
        ('{"kind":"final","step":1,"step":2}', "a key occurs twice among 'kind, step, step'"),
        ('{"kind":"final","step":Infinity}', "step=inf is not a whole number"),
    ],
    ids=["deep", "digits", "fewer digits", "twice", "infinity"],
)
def test_what_would_break_a_reader_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        records.parse(line)


@given(ODD_LINES)
def test_whatever_a_line_says_it_is_a_record_or_refused(line: str) -> None:
    with suppress(ValueError):
        found = records.parse(line)
        assert records.parse(found.to_line()) == found


def test_a_list_of_the_wrong_length_is_refused() -> None:
    line = EXAMPLES["setup"][1]
    with pytest.raises(ValueError, match=r"edges=\[0, 1, 2\] is not a list of the right length"):
        records.parse(line.replace("[[0,1]]", "[[0,1,2]]"))
    with pytest.raises(ValueError, match=r"points='3' is not a list"):
        records.parse(line.replace("[3,4]", '"3"'))


def test_no_record_can_hold_a_pixel() -> None:
    """A pull and its reasons hold numbers per item, never a list of them."""
    shapes = {name: wanted for kind in (Pull, Reason) for name, wanted in records._TYPES[kind].items()}
    lists = {name for name, wanted in shapes.items() if "tuple" in str(wanted) or "Mapping" in str(wanted)}
    assert lists == {"reasons", "scores"}


SETUP = Setup("made", "small-cnn", 10, (3, 4, 5), ((0,), (1,), (2,)), ((0, 1), (1, 2)), None)
UPDATE = Update(0, loss=0.5, triplet=0.5, regulariser=0.0, weight=0.0, active=1.0, pulled_share=0.0, margin=0.0)
JUDGED = Evaluation(1, 2, 3, 4, 0.1, 0.0, 0, 0.5, 0.5, 0.25, -1.5, 7.5, 0.1, None)
PULLED = Pull(3, 0, 1, 1, 2.5, 0.5, 0.25)
FINAL = Final(4, (0, 2), ((0.5, 1.25), (1.25, 0.25)), 3.5)
RUN: list[Record] = [
    SETUP,
    JUDGED,
    UPDATE,
    PULLED,
    replace(PULLED, receiver=0, transmitter=1),
    replace(JUDGED, step=4),
    FINAL,
]
COSTS = [LinkCost(0, 1, "datapoint", "push", 3), LinkCost(2, -1, "model", "up", 3), LinkCost(-1, 2, "model", "down", 3)]


def test_records_of_one_run_agree() -> None:
    records.check(RUN, COSTS)
    records.check([replace(SETUP, points=(2,), labels=None, edges=()), JUDGED, Final(0)])


DISAGREEING: list[tuple[int, Record | None, str]] = [
    (0, None, "the first record is not of kind setup"),
    (6, None, "or the last one not of kind final"),
    (1, SETUP, "line 2: a second record of kind setup at the same place"),
    (1, Done("runs"), "line 2: a record of kind done has no place in a run"),
    (1, replace(JUDGED, step=4), "line 6: a second record of kind eval at the same place"),
    (5, replace(JUDGED, step=5), "line 6: step=5 is not between 0, the one before, and 4, the end"),
    (4, PULLED, "line 5: a second record of kind pull at the same place"),
    (4, replace(PULLED, transmitter=2, step=2), "line 5: step=2 is not between 3, the one before, and 4, the end"),
    (3, replace(PULLED, transmitter=2, receiver=0), "line 4: a pull between 2 and 0, which have no link"),
    (3, replace(PULLED, transmitter=7), "line 4: a pull between 7 and 1, which have no link"),
    (0, replace(SETUP, labels=((0,), (1,))), "line 1: labels is of 2 devices, and points of 3"),
    (0, replace(SETUP, positions=((0.5, 0.5),)), "line 1: positions is of 1 devices, and points of 3"),
    (0, replace(SETUP, edges=((0, 1), (1, 3))), "line 1: edges are not pairs of 3 devices, in order and each once"),
    (0, replace(SETUP, edges=((0, 1), (0, 1))), "line 1: edges are not pairs of 3 devices"),
    (0, replace(SETUP, edges=((1, 0),)), "line 1: edges are not pairs of 3 devices"),
    (0, replace(SETUP, points=(), labels=None, edges=()), "line 1: edges are not pairs of 0 devices"),
    (6, replace(FINAL, labels=(0, 1, 2)), "line 7: label_distances is not a square of the labels"),
    (6, replace(FINAL, labels=(1, 1)), "line 7: label_distances is not a square of the labels"),
    (6, replace(FINAL, label_distances=((1.0, 2.0), (1.0,))), "line 7: label_distances is not a square of the labels"),
]


@pytest.mark.parametrize(("place", "record", "complaint"), DISAGREEING, ids=[row[2] for row in DISAGREEING])
def test_records_that_disagree_are_refused(place: int, record: Record | None, complaint: str) -> None:
    rows = [*RUN[:place], *([] if record is None else [record]), *RUN[place + 1 :]]
    with pytest.raises(ValueError, match=complaint):
        records.check(rows, COSTS)


@pytest.mark.parametrize("link", [(0, 2), (-1, -1), (3, -1), (1, 1), (-1, 3)])
def test_costs_of_no_link_are_refused(link: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"costs between {link[0]} and {link[1]}, which have no link"):
        records.check(RUN, [*COSTS, LinkCost(*link, "model", "up", 3)])


@pytest.mark.parametrize(("link", "way"), [((0, 1), "up"), ((0, 1), "x"), ((2, -1), "push"), ((-1, 2), "up")])
def test_costs_go_the_way_of_their_link(link: tuple[int, int], way: str) -> None:
    with pytest.raises(ValueError, match=f"costs from {link[0]} to {link[1]} of direction '{way}'"):
        records.check(RUN, [*COSTS, LinkCost(*link, "model", way, 3)])
