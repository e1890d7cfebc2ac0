"""Records come back from a line as they were, and nothing else comes back."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import UnionType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfcl import records
from cfcl.records import (
    Done,
    Environment,
    Evaluation,
    Failed,
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

FINITE = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
TEXT = st.text()  # any character, half a surrogate pair too
LINES = (Setup, Evaluation, Upfront, Update, Pull, Final, Done, Failed)


def _values(wanted: Any) -> st.SearchStrategy[Any]:
    """Anything of a field's type."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is UnionType:
        return st.none() | _values(inner[0])
    if origin is tuple and inner[-1] is ...:
        return st.lists(_values(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_values, inner))
    if origin is Mapping:
        return st.dictionaries(TEXT, _values(inner[1]), max_size=3)
    if wanted in (int, float, str):
        return {int: st.integers(), float: FINITE, str: TEXT}[wanted]
    return made(wanted)


def made(kind: type[Record]) -> st.SearchStrategy[Record]:
    """Any record of `kind`."""
    types = records._TYPES[kind]
    return st.builds(kind, **{name: _values(wanted) for name, wanted in types.items()})


ANY = st.one_of(*map(made, LINES))


@given(ANY)
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
        "is not a record of the kinds setup, eval, upfront, train, pull, final, done, failed",
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
