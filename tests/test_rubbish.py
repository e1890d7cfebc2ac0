"""A little rubbish for every reader, and proof that what reads it badly would be noticed."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cfcl.errors import CfclError

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KINDS = ["commands", "configs", "messages", "tables", "records", "studies", "checkpoints", "encoders"]
KINDS += ["images", "embeddings"]


def test_a_little_of_the_rubbish_is_refused_or_handled() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "rubbish.py", "--scale", "0.003"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == KINDS
    assert [line[-2:] for line in lines] == [["bad", "0"]] * len(KINDS)
    assert [int(line[1]) for line in lines] == [2, *[45] * (len(KINDS) - 1)]


def _raise(error: BaseException) -> None:
    raise error


BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: None, "taken"),
    (lambda folder: _raise(CfclError("one line")), "refused"),
    (lambda folder: _raise(CfclError("")), "not one line"),
    (lambda folder: _raise(KeyError("x")), "KeyError at test_rubbish.py"),
    (lambda folder: _raise(AssertionError()), "AssertionError at test_rubbish.py"),
    (lambda folder: _raise(SystemExit(2)), "SystemExit at test_rubbish.py"),
    (lambda folder: time.sleep(1), "takes over 0.1 seconds"),
    (lambda folder: (folder / "x").write_text("spoilt"), "changed what it was to read"),
]


@pytest.mark.parametrize(("read", "complaint"), BAD, ids=[row[1] for row in BAD])
def test_what_reads_badly_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read: Callable[[Path], object], complaint: str
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    rubbish: Any = pytest.importorskip("rubbish")
    monkeypatch.setattr(rubbish, "SECONDS", 0.1)

    def valid(rng: Random) -> dict[str, bytes]:
        return {"x": rng.randbytes(40)}

    kind = rubbish.Kind("made", valid, lambda folder, rng: read(folder))
    assert rubbish.one(kind, 0, 1, tmp_path / "given").startswith(complaint)


@pytest.mark.parametrize(
    ("words", "code", "said", "changed", "complaint"),
    [
        (["run"], 0, "", True, "taken"),
        (["run"], 2, "note: x\nerror: y\n", False, "refused"),
        (["run"], 2, "error: y\n", True, "wrote something"),
        (["run"], 2, "error: y\nmore\n", False, "ends with code 2 and 2 lines"),
        (["run"], 1, "error: y\n", False, "ends with code 1 and 1 lines"),
        (["run"], 1, "Traceback (most recent call last)\nKeyError: 1\n", False, "traceback: KeyError: 1"),
        (["run"], 3, "error: y\n", False, "ends with code 3"),
        (["resume"], 3, "error: y\n", True, "refused"),
        (["resume"], 3, "error: y\nmore\n", True, "ends with code 3 and 2 lines"),
        (["resume"], 2, "error: y\n", True, "wrote something"),
        (["run"], -9, "", False, "ends with code -9"),
        (["run"], None, "", False, "takes over"),
    ],
)
def test_a_command_that_ends_badly_is_noticed(
    monkeypatch: pytest.MonkeyPatch, words: list[str], code: int | None, said: str, changed: bool, complaint: str
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    rubbish: Any = pytest.importorskip("rubbish")
    assert rubbish.ended(words, code, said, changed).startswith(complaint)


@pytest.mark.parametrize(
    "code",
    [
        "os.system('true')",
        "subprocess.run(['true'])",
        "pickle.loads(pickle.dumps(os.getcwd))",
        "eval('# canary-of-rubbish\\n1')",
    ],
)
def test_what_is_executed_is_noticed(code: str) -> None:
    program = (
        f"import os, pickle, subprocess, spoiling; found = []; spoiling.watch(found); {code}; print(len(found) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
