import json
from pathlib import Path

from typer.testing import CliRunner, Result

from cfcl import config as configs
from cfcl.cli import app
from tests.conftest import SMALL, check_complaint, small

SETS = [word for item in ("name=digits", *SMALL) for word in ("--set", item)]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["overlap", *words])


def told(*words: str) -> dict[str, object]:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_tables_bytes_check_and_two_sentences() -> None:
    result = invoke("digits-study", *SETS)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "Percent of a transmitter's data (row) that is new to a receiver (column) 0 1 2 3" in words
    # three images of 8 by 8 with their radii over each of eight links
    assert "The estimate moves 1.63 kB, reserves and radii: 204 B over each of 8 links." in words
    assert "As a check, which needs labels: of" in words
    assert words.endswith("exchange is not worth its bytes.")
    assert "mean" in words


def test_files_by_their_endings_never_over_others(tmp_path: Path) -> None:
    outs = [tmp_path / "new" / f"overlap{ending}" for ending in (".png", ".csv", ".json")]
    words = ["digits-study", *SETS, *(word for out in outs for word in ("--out", str(out)))]
    assert invoke(*words).exit_code == 0
    before = [out.read_bytes() for out in outs]
    assert before[0].startswith(b"\x89PNG")
    assert before[1].count(b"\n") == 9
    assert json.loads(before[2])["dataset"] == "digits"
    check_complaint(invoke(*words), "overlap.png' exists already", "--force")
    # the same config gives the same bytes
    assert invoke(*words, "--force").exit_code == 0
    assert [out.read_bytes() for out in outs] == before


def test_a_run_folder_stands_for_its_config(tmp_path: Path) -> None:
    expected = told("digits-study", *SETS, "--set", "seed=3")
    assert expected != told("digits-study", *SETS)
    for name in ("run", "other.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(configs.to_toml(small("seed=3")))
    assert told(str(tmp_path / "run")) == expected
    assert told(str(tmp_path / "other.partial")) == expected
    assert told(str(tmp_path / "run"), "--set", "seed=0") == told("digits-study", *SETS)


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    check_complaint(invoke(str(tmp_path)), "is no run folder (it has no config.toml): give a folder that")
    check_complaint(invoke("digits", "--out", str(tmp_path / "a.txt")), "a.txt' ends in none of .png, .csv, .json")
    check_complaint(invoke("digitz"), "digitz")
    check_complaint(invoke("digits", "--set", "exchange.num_pulled=0"), "num_pulled=0 pulls nothing", "raise it")
    (tmp_path / "config.toml").write_text("seed = 'x'")
    check_complaint(invoke(str(tmp_path)), "config.toml", "seed")


def test_modes_that_move_no_images_hear_that_this_does() -> None:
    result = invoke("digits-study", *SETS, "--set", "exchange.mode=implicit", "--json")
    assert result.stderr == "note: reserves are images here, which exchange.mode='implicit' would not move\n"


def test_the_command_is_in_the_help() -> None:
    assert "overlap" in CliRunner().invoke(app, ["--help"]).output
    assert "Example" in invoke("--help").output
