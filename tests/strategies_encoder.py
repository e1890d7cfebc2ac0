"""Encoder files that are wrong, for tests and for fuzzing."""

import io
import json
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from cfcl.config import ModelConfig
from cfcl.models import Encoder

SHAPE = (1, 2, 2)
"""Of the images of the small encoder that the files go wrong from."""
SMALL = ModelConfig(encoder="usps-cnn", embedding_dim=2)


def description(**changes: Any) -> dict[str, Any]:
    """What a good file says of its network, with other values for some keys."""
    shape = changes.pop("image_shape", SHAPE)
    return {"model": {**SMALL.model_dump(), **changes}, "image_shape": shape}


def tensors() -> dict[str, Tensor]:
    """Those of the small encoder."""
    model = Encoder(SMALL, SHAPE, seed=0)
    return model.state_dict(model.initial)


def encoder_file(weights: dict[str, Tensor] | None = None, said: object = None, **changes: Any) -> bytes:
    """The bytes of a file, good unless something is given."""
    text = json.dumps(description(**changes) if said is None else said)
    return save(tensors() if weights is None else weights, metadata={"cfcl": text})


def bare(header: object, data: bytes = b"") -> bytes:
    """A file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def bad_encoders(rng: Random) -> Iterator[tuple[str, bytes]]:
    """What is wrong, and the bytes of a file that is wrong in this way and no encoder; `rng` draws the details."""
    good, weights = encoder_file(), tensors()
    name = rng.choice(sorted(weights))
    yield "empty", b""
    yield "cut", good[: rng.randrange(len(good))]
    yield "too long", good + rng.randbytes(rng.randint(1, 20))
    yield "random bytes", rng.randbytes(rng.randint(1, 3000))
    yield "a pickle", _pickled(weights)
    yield "somebody else's", save({"embed.weight": torch.zeros(3, 4)})
    yield "no tensors", encoder_file({})
    yield "a tensor less", encoder_file({key: value for key, value in weights.items() if key != name})
    yield "a tensor more", encoder_file({**weights, "more": torch.zeros(rng.randint(0, 5))})
    yield "another name", encoder_file({f"x{key}" if key == name else key: value for key, value in weights.items()})
    yield "another shape", encoder_file({**weights, name: weights[name].flatten().unsqueeze(0)})
    yield "another type", encoder_file({**weights, name: weights[name].view(torch.int32)})
    yield "half as precise", encoder_file({key: value.half() for key, value in weights.items()})
    yield "not finite", encoder_file({**weights, name: _spoilt(weights[name], rng)})
    for key, values in _WRONG.items():
        yield f"{key} is wrong", encoder_file(**{key: rng.choice(values)})
    for value in _DESCRIPTIONS:
        yield f"described by {value!r}", encoder_file(said=value)
    yield "a huge network in a few bytes", encoder_file({}, embedding_dim=10**9)
    for metadata in _METADATA:
        yield f"metadata {metadata!r:.30}", bare({"__metadata__": metadata})
    for header in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 500_000, b"9" * 5000, b'{"a": NaN}'):
        yield f"header {header!r:.30}", bare(header)
    yield "a header beyond the file", struct.pack("<Q", rng.randint(2**16, 2**20)) + b"{}"
    yield "a header beyond memory", struct.pack("<Q", rng.randint(2**21, 2**64 - 1)) + b"{}"


_WRONG: dict[str, tuple[Any, ...]] = {
    "embedding_dim": (0, -1, 3, 10**9, 10**18, 10**30, 1.5, "many", None, [2], float("inf")),
    "encoder": ("small-cnn", "resnet50", 3, None, []),
    "standardise": ("perhaps", [], None),
    "image_shape": (
        *([], [1, 2], [1, 2, 2, 2], [0, 2, 2], [1, -2, -2], [1.0, 2, 2], ["1", 2, 2], [True, 2, 2], [None, 2, 2]),
        *([1, 1, 1], [1, 4, 4], [1, 10**6, 10**6], [1, 10**30, 2], [[1], 2, 2], "1x2x2", 122, None, {}),
    ),
    "unheard_of": (1, None),
}
_DESCRIPTIONS: list[Any] = [
    [],
    3,
    "text",
    {},
    {"model": {}},
    {"image_shape": SHAPE},
    {"model": [], "image_shape": SHAPE},
]
_METADATA: list[Any] = [None, 3, [], "text", *({"cfcl": text} for text in (3, None, "{", "[" * 100_000))]


def mutated(rng: Random) -> bytes:
    """A good file with a few things changed, in its bytes or in its header: it may be good still."""
    data = encoder_file()
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(_MUTATIONS)(data, rng)
    return data


def _flip(data: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _flip_in_header(data: bytes, rng: Random) -> bytes:
    end = min(len(data), 8 + struct.unpack("<Q", data[:8])[0] % 2**16)
    return _flip(data[:end], rng) + data[end:]


def _other_number(data: bytes, rng: Random) -> bytes:
    """One digit of the header is another number."""
    size = struct.unpack("<Q", data[:8])[0] % 2**16
    header = data[8 : 8 + size]
    places = [place for place, letter in enumerate(header) if chr(letter).isdigit()]
    if not places:
        return data
    place = rng.choice(places)
    number = str(rng.choice((0, 1, 7, -1, 255, 2**31, 2**63, 10**25, 1e300))).encode()
    return bare(header[:place] + number + header[place + 1 :], data[8 + size :])


def _splice(data: bytes, rng: Random) -> bytes:
    begin, end = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:begin] + rng.randbytes(rng.randint(0, 30)) + data[end:] if end - begin < 500 else data[:begin] + data


_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (_flip, _flip_in_header, _other_number, _splice)


def _spoilt(tensor: Tensor, rng: Random) -> Tensor:
    found = tensor.clone()
    found.view(-1)[rng.randrange(found.numel())] = rng.choice((float("nan"), float("inf"), -float("inf")))
    return found


def _pickled(weights: dict[str, Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    return buffer.getvalue()
