from pathlib import Path

import pytest
from typer.testing import CliRunner

from cfcl.cli import app
from cfcl.cli.study import MOST_SEEDS, parse_seeds
from cfcl.errors import CfclError

BAD = [
    (["nonsense"], "No such command 'nonsense': see `cfcl --help`"),
    (["data", "nonsense"], "No such command 'nonsense': see `cfcl data --help`"),
    (["--nope"], "No such option: --nope: see `cfcl --help`"),
    (["run", "--outt", "x"], "No such option: --outt (Possible options: --out): see `cfcl run --help`"),
    (["run", "a", "b"], "Got unexpected extra argument(s) (b): see `cfcl run --help`"),
    (["run", "--workers", "0"], "Invalid value for '--workers': Input should be greater than or equal to 1: see"),
    (["run", "--engine", "fast"], "Invalid value for '--engine': 'fast' is not one of 'sharded', 'loop': see"),
    (["run", "--out", "a\0b"], "Invalid value for '--out': embedded null byte: see `cfcl run --help`"),
    (["report"], "Missing argument 'runs': see `cfcl report --help`"),
    (
        ["reproduce", "fig4", "--profile", "x"],
        "'x' is not one of 'smoke', 'quick', 'full', 'registered': see `cfcl reproduce --help`",
    ),
]


@pytest.mark.parametrize(("words", "complaint"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_a_usage_error_is_one_line(words: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, words, prog_name="cfcl")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


LONG = "x" * 300
NOWHERE = [
    (["resume", LONG], "is no run folder"),
    (["resume", "."], "is no run folder"),
    (["runs", LONG], "is no folder"),
    (["report", LONG], "cannot look below"),
    (["report", "runs", "--out", LONG], "there is no finished run"),
    (["data", "show", "digits", "--out", LONG], "File name too long; choose another --out"),
    (["run", "usps", "--dry-run", "--data-dir", LONG], "is not a folder: make it"),
    (["run", "usps", "--dry-run", "--data-dir", "~nobody-of-this-name"], "is not a folder: make it"),
    (["run", "own", "--dry-run", "--set", f"data.path={LONG}"], "is not a folder of images"),
    (["run", "own", "--dry-run", "--set", "data.path=~nobody-of-this-name/x"], "is not a folder of images"),
    (["reproduce", "fig4", "--dry-run", "--out", LONG], "File name too long; choose another --out"),
    (["run", "--set", "train.steps=1", "--trace", LONG], "cannot write the trace to"),
]


@pytest.mark.parametrize(("words", "complaint"), NOWHERE, ids=[" ".join(words)[:60] for words, _ in NOWHERE])
def test_a_name_that_nothing_can_have_is_refused_in_one_line(
    words: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words, prog_name="cfcl")
    assert result.exit_code == 2, result.output
    (line,) = (line for line in result.stderr.splitlines() if not line.startswith("note: "))
    assert line.startswith("error: ")
    assert complaint in line


def test_an_option_without_its_value_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["cfcl", "run", "--set"])
    result = CliRunner().invoke(app, ["run", "--set"], prog_name="cfcl")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: Option '--set' requires an argument: see `cfcl run --help`\n",
    )


@pytest.mark.parametrize("words", [[], ["data"]])
def test_without_a_command_there_is_help(words: list[str]) -> None:
    result = CliRunner().invoke(app, words, prog_name="cfcl")
    assert (result.exit_code, result.stderr) == (2, "")
    assert "Usage: cfcl" in result.stdout


def test_seeds() -> None:
    assert parse_seeds("0,2, 4-6") == [0, 2, 4, 5, 6]
    assert len(parse_seeds(f"1-{MOST_SEEDS}")) == MOST_SEEDS


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0-9999999999", "are more than 10,000: give fewer"),
        ("0-9999,10000", "are more than 10,000: give fewer"),
        ("9" * 30, "is not a list of whole numbers"),
        ("-1", "is not a list of whole numbers"),
        ("1_0", "is not a list of whole numbers"),
        ("\u0661", "is not a list of whole numbers"),
        ("1-2-3", "is not a list of whole numbers"),
        ("0,", "is not a list of whole numbers"),
        ("5-0", "is empty or names a seed twice"),
        ("0-2,2", "is empty or names a seed twice"),
        ("," * 100_000, "is not a list of whole numbers"),
    ],
    ids=lambda text: text[:20],
)
def test_bad_seeds_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=f"--seeds .* {complaint}"):
        parse_seeds(text)
