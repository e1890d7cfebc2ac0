"""Get the files of a published set: resumed where a download broke off, checked, and never half there."""

import hashlib
import http.client
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib import error as url_errors
from urllib import request

from cfcl.data.catalogue import File, ImageSet
from cfcl.data.notes import note
from cfcl.errors import CfclError

try:
    import fcntl
except ImportError:  # Windows does without the lock
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are here, and the bytes in all."""

CHUNK = 1 << 16


@dataclass(frozen=True)
class Patience:
    """When to give up."""

    timeout: float = 30.0
    """Seconds without a byte that count as a stall."""
    num_tries: int = 5
    """Connections for one file."""
    pause: float = 1.0
    """Seconds before the second try; each further pause is twice as long."""


class _BrokenError(Exception):
    """The connection failed in a way that another try may fix."""


def fetch(
    entry: ImageSet,
    into: Path,
    *,
    progress: Progress = lambda name, done, total: None,
    patience: Patience = Patience(),  # noqa: B008, frozen
) -> list[str]:
    """Put the files of `entry` into `into`; returns the names of those that were not there yet."""
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(into, error) from None
    if not _missing(entry, into):
        return []
    with _alone(into):
        wanted = _missing(entry, into)  # another process may just have fetched them
        for file in wanted:
            _fetch_file(entry.base_url + file.name, file, into / file.name, progress, patience)
    return [file.name for file in wanted]


def _missing(entry: ImageSet, folder: Path) -> list[File]:
    return [file for file in entry.files if _md5(folder / file.name) != file.md5]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other processes from fetching into `folder`; waits for one that is at it."""
    if fcntl is None:
        yield
        return
    path = folder / ".lock"
    while True:
        with _open(path, "ab") as lock:
            _wait_for(lock, folder)
            # Whoever held the lock has removed the file: only the one that is there now counts.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _wait_for(lock: IO[bytes], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(f"another process is fetching into {folder}: waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise _cannot_write(folder, error) from None


def _fetch_file(url: str, file: File, target: Path, progress: Progress, patience: Patience) -> None:
    part = target.with_name(target.name + ".part")
    for attempt in range(1, patience.num_tries + 1):
        try:
            _continue(url, file, part, progress, patience.timeout)
            break
        except _BrokenError as broken:
            if attempt == patience.num_tries:
                kept = f"; it resumes after the {part.stat().st_size:,} bytes that are here" if part.exists() else ""
                raise CfclError(
                    f"{url} could not be downloaded in {attempt} tries ({broken}): check the connection and repeat the "
                    f"command{kept}"
                ) from None
            time.sleep(patience.pause * 2 ** (attempt - 1))
    _accept(url, file, part, target)


def _continue(url: str, file: File, part: Path, progress: Progress, timeout: float) -> None:
    """Append to `part` what it lacks, or start over where the server cannot continue."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "cfcl", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with request.urlopen(request.Request(url, headers=headers), timeout=timeout) as response:
            begin = have if _continues(response, have) else 0
            declared = response.headers.get("Content-Length")
            total = begin + int(declared) if declared else file.num_bytes
            _check_size(url, file, part, total)
            with _open(part, "ab" if begin else "wb") as out:
                for done in _copied(response, out, begin):
                    _check_size(url, file, part, done)
                    progress(file.name, done, total)
    except url_errors.HTTPError as error:
        error.close()
        _judge(url, file, part, error.code)
        return
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _BrokenError(_reason(error)) from None
    here = part.stat().st_size
    if declared and here < total:
        raise _BrokenError(f"it broke off after {here:,} of {total:,} bytes")


def _continues(response: http.client.HTTPResponse, have: int) -> bool:
    return response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _check_size(url: str, file: File, part: Path, size: int) -> None:
    if size > file.num_bytes:
        part.unlink(missing_ok=True)
        raise CfclError(
            f"{url} offers {size:,} bytes or more, but the published file has {file.num_bytes:,}; nothing is kept: try "
            f"later, or get {file.name} elsewhere and put it into {part.parent}"
        )


def _copied(response: http.client.HTTPResponse, out: IO[bytes], done: int) -> Iterator[int]:
    """Write what arrives; yields how many bytes there are after each portion."""
    while chunk := response.read1(CHUNK):
        try:
            out.write(chunk)
            out.flush()
        except OSError as error:
            raise _cannot_write(Path(out.name), error) from None
        done += len(chunk)
        yield done


def _judge(url: str, file: File, part: Path, status: int) -> None:
    """What an HTTP error means: nothing left to send, a passing trouble, or the end."""
    if status == 416 and part.exists():
        if _md5(part) == file.md5:
            return
        part.unlink()
        raise _BrokenError("the part that was here did not fit")
    if status >= 500 or status in (408, 416, 429):
        raise _BrokenError(f"HTTP {status}")
    raise CfclError(
        f"{url} answers HTTP {status}, but must offer the file: try later, or get {file.name} elsewhere and put it "
        f"into {part.parent}"
    )


def _accept(url: str, file: File, part: Path, target: Path) -> None:
    found, size = _md5(part), part.stat().st_size
    if found != file.md5:
        part.unlink()
        raise CfclError(
            f"{url} sent {size:,} bytes with MD5 {found}, but the published file has {file.num_bytes:,} bytes and MD5 "
            f"{file.md5}; they were removed: try again, or get {file.name} elsewhere and put it into {target.parent}"
        )
    try:
        part.replace(target)
    except OSError as error:
        raise _cannot_write(target, error) from None


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _md5(path: Path) -> str | None:
    """The MD5 sum of a file if there is one; never from memory, for here it decides."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _cannot_write(path: Path, error: OSError) -> CfclError:
    return CfclError(f"cannot write {path}: {error.strerror}; make room there or choose another --data-dir")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return (str(reason).splitlines() or [type(error).__name__])[0] or type(error).__name__
