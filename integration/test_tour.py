"""The tour of docs/use.md, word for word: every command, in a folder of its own, offline."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

DOC = Path(__file__).parents[1] / "docs" / "use.md"
SECONDS = 300
"""How long the whole tour may take on two cores."""


def test_the_tour_runs_as_it_stands(tmp_path: Path) -> None:
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", DOC.read_text(), flags=re.DOTALL | re.MULTILINE))
    assert {"run", "data", "embed", "neighbours", "map", "classify", "export", "card"} == set(
        re.findall(r"^cfcl (\w+)", lines, flags=re.MULTILINE)
    )
    places = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
    words = ["bash", "-euo", "pipefail", "-c", lines]
    begun = time.monotonic()
    result = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, **places}, capture_output=True, text=True, timeout=900, check=False
    )
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - begun < SECONDS

    with np.load(tmp_path / "photos.npz") as found:
        assert found["embeddings"].shape == (359, 32)
    rows = dict(line.split(",")[:2] for line in (tmp_path / "sorted.csv").read_text().splitlines()[1:])
    truth = dict(line.split(",") for line in (tmp_path / "photos" / "labels.csv").read_text().splitlines()[1:])
    assert len(rows) == 359 - 40
    assert sum(truth[name] == label for name, label in rows.items()) > 0.85 * len(rows)
    for name in ("neighbours.png", "sorted-next.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 90
    for name in ("neighbours.html", "map.html"):
        assert "<html" in (tmp_path / name).read_text()[:200]
    assert (tmp_path / "encoder.onnx").stat().st_size > 200_000
    assert "What is not known" in result.stdout
