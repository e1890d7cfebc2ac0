import hashlib
import http.server
import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfcl.data import catalogue
from cfcl.data.catalogue import File, ImageSet
from cfcl.data.fetch import Patience, fetch
from cfcl.errors import CfclError

BODY = np.random.default_rng(0).bytes(200_000)
OTHER = b"small"
HASTY = Patience(timeout=0.3, num_tries=3, pause=0.01)


class Server(http.server.ThreadingHTTPServer):
    """Serves two files, and misbehaves as each request's turn in `moods` says; then well."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.moods: list[str] = []
        self.requests: list[tuple[str, str | None]] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        mood = self.server.moods.pop(0) if self.server.moods else "well"
        if mood.isdigit():
            self.send_error(int(mood))
            return
        body = BODY if self.path == "/big" else OTHER
        start = 0
        if wanted is not None and mood != "no range":
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if mood not in ("no length", "endless"):
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self._send(mood, body[start:])

    def _send(self, mood: str, body: bytes) -> None:
        if mood == "hold":
            self.server.released.wait(5)
        if mood == "endless":
            body += bytes(300_000)
        if mood == "corrupt":
            body = body[:-1] + bytes((body[-1] ^ 1,))
        if mood in ("cut", "stall"):
            body = body[: len(body) // 2]
        self.wfile.write(body)
        self.wfile.flush()
        if mood == "stall":
            self.server.released.wait(5)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def entry_at(url: str) -> ImageSet:
    files = [File(name, len(body), hashlib.md5(body).hexdigest()) for name, body in (("big", BODY), ("small", OTHER))]
    return replace(catalogue.SETS["usps"], base_url=url, train=(files[0],), test=(files[1],))


def check_whole(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["big", "small"]
    assert (folder / "big").read_bytes() == BODY
    assert (folder / "small").read_bytes() == OTHER


def test_files_arrive_whole_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []

    fetched = fetch(entry_at(server.url), tmp_path / "new", progress=lambda *step: seen.append(step), patience=HASTY)

    assert fetched == ["big", "small"]
    check_whole(tmp_path / "new")
    assert ("big", 200_000, 200_000) in seen
    assert seen[-1] == ("small", 5, 5)
    assert [done for name, done, _ in seen if name == "big"] == sorted(
        {done for name, done, _ in seen if name == "big"}
    )


def test_good_files_are_not_fetched_again_and_bad_ones_are(server: Server, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BODY)
    (tmp_path / "small").write_bytes(b"smell")
    assert fetch(entry_at(server.url), tmp_path, patience=HASTY) == ["small"]
    assert server.requests == [("/small", None)]
    check_whole(tmp_path)


# What the server does in turn to requests for the first file, and the Range of each request.
TROUBLES: dict[str, tuple[list[str], list[str | None]]] = {
    "cut once": (["cut"], [None, "bytes=100000-"]),
    "cut twice": (["cut", "cut"], [None, "bytes=100000-", "bytes=150000-"]),
    "stalls": (["stall"], [None, "bytes=100000-"]),
    "cut, then no range": (["cut", "no range"], [None, "bytes=100000-"]),
    "busy": (["503", "429"], [None, None, None]),
    "no length": (["no length"], [None]),
    "cut, then gone too far": (["cut", "416"], [None, "bytes=100000-", None]),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_passing_trouble_is_overcome(server: Server, tmp_path: Path, trouble: str) -> None:
    server.moods, ranges = TROUBLES[trouble]
    fetch(entry_at(server.url), tmp_path, patience=HASTY)
    check_whole(tmp_path)
    assert [wanted for path, wanted in server.requests if path == "/big"] == ranges


def test_the_next_command_goes_on_where_the_last_one_stopped(server: Server, tmp_path: Path) -> None:
    server.moods = ["cut", "cut", "cut"]
    # 200,000 halved three times leaves 25,000 to come
    with pytest.raises(CfclError, match=r"big could not be downloaded in 3 tries .*broke off after 175,000 of 200,000"):
        fetch(entry_at(server.url), tmp_path, patience=HASTY)
    assert [path.name for path in tmp_path.iterdir()] == ["big.part"]
    fetch(entry_at(server.url), tmp_path, patience=HASTY)
    assert ("/big", "bytes=175000-") in server.requests
    check_whole(tmp_path)


def test_a_part_that_is_complete_is_taken_as_it_is(server: Server, tmp_path: Path) -> None:
    (tmp_path / "big.part").write_bytes(BODY)
    fetch(entry_at(server.url), tmp_path, patience=HASTY)
    assert [wanted for path, wanted in server.requests if path == "/big"] == ["bytes=200000-"]
    check_whole(tmp_path)


def test_a_part_that_is_too_long_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "big.part").write_bytes(BODY + b"more")
    fetch(entry_at(server.url), tmp_path, patience=HASTY)
    check_whole(tmp_path)


def test_a_server_that_comes_back_elsewhere_in_time_is_resumed(tmp_path: Path) -> None:
    with serving() as first:
        first.moods = ["cut"]
        with pytest.raises(CfclError, match="100,000 bytes that are here"):
            fetch(entry_at(first.url), tmp_path, patience=replace(HASTY, num_tries=1))
    with serving() as second:
        fetch(entry_at(second.url), tmp_path, patience=HASTY)
        assert second.requests[0] == ("/big", "bytes=100000-")
    check_whole(tmp_path)


def test_a_wrong_checksum_removes_the_file_and_keeps_the_old_one(server: Server, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"an older copy")
    server.moods = ["corrupt"]
    with pytest.raises(CfclError) as caught:
        fetch(entry_at(server.url), tmp_path, patience=HASTY)
    line = str(caught.value)
    assert re.search(
        r"/big sent 200,000 bytes with MD5 \w{32}, but the published file has 200,000 bytes and MD5 ", line
    )
    assert "try again, or get big elsewhere" in line
    assert [path.name for path in tmp_path.iterdir()] == ["big"]
    assert (tmp_path / "big").read_bytes() == b"an older copy"


def test_two_at_once_fetch_a_file_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.moods = ["hold"]
    waiting = threading.Event()
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)
        waiting.set()

    monkeypatch.setattr("cfcl.data.fetch.note", note)
    entry, patience = entry_at(server.url), replace(HASTY, timeout=5)
    with ThreadPoolExecutor() as pool:
        results = [pool.submit(fetch, entry, tmp_path, patience=patience) for _ in range(2)]
        assert waiting.wait(5)
        server.released.set()
        assert sorted(result.result() for result in results) == [[], ["big", "small"]]
    assert [path for path, _ in server.requests] == ["/big", "/small"]
    assert told == [f"another process is fetching into {tmp_path}: waiting for it"]
    check_whole(tmp_path)


def test_whoever_breaks_off_lets_the_next_one_resume(server: Server, tmp_path: Path) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(entry_at(server.url), tmp_path, progress=interrupt, patience=HASTY)
    assert [path.name for path in tmp_path.iterdir()] == ["big.part"]
    fetch(entry_at(server.url), tmp_path, patience=HASTY)
    assert re.fullmatch(r"bytes=[1-9]\d*-", server.requests[1][1] or "")
    check_whole(tmp_path)


def test_files_that_are_here_need_no_lock(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(entry_at(server.url), tmp_path, patience=HASTY)
    monkeypatch.setattr("cfcl.data.fetch._alone", None)
    assert fetch(entry_at(server.url), tmp_path, patience=HASTY) == []


@pytest.mark.parametrize("mood", ["endless", "longer"])
def test_no_more_than_the_published_bytes_are_taken(server: Server, tmp_path: Path, mood: str) -> None:
    server.moods = [mood]
    entry = entry_at(server.url)
    if mood == "longer":  # the server says at once that it has more
        entry = replace(entry, train=(replace(entry.train[0], num_bytes=199_999),))
    taken: list[int] = []
    with pytest.raises(
        CfclError, match=r"/big offers 2\d\d,\d{3} bytes or more, but the published file has \d{3},\d{3}; "
    ):
        fetch(entry, tmp_path, progress=lambda name, done, total: taken.append(done), patience=HASTY)
    assert len(server.requests) == 1
    assert max(taken, default=0) <= (200_000 if mood == "endless" else 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", ["404", "403"])
def test_a_refusal_is_final(server: Server, tmp_path: Path, status: str) -> None:
    server.moods = [status]
    with pytest.raises(CfclError, match=rf"/big answers HTTP {status}, but must offer the file: try later, or get big"):
        fetch(entry_at(server.url), tmp_path, patience=HASTY)
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("mood", "reason"), [("500", "HTTP 500"), ("stall", "timed out")])
def test_a_lasting_trouble_ends_after_some_tries(server: Server, tmp_path: Path, mood: str, reason: str) -> None:
    server.moods = [mood] * 3
    with pytest.raises(CfclError, match=rf"in 3 tries \({reason}\): check the connection and repeat the command"):
        fetch(entry_at(server.url), tmp_path, patience=HASTY)
    assert len(server.requests) == 3


def test_nobody_there_gets_one_line(tmp_path: Path) -> None:
    with serving() as gone:
        url = gone.url
    with pytest.raises(CfclError, match="Connection refused") as caught:
        fetch(entry_at(url), tmp_path, patience=HASTY)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_gets_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CfclError, match=r"cannot write .*: Not a directory; make room there or choose another --data"):
        fetch(entry_at(server.url), tmp_path / "file" / "usps", patience=HASTY)
    assert server.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists() or os.name != "posix", reason="needs /dev/full")
def test_a_full_disk_gets_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "big.part").symlink_to("/dev/full")
    with pytest.raises(CfclError, match=r"cannot write .*big\.part: No space left on device; make room"):
        fetch(entry_at(server.url), tmp_path, patience=HASTY)
