"""What commands print: names of files and other people's words are shown, never obeyed."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from cfcl.cli import app, commands
from cfcl.cli.terminal import complaints, note, user_errors
from cfcl.data import notes
from cfcl.errors import CfclError
from cfcl.runs import plots, report, suites
from cfcl.shown import Terminal
from tests.cli.test_commands import SETS, invoke

ODD = "runs[old][/x] :warning:\x1b[31m\n\u202e\udcff"
SHOWN = r"runs[old][/x] :warning:\x1b[31m\n\u202e\udcff"
ROOT = Path(__file__).parents[2]


def test_a_run_and_its_report_may_lie_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "draw_run", lambda run, folder: None)
    monkeypatch.setattr(report, "render", lambda runs, unfinished: "page")
    ran = invoke("run", "digits", *SETS, "--set", "train.steps=2", "--workers", "1", "--out", ODD)
    told = invoke("report", ODD, "--out", f"{ODD}.html")

    assert (ran.exit_code, told.exit_code) == (0, 0), ran.output + told.output
    (folder,) = (tmp_path / ODD).iterdir()
    assert ran.stdout.splitlines()[-1] == f"Run folder: {SHOWN}/{folder.name}"
    assert told.stdout == f"Report: {SHOWN}.html\n"
    assert (tmp_path / f"{ODD}.html").is_file()
    assert (ran.stdout + told.stdout).replace("\n", "").isprintable()


def test_records_as_json_lines_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "simulate", lambda *_, **__: SimpleNamespace(folder=Path(ODD)))

    (line,) = invoke("run", "digits", "--json").stdout.splitlines()

    assert line.isprintable()
    assert json.loads(line)["folder"] == ODD


def test_notes_and_complaints_are_one_line_of_words(capsys: pytest.CaptureFixture[str]) -> None:
    note(ODD)
    notes.note(ODD)
    complaints.print(f"failed: {ODD}")
    with pytest.raises(typer.Exit), user_errors():
        raise CfclError(ODD)
    assert capsys.readouterr().err == f"note: {SHOWN}\nnote: {SHOWN}\nfailed: {SHOWN}\nerror: {SHOWN}\n"


def test_the_names_of_presets_are_bold_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Ten devices with three digits each; offline, about a minute on two cores: the default."
    assert invoke("presets").output.splitlines()[0] == f"digits               {line}"
    monkeypatch.setattr(commands, "console", Terminal(force_terminal=True, color_system="standard"))
    assert invoke("presets").output.splitlines()[0] == f"\x1b[1mdigits              \x1b[0m {line}"


def options() -> dict[str, set[str]]:
    """The options of every command by its words, such as `data fetch`."""
    found: dict[str, set[str]] = {}
    todo = [("", typer.main.get_command(app))]
    for name, item in todo:
        found[name] = {"--help"} | {
            option for parameter in item.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        todo += [(f"{name} {word}".strip(), inner) for word, inner in getattr(item, "commands", {}).items()]
    return found


HINT = re.compile(r"(?:`|^ *)cfcl (\w[^`#\n]*)", flags=re.MULTILINE)
"""In a message or a text between backticks, in a block of commands at the start of a line."""


def test_hints_name_commands_and_options_that_exist() -> None:
    known, checked = options(), 0
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for file in texts:
        for hint in HINT.findall(file.read_text(encoding="utf-8")):
            words = hint.split()
            name = next((name for name in (" ".join(words[:2]), words[0]) if name in known), None)
            assert name is not None, f"{file.name}: `cfcl {hint}`"
            unknown = {word for word in words if word.startswith("--")} - known[name]
            assert not unknown, f"{file.name}: `cfcl {hint}`"
            checked += 1
    assert checked > 60
