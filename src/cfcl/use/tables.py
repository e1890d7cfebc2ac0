"""Files of embeddings: npz, csv or parquet, by their suffix; written as they come, and whole or not at all."""

import csv
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cfcl import reading
from cfcl.data import pictures
from cfcl.errors import CfclError
from cfcl.files import opened_atomically
from cfcl.use.embedding import Space, Values, Watch, stream, unreadable
from cfcl.use.sources import Skipped, Source
from cfcl.use.trained import TrainedEncoder

Append = Callable[[Sequence[str], Values], None]


@dataclass(frozen=True)
class Table:
    """Embeddings from a file."""

    names: tuple[str, ...]
    values: Values
    encoder: str | None
    """Digest of the encoder that made them, and which of its outputs they are, where the file says so."""
    space: Space | None


@contextmanager
def writing(path: Path, *, dim: int, encoder: str, space: Space) -> Iterator[Append]:
    """What takes names and their rows, as they come, for the file at `path`."""
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise CfclError(f"--out {str(path)!r} ends in none of {', '.join(_KINDS)}: the suffix says which kind of file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened_atomically(path) as file, kind.writing(file, dim, encoder, space) as append:
            yield append
    except OSError as error:
        raise CfclError(f"cannot write {str(path)!r} ({error.strerror or error}): choose another --out") from None


def write(
    path: Path,
    source: Source,
    encoder: TrainedEncoder,
    *,
    space: Space = "embedding",
    workers: int = 1,
    watch: Watch = lambda done: None,
) -> list[Skipped]:
    """Embed all images of `source` into the file at `path`; comes back with those that could not be read."""
    dim = encoder.embedding_dim if space == "embedding" else encoder.feature_dim
    skipped: list[Skipped] = []
    with pictures.quietly(), writing(path, dim=dim, encoder=encoder.digest, space=space) as append:
        done = 0
        for part in stream(source, encoder, space=space, workers=workers):
            append(part.names, part.values)
            skipped += part.skipped
            done += len(part.names) + len(part.skipped)
            watch(done)
        if len(skipped) == done:
            raise unreadable(skipped)
    return skipped


def read(path: Path) -> Table:
    """The embeddings in a file that `cfcl embed` wrote, or in one like it."""
    kind = _KINDS.get(path.suffix.lower())
    if kind is None or not reading.is_file(path):
        raise CfclError(f"{str(path)!r} is no file that ends in {', '.join(_KINDS)}: give one that `cfcl embed` wrote")
    try:
        return _checked(kind.read(path))
    except CfclError:
        raise
    except Exception as error:  # zip, numpy and arrow fail in many ways on damaged bytes
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise CfclError(
            f"{str(path)!r} is no file of embeddings ({reason:.160}): give one that `cfcl embed` wrote"
        ) from None


def is_table(path: Path) -> bool:
    """Whether `path` is a file of embeddings, and not one of images."""
    suffix = path.suffix.lower()
    if suffix != ".npz" or not reading.is_file(path):
        return suffix in _KINDS and suffix != ".npz"
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "embeddings.npy" in archive.namelist()


def _checked(table: Table) -> Table:
    size, dim = table.values.shape
    if size == 0 or dim == 0:
        raise ValueError("it holds no vectors")
    if len(table.names) != size:
        raise ValueError(f"it holds {len(table.names)} names for {size} vectors")
    if len(set(table.names)) < size:
        raise ValueError("a name stands there twice")
    if not bool(np.isfinite(table.values).all()):
        raise ValueError("it holds numbers that are not finite")
    return table


@contextmanager
def _writing_npz(file: IO[bytes], dim: int, encoder: str, space: Space) -> Iterator[Append]:
    # How many rows there will be is known at the end, and an array says it at its head.
    with tempfile.TemporaryFile(dir=Path(file.name).parent) as rows:
        names: list[str] = []

        def append(more: Sequence[str], values: Values) -> None:
            names.extend(more)
            rows.write(np.ascontiguousarray(values, dtype="<f4").data)

        yield append
        rows.seek(0)
        width = max(map(len, names), default=1)  # an array has room for the longest with every name
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            with _member(archive, "embeddings", (len(names), dim), "<f4") as member:
                shutil.copyfileobj(rows, member, 1 << 20)
            with _member(archive, "names", (len(names),), f"<U{width}") as member:
                for start in range(0, len(names), 10_000):
                    member.write(np.array(names[start : start + 10_000], f"<U{width}").tobytes())
            for key, text in (("encoder", encoder), ("space", space)):
                with _member(archive, key, (), f"<U{len(text)}") as member:
                    member.write(np.array(text).tobytes())


@contextmanager
def _member(archive: zipfile.ZipFile, key: str, shape: tuple[int, ...], kind: str) -> Iterator[IO[bytes]]:
    # A fixed date, so that the same embeddings are the same bytes.
    with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
        member.write(header.getvalue())
        yield member


def _read_npz(path: Path) -> Table:
    most = reading.memory()
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if most is not None and 2 * size > most:
        raise ValueError(f"it unpacks to {size:,} bytes, more than half of this machine's memory")
    with np.load(path, allow_pickle=False) as arrays:
        values, names = arrays["embeddings"], arrays["names"]
        encoder, space = (str(arrays[key]) if key in arrays else None for key in ("encoder", "space"))
    if values.ndim != 2 or values.dtype.kind != "f" or names.ndim != 1 or names.dtype.kind != "U":
        raise ValueError("`embeddings` are rows of floats, and `names` are text")
    return _table(names.tolist(), values, encoder, space)


@contextmanager
def _writing_csv(file: IO[bytes], dim: int, encoder: str, space: Space) -> Iterator[Append]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", *(f"{space[0]}{place}" for place in range(dim))])

    def append(names: Sequence[str], values: Values) -> None:
        # Nine digits are enough to tell any two floats apart.
        writer.writerows([name, *(f"{value:.9g}" for value in row)] for name, row in zip(names, values, strict=True))

    yield append
    text.flush()
    text.detach()


def _read_csv(path: Path) -> Table:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        head = next(rows, [])
        if not head or head[0] != "name":
            raise ValueError("its first line does not begin with `name`")
        names: list[str] = []
        values: list[NDArray[np.float32]] = []
        for number, row in enumerate(rows, start=2):
            if len(row) != len(head):
                raise ValueError(f"line {number} has {len(row)} entries, and the first one {len(head)}")
            names.append(row[0])
            values.append(np.array(row[1:], dtype=np.float32))
    spaces: dict[str, Space] = {"e": "embedding", "f": "features"}
    return _table(names, np.array(values).reshape(len(names), len(head) - 1), None, spaces.get(head[-1][:1]))


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise CfclError(
            "parquet files need pyarrow, which is not installed: pip install 'cfcl[parquet]', or choose .npz or .csv"
        ) from None


@contextmanager
def _writing_parquet(file: IO[bytes], dim: int, encoder: str, space: Space) -> Iterator[Append]:
    arrow, parquet = _arrow()
    schema = arrow.schema(
        [("name", arrow.string()), ("embedding", arrow.list_(arrow.float32(), dim))],
        metadata={"cfcl.encoder": encoder, "cfcl.space": space},
    )
    with parquet.ParquetWriter(file, schema) as writer:

        def append(names: Sequence[str], values: Values) -> None:
            flat = arrow.array(values.reshape(-1), arrow.float32())
            column = arrow.FixedSizeListArray.from_arrays(flat, dim)
            writer.write_table(
                arrow.Table.from_arrays([arrow.array(list(names), arrow.string()), column], schema=schema)
            )

        yield append


def _read_parquet(path: Path) -> Table:
    _, parquet = _arrow()
    found = parquet.read_table(path)
    told = {key.decode(): value.decode() for key, value in (found.schema.metadata or {}).items()}
    values = np.array(found["embedding"].to_pylist(), dtype=np.float32)
    return _table(found["name"].to_pylist(), values, told.get("cfcl.encoder"), told.get("cfcl.space"))


def _table(names: Sequence[str], values: NDArray[Any], encoder: str | None, space: str | None) -> Table:
    known: Space | None = "features" if space == "features" else "embedding" if space == "embedding" else None
    return Table(tuple(map(str, names)), np.asarray(values, dtype=np.float32), encoder, known)


@dataclass(frozen=True)
class _Kind:
    """How one kind of file is written and read."""

    writing: Callable[[IO[bytes], int, str, Space], AbstractContextManager[Append]]
    read: Callable[[Path], Table]


_KINDS = {
    ".npz": _Kind(_writing_npz, _read_npz),
    ".csv": _Kind(_writing_csv, _read_csv),
    ".parquet": _Kind(_writing_parquet, _read_parquet),
}
