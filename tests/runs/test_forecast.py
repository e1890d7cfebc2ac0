"""What a dry run says is what the run then does."""

from pathlib import Path

import pytest

from cfcl import config as configs
from cfcl.records import Evaluation, Pull
from cfcl.runs import dry, forecast, suites
from cfcl.sim.engines import start
from tests.conftest import small

RUNS = [
    "fedavg",
    "uniform-explicit",
    "cfcl-explicit",
    "cfcl-implicit",
    "bulk-implicit",
    "novel-explicit",
    "cover-implicit",
]


@pytest.fixture(autouse=True)
def _no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "TIMED_SECONDS", 0.0)


@pytest.mark.parametrize("word", RUNS)
def test_rounds_and_bytes_are_those_of_the_run(word: str) -> None:
    config = configs.with_method(small("aggregation.num_devices=3"), word)
    (found,) = forecast.look([config])
    with start(config, workers=1) as simulation:
        rows = list(simulation.rows())
    evaluations = [row for row in rows if isinstance(row, Evaluation)]
    last = evaluations[-1]
    assert found.num_pushes * found.bytes_push == last.bytes_push
    assert found.num_exchanges * found.bytes_pull == last.bytes_pull
    assert found.bytes_d2d == last.bytes_push + last.bytes_pull
    assert found.bytes_uplink == last.bytes_up
    assert found.num_evaluations == len(evaluations)
    assert found.num_exchanges == len({row.step for row in rows if isinstance(row, Pull)})


def test_bytes_by_hand() -> None:
    # A ring of 4 has 8 links. Explicit: 64 bytes per point, 3 reserve points, 2 items; T = 12, T_p = 3: t = 3, 6, 9.
    (found,) = forecast.look([small("cost.charged_parameters=100")])
    assert (found.num_pushes, found.bytes_push) == (1, 8 * 3 * 64)
    assert (found.num_exchanges, found.bytes_pull) == (3, 8 * 2 * 64)
    # T_a = 4: t = 4, 8, 12; four models of 100 parameters of 4 bytes; judged at 0, 8 and 12.
    assert (found.num_aggregations, found.bytes_up, found.num_evaluations) == (3, 1600, 3)


def test_budgets_of_links_count(tmp_path: Path) -> None:
    file = tmp_path / "budgets.csv"
    file.write_text("transmitter,receiver,num_pulled,num_reserve\n0,1,0,3\n1,0,5,4\n")
    (found,) = forecast.look([small(f"exchange.budgets_file={file}")])
    # Six links have 2 items and 3 reserve points, one has 5 and 4, and over one nothing moves.
    assert (found.bytes_push, found.bytes_pull) == (64 * (6 * 3 + 4), 64 * (6 * 2 + 5))


def test_answers_that_say_what_is_new_count_and_the_rest_is_at_most() -> None:
    config = small("exchange.method=cover", "exchange.budget=adaptive", "exchange.buffer=keep")
    (found,) = forecast.look([config])
    # 8 links: 2 items of 64 bytes and a number of 4; 3 reserve points, each with a number
    assert (found.bytes_push, found.bytes_pull) == (8 * 3 * 68, 8 * (2 * 64 + 4))
    with start(config, workers=1) as simulation:
        last = [row for row in simulation.rows() if isinstance(row, Evaluation)][-1]
    assert last.bytes_push == found.bytes_push
    assert 3 * 8 * 4 < last.bytes_pull <= 3 * found.bytes_pull


def test_time_is_that_of_all_updates_shared_among_processes() -> None:
    (found,) = forecast.look([small()])
    assert found.update_seconds > 0
    assert forecast.Forecast(found.world, 2, 0.5).seconds == 0.5 * 12 * 4 / 2


def test_memory_grows_with_what_is_kept_and_with_processes() -> None:
    (purged,), (kept,) = forecast.look([small()]), forecast.look([small("exchange.buffer=keep")])
    assert purged.memory is not None
    assert kept.memory is not None
    # Two of three exchanges are dropped otherwise; the process itself may only have grown in between.
    assert kept.memory - purged.memory >= 2 * purged.bytes_pull
    both = forecast.Forecast(kept.world, 2, 1.0).memory
    assert both is not None
    assert both > 1.5 * kept.memory


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "about 1 s"),
        (100, "about 100 s"),
        (600, "about 10 min"),
        (6060, "about 100 min"),  # 101, of which two digits are told
        (9000, "about 2.5 h"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert dry.duration(seconds) == text


def test_a_comparison_is_looked_at_as_a_whole() -> None:
    found = forecast.look(suites.plan(small(), ["fedavg", "cfcl-explicit"], [0, 1]))
    assert [one.world.config.method for one in found] == ["fedavg", "cfcl-explicit"] * 2
    assert len({one.update_seconds for one in found}) == 1
