import pytest

from cfcl import schedule
from cfcl.config import build


def make(*, once: bool = False, **sections: dict[str, object]) -> schedule.Schedule:
    return schedule.build(build(dict(sections)), once=once)


def steps(clock: schedule.Schedule, what: str) -> list[int]:
    return [t for t in range(clock.num_steps + 1) if getattr(clock, what)(t)]


def test_aggregations_and_exchanges_of_a_short_run() -> None:
    clock = make(train={"steps": 20}, aggregation={"period": 6}, exchange={"period": 4})
    assert steps(clock, "aggregates") == [6, 12, 18, 20]
    assert [t for t in range(20) if clock.exchanges(t)] == [4, 8, 12, 16]


def test_the_published_settings_have_79_exchanges() -> None:
    assert len(make(train={"steps": 2000}, exchange={"period": 25}).exchange_steps) == 79


def test_start_and_stop_bound_the_exchanges() -> None:
    clock = make(train={"steps": 40}, exchange={"period": 5, "start": 10, "stop": 25})
    assert [t for t in range(40) if clock.exchanges(t)] == [10, 15, 20]
    assert len(clock.exchange_steps) == 3


def test_explicit_reserves_are_pushed_once() -> None:
    clock = make(train={"steps": 40}, exchange={"mode": "explicit", "period": 5})
    assert [t for t in range(40) if clock.pushes(t)] == [0]


@pytest.mark.parametrize(("push", "expected"), [("exchange", [12, 24, 36]), ("aggregation", [0, 10, 20, 30])])
def test_implicit_reserves_are_pushed_anew(push: str, expected: list[int]) -> None:
    clock = make(
        train={"steps": 40}, aggregation={"period": 10}, exchange={"mode": "implicit", "period": 12, "push": push}
    )
    assert [t for t in range(40) if clock.pushes(t)] == expected


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 40, [0, 10, 20, 30]),
        (20, 40, [20, 30]),
        # the exchange at 24 needs the reserve of 20
        (21, 40, [20, 30]),
        (0, 25, [0, 10, 20]),
        (30, 31, [30]),
    ],
)
def test_reserves_pushed_at_aggregations_stay_within_start_and_stop(start: int, stop: int, expected: list[int]) -> None:
    exchange = {"mode": "implicit", "period": 12, "push": "aggregation", "start": start, "stop": stop}
    clock = make(train={"steps": 40}, aggregation={"period": 10}, exchange=exchange)
    assert [t for t in range(40) if clock.pushes(t)] == expected


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_bulk_moves_everything_at_the_start(mode: str) -> None:
    clock = make(once=True, train={"steps": 40}, exchange={"mode": mode, "period": 5})
    assert [t for t in range(40) if clock.exchanges(t)] == [0]
    assert [t for t in range(40) if clock.pushes(t)] == [0]
    # floor((40 - 1) / 5) = 7 exchanges' worth
    assert len(clock.exchange_steps) == 7


def test_explicit_reserves_may_have_to_be_pushed_again_where_messages_get_lost() -> None:
    for once, expected in ((False, [0, 3, 6, 9]), (True, [0])):
        clock = make(exchange={"period": 3}, train={"steps": 10}, faults={"loss": 0.1}, once=once)
        assert steps(clock, "pushes") == expected


def test_last_aggregation() -> None:
    clock = make(aggregation={"period": 10})
    assert [clock.last_aggregation(t) for t in (0, 9, 10, 25)] == [0, 0, 10, 20]


def test_temperature_is_a_straight_line() -> None:
    # 4 + 6 * 0.25 = 5.5
    assert schedule.temperature(500, num_steps=2000, start=4.0, end=10.0) == pytest.approx(5.5)
