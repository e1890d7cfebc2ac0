"""What the README shows works as it stands: its Python and its shell lines."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from PIL import Image
from torch.distributed.run import parse_args
from typer.testing import CliRunner, Result

from cfcl import config as configs
from cfcl.cli import app
from cfcl.data import catalogue
from cfcl.exchange import policies
from cfcl.runs import forecast, suites
from tests.conftest import small

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = dict(re.findall(r"<!-- test: (\w+) -->\n```python\n(.*?)```", README, flags=re.DOTALL))


def test_the_readme_has_its_examples() -> None:
    assert set(BLOCKS) == {"api", "own", "policy"}


def test_the_api_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS["api"], "README.md", "exec"), {})
    accuracy, shape = capsys.readouterr().out.splitlines()
    assert 0.5 < float(accuracy.split()[0]) <= 1.0
    assert shape == "torch.Size([1, 32])"


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
    named = re.findall(r"\b([a-z_]+(?:\.py|\.md|/))", README.partition("## Map")[2])
    places = {path.name for path in ROOT.rglob("*") if ".venv" not in path.parts}
    missing = [name for name in named if name.rstrip("/") not in places]
    assert missing == []


# Shell lines


def shell_lines() -> list[str]:
    """The commands in the README, one per line, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    joined = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.join(words) for words in (shlex.split(line, comments=True) for line in joined) if words]


LINES = shell_lines()
COMMANDS = [line.partition(" -m ")[2] or line for line in LINES if not line.startswith("make ")]
CUT = {
    "run": ["--set", "train.steps=2", "--workers", "1"],
    "compare": ["--set", "train.steps=2", "--set", "evaluation.max_train=100", "--seeds", "0", "--workers", "1"],
}
SHORT = [line for line in COMMANDS if re.match("cfcl (run|compare|config|presets|report|data list)", line)
         and not re.search("usps|fashion-mnist|num_devices=1000|--dry-run", line)]  # fmt: skip


def words_of(line: str) -> list[str]:
    """What follows `cfcl`, up to where output is redirected."""
    name, *words = shlex.split(line)
    assert name == "cfcl", line
    return words[: words.index(">")] if ">" in words else words


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` name, and the arguments that are left for it."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def takes_dry_run(line: str) -> bool:
    return any("--dry-run" in option.opts for option in command_of(words_of(line))[0].params)


def invoke(words: list[str]) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result


def needs_data(words: list[str]) -> None:
    wanted = {"usps", "fashion-mnist"} if {"quick", "full"} & set(words) else set(words) & set(catalogue.SETS)
    for name in wanted:
        if catalogue.locate(catalogue.find_set(name), None) is None:
            pytest.skip(f"{name} is not on this machine: `cfcl data fetch {name}` gets it")


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the lines take for granted: photos of four devices, a config and a run."""
    folder = tmp_path_factory.mktemp("supplies")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 70, 20, 20, 3), dtype=np.uint8)
    for device, images in enumerate(pixels):
        (folder / "photos" / f"phone-{device}").mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / "photos" / f"phone-{device}" / f"{number}.png")
    (folder / "mine.toml").write_text(configs.to_toml(configs.load("digits"), explain=True))
    suites.simulate(small("train.steps=2"), out=folder / "runs", workers=1, plotted=False)
    return folder


def test_the_readme_has_shell_lines() -> None:
    assert len(LINES) >= 20
    assert all(line.startswith(("cfcl ", "make ", "torchrun ")) for line in LINES)
    assert len(SHORT) >= 8


@pytest.mark.parametrize("line", COMMANDS)
def test_a_shell_line_parses(line: str) -> None:
    command, words = command_of(words_of(line))
    command.make_context(command.name, words)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_a_make_line_names_a_target(line: str) -> None:
    _, target = shlex.split(line)
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("torchrun ")])
def test_a_torchrun_line_starts_the_command_as_a_module(line: str) -> None:
    found = parse_args(shlex.split(line)[1:])  # type: ignore[no-untyped-call]
    assert (found.module, found.training_script) == (True, "cfcl")


@pytest.mark.parametrize("line", [line for line in COMMANDS if takes_dry_run(line)])
def test_a_shell_line_passes_a_dry_run(line: str, supplies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(line)
    needs_data(words)
    monkeypatch.chdir(supplies)
    monkeypatch.setattr(forecast, "TIMED_SECONDS", 0.0)
    before = sorted(supplies.rglob("*"))
    result = invoke([*words, "--dry-run"])
    assert "Plan" in result.stdout
    assert "no effect" not in result.stderr
    assert sorted(supplies.rglob("*")) == before


@pytest.mark.parametrize("line", SHORT)
def test_a_short_shell_line_runs_with_its_steps_cut(
    line: str, supplies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_of(line)
    for item in supplies.iterdir():
        (tmp_path / item.name).symlink_to(item)
    if words[0] in CUT:
        (tmp_path / "runs").unlink()
    monkeypatch.chdir(tmp_path)
    result = invoke([*words, *CUT.get(words[0], [])])
    assert result.stdout
    if words[0] == "config":
        assert result.stdout == (tmp_path / "mine.toml").read_text()
    if words[0] in CUT:
        assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.real_data
@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith(("cfcl data fetch", "cfcl data show"))])
def test_a_line_about_published_data_runs_where_they_are(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_of(line)
    entry = catalogue.find_set(words[2])
    folder = catalogue.locate(entry, None)
    if folder is None or (words[1] == "fetch" and catalogue.altered(entry, folder)):
        pytest.skip(f"{entry.name} is not on this machine as published, and a test fetches nothing")
    monkeypatch.chdir(tmp_path)
    invoke([*words, "--data-dir", str(folder.parent)])
