"""Valid and odd things for property tests: configs, messages, record lines and tables."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, get_args, get_origin

import torch
from hypothesis import strategies as st

from cfcl import config as configs
from cfcl import records
from cfcl.exchange import messages
from cfcl.exchange.messages import Message
from cfcl.protocol import codec
from cfcl.records import Done, Evaluation, Failed, Faults, Final, Pull, Record, Setup, Update, Upfront

TEXT = st.text()  # any character, half a surrogate pair too
LARGE = st.sampled_from([10**9, 10**18, 2**63, 10**30, 10**400, -(10**30)])
NUMBERS = st.integers() | st.floats() | LARGE | st.booleans()
WORDS = st.sampled_from(["nan", "inf", "-1", "1e400", "none", "", "digits", "implicit", "\0", "\x1b[31m", "a\nb", "١"])
ANYTHING = st.recursive(
    st.none() | NUMBERS | WORDS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
"""Whatever JSON or TOML can say."""

LINES = (Setup, Evaluation, Upfront, Update, Pull, Faults, Final, Done, Failed)
"""Records that have a line."""


def made(kind: type[Record]) -> st.SearchStrategy[Record]:
    """Any record of `kind`."""
    types = records._TYPES[kind]
    return st.builds(kind, **{name: _values(wanted, name) for name, wanted in types.items()})


def _values(wanted: Any, name: str) -> st.SearchStrategy[Any]:
    """Anything of a field's type, in its range."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is UnionType:
        return st.none() | _values(inner[0], name)
    if origin is tuple and inner[-1] is ...:
        return st.lists(_values(inner[0], name), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(_values(kind, name) for kind in inner))
    if origin is Mapping:
        return st.dictionaries(TEXT, _values(inner[1], ""), max_size=3)
    low, high = records._RANGES.get(name, (-records.LARGEST, records.LARGEST))
    if wanted is int:
        return st.integers(int(max(low, 0)), int(high))
    if wanted is float:
        return st.floats(low, high, allow_subnormal=True)
    return TEXT if wanted is str else made(wanted)


RECORDS = st.one_of(*map(made, LINES))


@st.composite
def spoilt(draw: st.DrawFn, valid: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """An object of `valid` with a field less, a foreign field, or something else in a field."""
    row = dict(draw(valid))
    known: bool = draw(st.booleans())
    key = draw(st.sampled_from(sorted(row))) if row and known else draw(TEXT)
    if draw(st.booleans()):
        row.pop(key, None)
    else:
        row[key] = draw(ANYTHING)
    return row


def _as_row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(record.to_line())
    return row


ODD_LINES = TEXT | ANYTHING.map(json.dumps) | spoilt(RECORDS.map(_as_row)).map(json.dumps)
"""What may stand where a record should."""


@st.composite
def odd_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Nested dicts like those of a file of settings, with a few settings that may be anything."""
    table: dict[str, Any] = {}
    known = [(section, key) for section, key, *_ in configs.fields(configs.Config())]
    for section, key in draw(st.lists(st.sampled_from(known) | st.tuples(TEXT, TEXT), max_size=4)):
        place = table.setdefault(section, {}) if section else table
        (place if isinstance(place, dict) else table)[key] = draw(ANYTHING)
    return table


OVERRIDES = st.lists(
    st.builds(
        "{}={}".format,
        st.sampled_from([f"{section}.{key}".lstrip(".") for section, key, *_ in configs.fields(configs.Config())])
        | TEXT,
        NUMBERS.map(str) | WORDS | TEXT,
    )
    | TEXT,
    max_size=3,
)
"""What may follow `--set`."""


def tables(columns: Sequence[str], cells: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """CSV text with the right header, more often than not, over rows of any length."""
    head = st.just(",".join(columns))
    rows = st.lists(st.lists(cells, min_size=len(columns) - 1, max_size=len(columns)).map(",".join), max_size=4)
    return st.tuples(st.sampled_from([head, head, TEXT]).flatmap(lambda some: some), rows).map(
        lambda parts: "\n".join([parts[0], *parts[1]])
    )


CELLS = st.integers(-1, 4).map(str) | WORDS | NUMBERS.map(lambda number: f"{number}"[:60]) | TEXT
"""What may stand in a table: small numbers, and what else there is."""


_DEVICES = st.integers(-1, 5)
_VECTORS = st.lists(st.floats(width=32), max_size=4).map(torch.tensor).map(lambda found: found.float())


@st.composite
def _points(draw: st.DrawFn) -> torch.Tensor:
    return torch.full((draw(st.integers(0, 3)), 1, 2, 2), draw(st.integers(0, 255)), dtype=torch.uint8)


@st.composite
def batches(draw: st.DrawFn) -> list[Message]:
    """Messages of one kind."""
    who = {"source": _DEVICES, "target": _DEVICES, "step": st.integers(0, 10**6)}
    fields: dict[type[Message], dict[str, st.SearchStrategy[Any]]] = {
        messages.PullRequest: {"num_items": st.integers(0, 9)},
        messages.DataItems: {"points": _points(), "new": st.none() | st.integers(0, 9)},
        messages.DataReserve: {"points": _points(), "numbers": st.none()},
        messages.EmbeddingItems: {"embeddings": st.integers(0, 3).map(lambda rows: torch.ones(rows, 2))},
        messages.LocalModel: {
            "params": _VECTORS,
            "buffers": _VECTORS,
            "weight": st.floats(0, 10),
            "extras": st.dictionaries(st.sampled_from(["target", "b"]), _VECTORS, max_size=2),
        },
        messages.ModelSum: {"total": _VECTORS.map(lambda found: found.double())},
    }
    kind = draw(st.sampled_from(list(fields)))
    return draw(st.lists(st.builds(kind, **who, **fields[kind]), max_size=3))


@st.composite
def changes(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """What may happen to messages as bytes: cut, lengthened, altered in a few places, or anything in their header."""
    if draw(st.booleans()):
        key, value, table = draw(TEXT), draw(ANYTHING), draw(st.none() | ANYTHING | odd_tables())
        return lambda data: _with_header(data, key, value, table)
    places, kept, tail = draw(st.lists(_PLACES, max_size=3)), draw(st.floats(0, 1)), draw(st.binary(max_size=9))

    def change(data: bytes) -> bytes:
        altered = bytearray(data)
        for where, value in places:
            altered[where % len(data)] = value
        return bytes(altered[: round(kept * len(data))]) + tail

    return change


_PLACES = st.tuples(st.integers(0, 10_000), st.integers(0, 255))


def _with_header(data: bytes, key: str, value: Any, table: Any) -> bytes:
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    names = [*header, key]
    header[names[len(key) % len(names)]] = value
    if table is not None:
        header["__metadata__"] = {codec.KEY: json.dumps(table)}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def odd_tables() -> st.SearchStrategy[dict[str, Any]]:
    """What the header of messages says about its rows."""
    plain = spoilt(st.just({"source": 0, "target": 1, "step": 2, "num_items": 3}))
    lengths = st.dictionaries(
        st.sampled_from(["points", "embeddings", "params", "extras.a", "x"]), ANYTHING, max_size=2
    )
    return st.fixed_dictionaries(
        {
            "version": st.just(codec.VERSION) | ANYTHING,
            "kind": st.sampled_from(list(codec.KINDS)) | ANYTHING,
            "rows": st.lists(st.tuples(plain, lengths), max_size=2) | ANYTHING,
        }
    )
