"""Tests that need minutes, rights or programs; each skips with the reason where they are not there."""

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FILES = ("card.md", "config.toml", "metrics.jsonl", "costs.json", "encoder.safetensors")
SETTINGS = (
    "train.steps=200",
    "train.batch_size=16",
    "aggregation.period=5",
    "exchange.period=7",
    "exchange.num_pulled=2",
    "evaluation.every=8",
    "evaluation.log_every=1",
    "checkpoint.every=10",
)


def run_words(out: Path, *overrides: str) -> list[str]:
    """The command line of a run of seconds."""
    words = [word for item in (*SETTINGS, *overrides) for word in ("--set", item)]
    return ["run", "digits-study", *words, "--out", str(out), "--json"]


def cfcl(*words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """The command, as a user calls it."""
    return subprocess.run(
        [sys.executable, "-m", "cfcl", *words], capture_output=True, text=True, timeout=timeout, check=False
    )


def seen(text: str, folder: Path, width: int, script: str = "") -> dict[str, Any]:
    """What a script has written into `data-seen` of the outer page, with the page `text` in a frame of this width.

    A window of less than 500 pixels is made wider, but a frame is as wide as it says. The `script` is the outer page's.
    """
    frame = f'<iframe srcdoc="{html.escape(text)}" style="border: 0; width: {width}px; height: 900px"></iframe>'
    outer = folder / "frame.html"
    outer.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body style="margin: 0">{frame}{script}', encoding="utf-8")
    found = dom(outer)
    written = re.search(r'data-seen="([^"]*)"', found)
    assert written, found[-3000:]
    read: dict[str, Any] = json.loads(html.unescape(written[1]))
    return read


def dom(page: Path) -> str:
    """A page after its scripts have run."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'profile'}"]
    options += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--window-size=1280,900", "--virtual-time-budget=10000", "--dump-dom"]
    words = [BROWSER, *options, page.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout


def files(folder: Path) -> dict[str, bytes]:
    """What depends on nothing but the config."""
    return {name: (folder / name).read_bytes() for name in FILES}


def one_line(result: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """It has ended with `code` and one line that has all `parts` in it."""
    assert result.returncode == code, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for part in parts:
        assert part in result.stderr


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole")
    result = cfcl(*run_words(out), "--workers", "1")
    assert result.returncode == 0, result.stderr
    (folder,) = out.iterdir()
    return files(folder)
