import math
from dataclasses import replace
from typing import Any

import pytest

from cfcl.study import figures, lines, measures, report, verdicts
from cfcl.study.bundle import Measured, Study
from cfcl.study.claims import Finding, judge
from cfcl.study.figures import FIGURES
from cfcl.study.lines import Point, World
from tests.study import made


def _run(points: float, **others: Any) -> Measured:
    """A run that is at so many points all the time; of 10 steps, and 1,000 bytes between devices unless told."""
    return made.record([points / 100] * 2, **({"push": 50, "pull": 50} | others))


def _findings(study: Study, name: str) -> list[Finding]:
    return [test for item in judge(study) if item.claim.id == name for test in item.findings]


def test_the_cheapest_place_that_is_as_good_as_the_best_of_the_other() -> None:
    theirs = {1: [Point(100.0, 80.0), Point(400.0, 84.0), Point(800.0, 83.0)], 2: [Point(100.0, 80.0)], 3: []}
    mine = {
        1: [Point(50.0, 83.9), Point(100.0, 84.0), Point(90.0, 90.0), Point(200.0, 99.0)],
        2: [Point(50.0, 79.9)],
    }

    found = lines.reaching(theirs, mine)

    # in seed 1 the best has 400 bytes and 84 %, and 90 bytes are enough; in seed 2 nothing is; seed 3 has no pair
    assert found.estimate is not None
    assert found.estimate.values == pytest.approx((77.5,))
    assert found.failed == (2,)


def test_of_two_bests_the_cheaper_counts() -> None:
    found = lines.reaching({1: [Point(400.0, 84.0), Point(100.0, 84.0)]}, {1: [Point(50.0, 84.0)]})

    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(50.0)


def _frontier(num_seeds: int, cover: float) -> Study:
    """Uniform exchange is best with n = 5 and 5,000 bytes; cover sends 1,500 with n = 1, and 3,000 with n = 2."""
    places: dict[made.Spot, Any] = {
        ("frontier", "usps-common", "uniform-explicit", ("n", 2), ("reserve", 10)): _run(80, push=0, pull=200),
        ("frontier", "usps-common", "uniform-explicit", ("n", 5), ("reserve", 10)): _run(82, push=0, pull=500),
        ("frontier", "usps-common", "cover-explicit", ("n", 1), ("reserve", 10)): _run(cover, push=50, pull=100),
        ("frontier", "usps-common", "cover-explicit", ("n", 2), ("reserve", 10)): _run(90, push=100, pull=200),
        ("frontier", "usps-common", "cover-explicit", ("n", 2), ("reserve", 5)): _run(
            90, push=1, pull=1
        ),  # not along n
    }
    return made.study({place: [run] * num_seeds for place, run in places.items()}, panels={"usps-common": "usps"})


@pytest.mark.parametrize(("cover", "saved"), [(82.0, 70.0), (81.9, 40.0)])
def test_the_claim_of_the_frontier_is_about_all_bytes_between_devices(cover: float, saved: float) -> None:
    (found,) = _findings(_frontier(3, cover), "14c")

    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(saved)  # 1 - 1,500 / 5,000, or 3,000
    assert found.verdict == verdicts.SUPPORTED  # above 25 %


def test_a_frontier_counts_the_seeds_in_which_all_places_are_finished() -> None:
    study = _frontier(2, 82.0)
    lost = next(cell.digest for cell in study.cells if cell.method == "cover-explicit" and cell.seed == 2)
    study = replace(study, runs={digest: run for digest, run in study.runs.items() if digest != lost})

    assert list(lines.frontier(study, "frontier", "usps-common", "uniform-explicit")) == [1, 2]
    assert lines.frontier(study, "frontier", "usps-common", "cover-explicit", reserve=10) == {
        1: [Point(1500.0, 82.0), Point(3000.0, 90.0)]
    }
    (found,) = _findings(study, "14c")
    assert found.note == "too few seeds; 1 of 2 seeds are complete"


def test_what_is_saved_at_the_last_milestone_beyond_the_first() -> None:
    # to 25 %: 5 of 10 seconds; to 75 %: 20 of 160; so 1/2 is left, and then 1/8: a quarter of that
    mine, theirs = _timed([0.0, 10.0, 30.0]), _timed([0.0, 20.0, 300.0])

    found = measures.saving({1: (theirs, mine)}, [0.25, 0.75], "seconds", rise=True)

    assert found.estimate is not None
    assert found.estimate.values == pytest.approx((75.0,))
    turned = measures.saving({1: (mine, theirs)}, [0.25, 0.75], "seconds", rise=True)
    assert turned.estimate is not None
    assert turned.estimate.values == pytest.approx((-300.0,))


def _timed(seconds: list[float], *, reached: float = 1.0) -> Measured:
    run = made.record([0.0, reached / 2, reached])
    pairs = zip(run.evaluations, seconds, strict=True)
    return replace(run, evaluations=tuple(replace(item, seconds=time) for item, time in pairs))


def test_a_rise_is_a_lower_bound_where_only_the_last_milestone_is_missed() -> None:
    mine, theirs = _timed([0.0, 10.0, 30.0]), _timed([0.0, 20.0, 80.0], reached=0.5)

    found = measures.saving({1: (theirs, mine)}, [0.25, 0.75], "seconds", rise=True)

    # 25 %: 5 of 20; 75 %: 20 of all the 80 that it spent: as much, at least
    assert found.estimate is not None
    assert found.estimate.values == pytest.approx((0.0,))
    assert found.bounds == (1,)
    neither = measures.saving({1: (_timed([0.0, 1.0, 2.0], reached=0.2), mine)}, [0.25, 0.75], "seconds", rise=True)
    assert (neither.estimate, neither.void, neither.bounds) == (None, (1,), ())
    alone = measures.saving({1: (mine, theirs)}, [0.25, 0.75], "seconds", rise=True)
    assert alone.failed == (1,)


def test_a_rise_is_named_by_its_two_milestones() -> None:
    places = {
        ("fig6", "usps", "uniform-explicit"): [_timed([0.0, 20.0, 300.0])] * 3,
        ("fig6", "usps", "cfcl-explicit"): [_timed([0.0, 10.0, 30.0])] * 3,
    }
    study = made.study(places, milestones={"usps explicit": [0.25, 0.5, 0.75]})

    found = next(test for test in _findings(study, "6l") if test.estimate)

    assert found.case == "explicit, against uniform-explicit, from 25 to 75 %"
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(75.0)


def test_whole_runs_are_compared_whatever_they_reach() -> None:
    places = {
        ("payload", "usps", "cfcl-explicit", ("dimension", 64)): [_run(90)] * 3,
        ("payload", "usps", "cfcl-implicit", ("dimension", 64)): [_run(10, push=200, pull=50)] * 3,
    }

    (found,) = _findings(made.study(places), "15b")

    assert found.case == "dimension 64, over the whole run"
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(-150.0)  # 2,500 in place of 1,000
    assert found.verdict == verdicts.CONTRADICTED


def test_uploading_everything_is_compared_with_all_bytes_of_a_run() -> None:
    run = made.record([0.5, 0.5], push=100_000, pull=50_000, up=50_000, raw=500_000)  # ten steps: 2 MB

    assert measures.spared(run) == pytest.approx(-1.5)
    found = _findings(made.study({("fig6", "usps", "cfcl-explicit"): [run] * 3}), "6m")
    assert [(test.case, test.verdict) for test in found] == [
        ("explicit", verdicts.CONTRADICTED),
        ("implicit", verdicts.NOT_RUN),
    ]
    assert measures.spared(made.record([0.5])) is None


def test_the_worst_are_means_over_the_last_fifth() -> None:
    run = made.record([0.5] * 11)
    shares = [None, *range(10)]
    run = replace(
        run,
        evaluations=tuple(
            replace(item, worst_label=share and share / 10, worst_device=share and share / 20)
            for item, share in zip(run.evaluations, shares, strict=True)
        ),
    )

    assert measures.worst_label(run) == pytest.approx(80.0)  # of 70, 80 and 90
    assert measures.worst_device(run) == pytest.approx(40.0)
    assert measures.worst_label(made.record([0.5])) is None


def _foretold(num_seeds: int = 3) -> Study:
    """The more is new the more uniform exchange gains, and the less cover beyond it; not quite in a straight line."""
    places: dict[made.Spot, Any] = {}
    for share, new, uniform, cover in ((0.0, 0.5, 56.0, 56.0), (0.5, 0.25, 52.0, 55.0), (0.9, 0.125, 50.0, 58.0)):
        for method, level in (("fedavg", 50.0), ("uniform-explicit", uniform), ("cover-explicit", cover)):
            estimate = {"new": new} if method == "uniform-explicit" else {}
            places["foretold", "usps", method, ("share", share)] = [_run(level, **estimate)] * num_seeds
    return made.study(places, panels={"usps": "usps"})


def test_an_estimate_is_compared_with_gains_world_by_world() -> None:
    found = lines.worlds(_foretold(1), "foretold", "usps", "cover-explicit", "uniform-explicit")

    assert [world.new for world in found[1]] == [0.5, 0.25, 0.125]
    assert [world.gain for world in found[1]] == pytest.approx([0.0, 3.0, 8.0])
    # deviations of new are 5, -1 and -4 in 24ths, of gains -11, -2 and 13 in thirds: -105 of sqrt(42 × 294)
    assert lines.correlation(found[1]) == pytest.approx(-105 / math.sqrt(42 * 294))
    assert lines.correlation(found[1][:2]) is None
    assert lines.correlation([World(0.5, 1.0), World(0.5, 2.0), World(0.5, 3.0)]) is None


def test_the_claims_about_an_estimate_are_about_its_correlation_within_a_seed() -> None:
    (gained,), (selected,) = (_findings(_foretold(), name) for name in ("13b", "13c"))

    # gains over FedAvg are 6, 2 and 0, their deviations 10, -2 and -8 in thirds: 84 of sqrt(42 × 168)
    assert gained.estimate is not None
    assert gained.estimate.values == pytest.approx((1.0,) * 3)
    assert selected.estimate is not None
    assert selected.estimate.values == pytest.approx((0.94491,) * 3, abs=1e-5)
    assert (gained.verdict, selected.verdict) == (verdicts.SUPPORTED,) * 2
    runs = {("foretold", "usps", method): [_run(50.0)] * 3 for method in ("fedavg", "uniform-explicit")}
    bare = made.study(runs, panels={"usps": "usps"})
    (nothing,) = _findings(bare, "13b")
    assert (nothing.verdict, nothing.note) == (verdicts.NOT_RUN, "no estimates, or too few worlds")


def _ours() -> Study:
    foretold, frontier = _foretold(2), _frontier(2, 82.0)
    rows: dict[made.Spot, Any] = {
        ("exchanges", "usps-study", method, ("every", every)): [_run(50.0 + every)] * 2
        for method in ("fedavg", "uniform-explicit", "cfcl-explicit", "cfcl-implicit")
        for every in (10, 25)
    }
    rows |= {
        ("payload", "usps-study", f"cfcl-{mode}", ("dimension", length)): [_run(50.0, pull=length)] * 2
        for mode in ("explicit", "implicit")
        for length in (4, 64)
    }
    rows |= {("equal", "usps", method): [_run(50.0)] * 2 for method in ("fedavg", "uniform-explicit", "cover-explicit")}
    others = made.study(rows)
    return replace(
        others,
        cells=(*others.cells, *foretold.cells, *frontier.cells),
        runs={**others.runs, **foretold.runs, **frontier.runs},
    )


def test_figures_of_ours_are_drawn_and_have_tables() -> None:
    study = _ours()

    assert set(figures.draw(study)) == {"exchanges", "payload", "equal", "foretold", "frontier"}
    tables = {item.name: item.table for part in report.compose(study) for item in part.chapters}
    assert tables["foretold"].rows[0] == ["usps", "uniform over FedAvg", "2", "6", "+1.00", "1.00 ± 0.00"]
    assert tables["foretold"].rows[1][4:] == ["-0.94", "-0.94 ± 0.00"]
    assert ["usps-study", "64", "cfcl-implicit", "2", "0.00 ± 0.00", "50.00 ± 0.00"] in tables["payload"].rows
    assert tables["equal"].head[3:5] == ["Final (%)", "D2D (MB)"]


def test_beside_a_mean_stand_the_worst_and_what_everything_would_take() -> None:
    run = made.record([0.5, 0.5], raw=2_000_000)
    worst = tuple(replace(item, worst_label=0.25, worst_device=0.375) for item in run.evaluations)
    study = made.study({("frontier", "usps-common", "fedavg"): [replace(run, evaluations=worst)]})

    table = FIGURES["frontier"].table(study, "frontier")

    assert dict(zip(table.head, table.rows[0], strict=True)) == {
        "Dataset": "usps-common",
        "Method": "fedavg",
        "Seeds": "1",
        "Final (%)": "50.00",
        "D2D (MB)": "0.00",
        "Uplink (MB)": "0.00",
        "Upload all (MB)": "2.00",
        "Worst label (%)": "25.00",
        "Worst device (%)": "37.50",
    }


def test_the_table_of_milestones_has_what_uploading_everything_takes() -> None:
    runs = {("fig6", "usps", "cfcl-explicit"): [made.record([0.5, 1.0], raw=1_500_000)]}

    known, unknown = (
        FIGURES["fig6"].table(made.study(places, milestones={"usps explicit": [0.75]}), "fig6")
        for places in (runs, {place: [made.record([0.5, 1.0])] for place in runs})
    )

    assert (known.head[-1], known.rows[0][-1]) == ("Upload all", "1.5 MB")
    assert known.head[:-1] == unknown.head
    assert known.rows[0][:-1] == unknown.rows[0]
