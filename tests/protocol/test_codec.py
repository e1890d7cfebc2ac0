import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfcl.exchange.messages import (
    ActivationItems,
    ActivationReserve,
    DataItems,
    DataReserve,
    EmbeddingItems,
    EmbeddingReserve,
    GlobalModel,
    LocalModel,
    Message,
    ModelBlock,
    ModelSum,
    PullRequest,
)
from cfcl.protocol.codec import Malformed, decode, encode
from tests.strategies import batches, changes

PIXELS = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
VECTORS = torch.tensor([[0.1, -0.0, 1e-40], [float("inf"), float("nan"), -3.0]])
BATCHES: list[list[Message]] = [
    [],
    [PullRequest(0, 1, 2, 5), PullRequest(3, 1, 2, 0)],
    [DataReserve(1, 2, 0, PIXELS, torch.tensor([0.5, 2.0])), DataReserve(2, 1, 0, PIXELS[:1])],
    [EmbeddingReserve(1, 2, 0, VECTORS)],
    [DataItems(1, 2, 0, PIXELS[:0], 0), DataItems(1, 3, 0, PIXELS)],
    [EmbeddingItems(4, 5, 7, VECTORS), EmbeddingItems(5, 4, 7, VECTORS[:1], 9)],
    [ActivationReserve(1, 2, 0, VECTORS.view(1, 2, 3), None, torch.tensor([0.5]))],
    [
        ActivationItems(1, 2, 0, PIXELS[:, :2], torch.zeros(2, 2)),
        ActivationItems(2, 1, 0, PIXELS[:0, :2], torch.zeros(0, 2)),
    ],
    [LocalModel(0, -1, 3, VECTORS[0], VECTORS[0, :0], 0.1, {"target": VECTORS[0], "b": VECTORS[1]})],
    [GlobalModel(-1, 0, 3, VECTORS[0], VECTORS[1], {})],
    [ModelSum(-1, -1, 3, VECTORS[0].double())],
    [ModelBlock(-1, -1, 3, VECTORS)],
    [ModelBlock(-1, -1, 3, VECTORS, 5, VECTORS[:, :2].double())],
]


def same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        alike = one.dtype == two.dtype and one.shape == two.shape
        return alike and bool(one.numpy().tobytes() == two.numpy().tobytes())
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return bool(one == two) and type(one) is type(two)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch[0]).__name__ if batch else "nothing")
def test_messages_come_back_to_the_bit(batch: list[Message]) -> None:
    found = decode(encode(batch))
    assert [type(message) for message in found] == [type(message) for message in batch]
    for one, two in zip(batch, found, strict=True):
        assert all(same(getattr(one, field.name), getattr(two, field.name)) for field in fields(one))
    assert encode(found) == encode(batch)


def with_table(data: bytes, change: Any) -> bytes:
    """The same file with another table in its header."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    table = json.loads(header["__metadata__"]["cfcl"])
    change(table)
    header["__metadata__"]["cfcl"] = json.dumps(table)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


ITEMS = encode([EmbeddingItems(4, 5, 7, VECTORS)])
CHANGES: list[tuple[Any, str]] = [
    (lambda table: table.update(version=2), "its version is 2, and ours 1"),
    (lambda table: table.update(kind="Message"), "KeyError"),
    (lambda table: table.update(kind="os.system"), "KeyError"),
    (lambda table: table["rows"][0][0].update(source="4"), "source is no whole number of 64 bits"),
    (lambda table: table["rows"][0][0].update(step=True), "step is no whole number of 64 bits"),
    (lambda table: table["rows"][0][0].update(step=2**63), "step is no whole number of 64 bits"),
    (lambda table: table["rows"][0][0].update(embeddings=3), "embeddings occurs twice"),
    (lambda table: table["rows"][0][1].update(source=1), "KeyError"),
    (lambda table: table.update(version=True), "its version is True, and ours 1"),
    (lambda table: table.update(kind=None), "there is no kind of message, but there are rows"),
    (lambda table: table.update(kind=["EmbeddingItems"]), "TypeError"),
    (lambda table: table["rows"].append("ab"), "a row is no pair of objects"),
    (lambda table: table["rows"][0].append({}), "a row is no pair of objects"),
    (lambda table: table["rows"][0][0].update(more=1), "TypeError"),
    (lambda table: table["rows"][0][0].pop("target"), "TypeError"),
    (lambda table: table["rows"][0][1].update(embeddings=3), "embeddings has 3 rows of 2"),
    (lambda table: table["rows"][0][1].update(embeddings=-1), "embeddings has -1 rows of 2"),
    (lambda table: table["rows"][0][1].update(embeddings=1), "there are rows that belong to no message"),
    (lambda table: table["rows"][0][1].clear(), "TypeError"),
    (lambda table: table.update(rows=7), "its rows are no list"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_an_altered_header_is_malformed(change: Any, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode(with_table(ITEMS, change))


def test_a_message_of_numbers_where_tensors_belong_is_malformed() -> None:
    def swap(table: dict[str, Any]) -> None:
        table["rows"][0][0]["embeddings"] = [1.0]
        table["rows"][0][1].clear()

    with pytest.raises(Malformed, match=r"AttributeError|embeddings|TypeCheckError|TypeError"):
        decode(with_table(ITEMS, swap))
    model = encode([LocalModel(0, -1, 3, VECTORS[0], VECTORS[0, :0], 0.5)])
    with pytest.raises(Malformed, match=r"weight|TypeCheckError|TypeError"):
        decode(with_table(model, lambda table: table["rows"][0][0].update(weight="much")))


def file(header: Any, body: bytes = b"") -> bytes:
    """A file of safetensors whose header may say anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def one(dtype: str, shape: list[int], size: int, rows: int = 1, **more: Any) -> bytes:
    """A message of embeddings with a tensor of `size` bytes."""
    table = {
        "version": 1,
        "kind": "EmbeddingItems",
        "rows": [[{"source": 4, "target": 5, "step": 7, **more}, {"embeddings": rows}]],
    }
    tensor = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    return file({"__metadata__": {"cfcl": json.dumps(table)}, "embeddings": tensor}, b"\0" * size)


TABLE = '{"version":1,"kind":null,"rows":[]}'
FOREIGN = {
    "a float of eight bits": one("F8_E4M3", [1, 4], 4),
    "a truth value": one("BOOL", [1, 4], 4),
    "a complex number": one("C64", [1, 4], 32),
    "a number without rows": one("F32", [], 4),
    "more than there is": one("F32", [2**31, 2**31], 4),
    "more than can be": one("F32", [2**62, 2**62], 4),
    "a thousand million rows": one("F32", [1, 1], 4, rows=10**9),
    "a tensor in a number's place": with_table(
        encode([PullRequest(0, 1, 2, 3)]), lambda table: table["rows"][0][1].update(source=0)
    ),
    "a header that goes on": struct.pack("<Q", 2**64 - 1) + b"{}",
    "a deep header": file(b'{"a":' + b"[" * 100_000),
    "a deep table": file({"__metadata__": {"cfcl": "[" * 100_000}}),
    "many digits": file({"__metadata__": {"cfcl": '{"version":' + "9" * 5000 + "}"}}),
    "the table twice": file(b'{"__metadata__":{"cfcl":' + json.dumps(TABLE).encode() + b',"cfcl":""}}'),
    "a version twice": file({"__metadata__": {"cfcl": TABLE.replace("{", '{"version":1,', 1)}}),
    "no table": file({"__metadata__": {"other": TABLE}}),
    "no messages and a tail": file({"__metadata__": {"cfcl": TABLE}}, b"tail"),
}
assert decode(file({"__metadata__": {"cfcl": TABLE}})) == []
assert len(decode(one("F32", [1, 1], 4))) == 1


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_what_no_release_writes_is_malformed(data: Any) -> None:
    with pytest.raises(Malformed) as refused:
        decode(data)
    assert "\n" not in str(refused.value)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_noise_is_malformed_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data)


@settings(max_examples=300, deadline=None)
@given(batches(), changes())
def test_altered_bytes_are_malformed_or_other_messages(batch: list[Message], change: Callable[[bytes], bytes]) -> None:
    with suppress(Malformed):
        found = decode(change(encode(batch)))
        assert all(isinstance(message, Message) for message in found)
        assert len(decode(encode(found))) == len(found)


@settings(max_examples=100, deadline=None)
@given(batches())
def test_any_messages_come_back(batch: list[Message]) -> None:
    assert encode(decode(encode(batch))) == encode(batch)


def test_a_cut_file_is_malformed() -> None:
    for size in range(0, len(ITEMS), 7):
        with pytest.raises(Malformed):
            decode(ITEMS[:size])
