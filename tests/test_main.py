"""The command around the commands: how it begins, and how it is interrupted."""

import importlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfcl import __main__, cli
from cfcl.sim import allocator


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of a command stays in the process of the tests."""
    monkeypatch.setattr(allocator, "keep_memory", lambda: True)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interruption_waits_for_the_import_that_it_falls_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "interrupted_module.py").write_text("import signal; signal.raise_signal(signal.SIGINT); whole = True")
    monkeypatch.syspath_prepend(tmp_path)
    whole: list[bool] = []

    def main() -> None:
        whole.append(importlib.import_module("interrupted_module").whole)
        time.sleep(10)

    monkeypatch.setattr(cli, "main", main)
    with pytest.raises(SystemExit) as caught:
        __main__.main()
    assert caught.value.code == 130
    assert whole == [True]
    assert capsys.readouterr().err == "interrupted\n"


def test_a_process_that_is_not_to_be_interrupted_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(cli, "main", lambda: signal.raise_signal(signal.SIGINT))
    __main__.main()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_the_command_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(allocator, "keep_memory", lambda: kept.append(True))
    monkeypatch.setattr(cli, "main", lambda: None)
    __main__.main()
    assert kept == [True]
