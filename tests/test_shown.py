"""What a person is shown says what it says and does nothing else."""

import io
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress
from rich.table import Table

from cfcl.shown import Terminal, Words, command, visible

ODD = "a[old]b[/x]:warning:\x1b[31m\x9b2J\r\nerror: \u202egnp.exe\udcff\u2028"
SHOWN = r"a[old]b[/x]:warning:\x1b[31m\x9b2J\r\nerror: \u202egnp.exe\udcff\u2028"


def terminal(**options: object) -> Terminal:
    return Terminal(file=io.StringIO(), width=200, **options)


def printed(screen: Terminal) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_what_is_not_printable_is_shown_escaped() -> None:
    assert visible(ODD) == SHOWN
    assert visible("−1 × φ, ± 3 é") == "−1 × φ, ± 3 é"
    assert visible("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"


@given(st.text(st.characters(exclude_categories=())))
def test_everything_visible_can_be_printed_and_encoded(text: str) -> None:
    assert visible(text).isprintable()
    visible(text).encode()


def test_lines_tables_and_states_are_words() -> None:
    screen, table = terminal(), Table(ODD, title=ODD, caption=ODD)
    table.add_row(ODD)
    screen.print(ODD, soft_wrap=True)
    assert printed(screen) == f"{SHOWN}\n"
    screen.print(table)
    assert printed(screen).count(SHOWN) == 5
    assert printed(screen).replace("\n", "").isprintable()


@pytest.mark.parametrize(("description", "status"), [(ODD, ""), ("", ODD)])
def test_progress_bars_are_words(description: str, status: str) -> None:
    screen = terminal(force_terminal=True, color_system=None, force_interactive=False)
    with Progress(Words("{task.description} {task.fields[status]}"), console=screen) as bars:
        bars.add_task(description, status=status)
    assert SHOWN in printed(screen)
    assert "\x1b[31m" not in printed(screen)


def test_a_state_is_words() -> None:
    screen = terminal(force_terminal=True, color_system=None)
    with screen.status(ODD):
        pass
    assert SHOWN in printed(screen)
    assert "\x1b[31m" not in printed(screen)


def test_widths_are_those_of_what_is_shown() -> None:
    table = Table(show_header=False)
    table.add_row("\x1b")
    table.add_row("four")
    screen = terminal()
    screen.print(table)
    assert len({len(line) for line in printed(screen).splitlines()}) == 1


WORDS = ["plain", "", "a b", "it's", "$HOME", "`id`", "-x", "*", "\\", "new\nline", "\x1b[31m'\\", "\u202eé", "\udcff"]


def test_a_command_gives_a_shell_the_same_words(tmp_path: Path) -> None:
    line = command("printf", "%s\\0", *WORDS)
    assert line.isprintable()
    found = subprocess.run(["bash", "-c", line], capture_output=True, check=True, cwd=tmp_path).stdout
    assert found.split(b"\0")[:-1] == [os.fsencode(word) for word in WORDS]


@given(st.text(st.characters(exclude_categories=())))
def test_every_command_can_be_printed_and_encoded(text: str) -> None:
    assert command(text).isprintable()
    command(text).encode()


def test_a_command_of_plain_words_is_plain() -> None:
    assert command("cfcl", "run", "runs/a b/config.toml") == "cfcl run 'runs/a b/config.toml'"
