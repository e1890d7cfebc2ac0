from io import StringIO

import pytest
from rich.console import Console

from cfcl.records import Done, Failed, Final
from cfcl.study import claims, progress, report
from cfcl.study.progress import StudyProgress, TimeLeft, minutes
from tests.conftest import small
from tests.study import made


def test_time_left_knows_that_datasets_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    runs = [small("name=quick", "train.steps=100"), small("name=slow", "train.steps=100")] * 2
    left = TimeLeft(runs, num_workers=2)
    assert left.seconds() is None
    for place in (0, 1):
        left.see(place, 0)
    now[0] = 110.0
    left.see(0, 100)  # 0.1 s a step
    left.see(1, 10)  # 1 s a step
    # quick: 100 steps of 0.1 s; slow: 90 + 100 steps of 1 s; two at once
    assert left.seconds() == (10 + 190) / 2


def test_a_run_that_failed_says_nothing_about_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    left = TimeLeft([small("train.steps=100")] * 3, num_workers=1)
    for place in (0, 1):
        left.see(place, 0)
    now[0] = 110.0
    left.see(0, 10)  # 1 s a step
    left.give_up(1)

    assert left.seconds() == 90 + 100


def test_a_log_says_how_every_run_ended() -> None:
    out = StringIO()
    todo = [small("train.steps=10"), small("train.steps=10", "seed=1")]
    with StudyProgress(Console(file=out, width=200), todo, reused=3, num_workers=1) as bars:
        bars.watch(0, Final(5))
        bars.watch(0, Done("there"))
        bars.watch(1, Failed("no such file"))
    text = out.getvalue()
    assert "digits cfcl-explicit seed 0 is done" in text
    assert "digits cfcl-explicit seed 1 failed: no such file; 1 failed" in text
    assert "5/5" in text


def test_durations_are_for_people() -> None:
    assert [minutes(value) for value in (5, 89.4, 91, 5300, 5400)] == ["5 s", "89 s", "2 min", "88 min", "1.5 h"]


def test_verdicts_name_only_what_was_tried() -> None:
    study = made.study(
        {("fig5", "digits", "fedavg"): [[0.1, 0.2, 0.3]], ("fig5", "digits", "cfcl-explicit"): [[0.2] * 3]}
    )
    out = StringIO()
    Console(file=out, width=200).print(progress.verdicts(claims.judge(study)))
    assert "undecided" in out.getvalue()
    assert "K-means reserve" not in out.getvalue()


def test_a_study_without_claims_says_so() -> None:
    study = made.study({("regime", "digits", "cfcl-explicit", ("variation", "base")): [[0.2] * 3]})

    assert progress.verdicts(claims.judge(study)) == ""
    assert report.compose(study)[0].lead == "No claim is about these figures."
