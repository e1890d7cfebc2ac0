"""The README's Python runs as it stands."""

import re
from pathlib import Path

import pytest

from cfcl.exchange import policies

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = dict(re.findall(r"<!-- test: (\w+) -->\n```python\n(.*?)```", README, flags=re.DOTALL))


def test_the_readme_has_its_examples() -> None:
    assert set(BLOCKS) == {"api", "own", "policy"}


def test_the_api_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS["api"], "README.md", "exec"), {})
    accuracy, shape = capsys.readouterr().out.splitlines()
    assert 0.5 < float(accuracy.split()[0]) <= 1.0
    assert shape == "torch.Size([1, 16])"


def test_metrics_are_a_table_for_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(compile(BLOCKS["api"].replace("train.steps=60", "train.steps=10"), "README.md", "exec"), scope)
    table = pandas.DataFrame(scope["curve"])
    assert list(table["step"]) == [0, 10]
    assert {"probe", "knn", "bytes_push", "seconds"} <= set(table.columns)


def test_the_example_of_own_data_and_encoder(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS["own"], "README.md", "exec"), {})
    rank, shape = capsys.readouterr().out.split(maxsplit=1)
    assert 1.0 <= float(rank) <= 8.0
    assert shape.strip() == "torch.Size([5, 8])"


def test_the_policy_example(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        exec(compile(BLOCKS["policy"], "README.md", "exec"), {})
    finally:
        policies.POLICIES.pop("far", None)
    assert "'held_labels'" in capsys.readouterr().out


def test_the_map_names_what_exists() -> None:
    root = Path(__file__).parents[1]
    named = re.findall(r"\b([a-z_]+(?:\.py|\.md|/))", README.partition("## Map")[2])
    places = {path.name for path in root.rglob("*") if ".venv" not in path.parts}
    missing = [name for name in named if name.rstrip("/") not in places]
    assert missing == []
