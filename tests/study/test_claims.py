from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cfcl.shown import markdown_table
from cfcl.study import claims, verdicts
from cfcl.study.bundle import Measured, Study
from cfcl.study.claims import Finding, Judgement
from cfcl.study.measures import saving
from cfcl.study.verdicts import CONTRADICTED, NO_DIFFERENCE, NOT_RUN, SAME, SUPPORTED, UNDECIDED
from tests.study import made

MODES = ("explicit", "implicit")
METHODS = ("fedavg", *(f"{name}-{mode}" for name in ("cfcl", "uniform", "kmeans", "bulk") for mode in MODES))


def _level(points: float) -> list[float]:
    """A curve that stays where it is: the same accuracy at the end and on the way."""
    return [points / 100, points / 100]


def _to_half(steps: int, **costs: Any) -> Measured:
    """A run that reaches 50 % after so many steps, and ends at 100 % after twice as many."""
    return made.record([0.0, 1.0], every=2 * steps, **costs)


def _climb(steps: Sequence[int], **costs: Any) -> Measured:
    """A run that reaches 0, 25, 50 % and so on after so many steps."""
    run = made.record([0.0] * (steps[-1] + 1), every=1, **costs)
    reached = [replace(run.evaluations[step], probe=0.25 * place) for place, step in enumerate(steps)]
    return replace(run, evaluations=tuple(reached))


def _timed(probes: Sequence[float], seconds: Sequence[float]) -> Measured:
    run = made.record(probes)
    pairs = zip(run.evaluations, seconds, strict=True)
    return replace(run, evaluations=tuple(replace(item, seconds=time) for item, time in pairs))


def _judgement(study: Study, name: str) -> Judgement:
    return next(item for item in claims.judge(study) if item.claim.id == name)


def _only(study: Study, name: str) -> Finding:
    (finding,) = _judgement(study, name).findings
    return finding


def _faster(explicit: Sequence[float], implicit: Sequence[float]) -> Study:
    """For claim 5c: accuracies in points, one a seed."""
    return made.study(
        {
            ("fig5", "usps", "cfcl-explicit"): [_level(points) for points in explicit],
            ("fig5", "usps", "cfcl-implicit"): [_level(points) for points in implicit],
        }
    )


def _sooner(uniform: Sequence[Any], cfcl: Sequence[Any], marks: Sequence[float] = (0.5,)) -> Study:
    """For claims 6b and 6e in explicit mode: runs, one a seed."""
    return made.study(
        {("fig6", "usps", "uniform-explicit"): uniform, ("fig6", "usps", "cfcl-explicit"): cfcl},
        milestones={"usps explicit": marks},
    )


def _delay(study: Study) -> Finding:
    """The test of claim 6b in which explicit CF-CL stands against uniform exchange."""
    found = _judgement(study, "6b").findings
    return next(item for item in found if item.case.startswith("explicit, against uniform-explicit"))


@pytest.fixture(autouse=True)
def _two_seeds_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "FEWEST_SEEDS", 2)


def _whole(sign: int) -> Study:
    """All figures, two seeds, two panels in Fig. 5: every claim holds by a known margin, or none with `sign` -1."""
    places: dict[made.Spot, list[Any]] = {}

    def put(points: float, *place: Any) -> None:
        places[place] = [_level(50 + sign * points)] * 2

    gains = {"cfcl-explicit": 4.0, "cfcl-implicit": 3.0, "novel-explicit": 6.0, "novel-implicit": 5.0}
    blind = dict.fromkeys(("uniform-explicit", "kmeans-explicit", "bulk-explicit"), 1.0)
    for method in (*METHODS, "novel-explicit", "novel-implicit", "cover-explicit"):
        gain = {**blind, **gains, "cover-explicit": 7.0}.get(method, 0.0)
        run = made.record(_level(50 + sign * gain), cka=0.5 + sign * gain / 10)
        places["fig5", "usps", method] = places["fig5", "usps-short", method] = [run, run]
        run = made.record([0.5, 0.5], separation=2.0 + sign * gains.get(method, 0.0))
        places["fig4", "usps", method] = [run, run]
    for method in (*METHODS, "novel-explicit", "novel-implicit"):
        heavy = (method == "cfcl-explicit") == (sign > 0)
        gain, costs = sign * int(gains.get(method, 0.0)), {"pull": 150 if heavy else 15, "push": 0, "up": 10_000}
        run = _climb([0, 30 - 2 * gain, 60 - 5 * gain], **costs, raw=10**7 + sign * 10**7)
        places["fig6", "usps", method] = [run, run]
    for method in METHODS:
        for devices, loss in ((2, 3.0), (6, 2.0), (10, 0.0)):
            put(1.0 - loss / 3 if method in gains else -loss, "fig8", "usps", method, ("devices", devices))
    for mode in MODES:
        method = f"cfcl-{mode}"
        for size, gain in ((10, 4.0), (100, 1.0), (20, 2.0)):
            put(gain, "fig9", "usps", method, ("reserve", "kmeans"), ("size", size))
            put(0.0, "fig9", "usps", method, ("reserve", "random"), ("size", size))
        for period, loss in ((100, 0.9), (10, 0.1), (25, 0.3)):
            # Less than nothing in explicit mode.
            points = -loss if mode == "implicit" else 1.5 - loss
            put(points, "fig10", "usps", method, ("importance", "local"), ("period", period))
            put(0.0, "fig10", "usps", method, ("importance", "global"), ("period", period))
            put(-2.0, "fig10", "usps", f"uniform-{mode}", ("importance", "global"), ("period", period))
        for labels, degree, points in ((1, 2, -4.0), (1, 8, -2.0), (8, 2, 0.0), (8, 8, 0.25)):
            put(points, "fig11", "usps", method, ("labels", labels), ("degree", degree))
            for other in ("fedavg", f"uniform-{mode}"):
                put(points - 1.0, "fig11", "usps", other, ("labels", labels), ("degree", degree))
    selections = [
        made.selection(
            f"{name}-{mode}",
            seed=seed,
            panel="usps-study",
            distance=0.5 - sign * near,
            held=0.5 - sign * near,
            mean_distance=0.5 - sign * near,
        )
        for mode in MODES
        for name, near in (("uniform", 0.0), ("cfcl", 0.125))
        for seed in (1, 2)
    ]
    for every in (10, 25, 100):
        put(-2.0 if every == 100 else 0.0, "exchanges", "usps", "cfcl-implicit", ("every", every))
        put(0.0, "exchanges", "usps", "cfcl-explicit", ("every", every))
    for mode in MODES:
        small = (mode == "implicit") == (sign > 0)
        for dimension in (4, 64):
            run = made.record([0.5, 0.5], pull=15 if small else 150)
            places["payload", "usps", f"cfcl-{mode}", ("dimension", dimension)] = [run, run]
    of_paper = {(figure, "usps-study" if panel == "usps" else panel, *rest): runs
                for (figure, panel, *rest), runs in places.items()}  # fmt: skip
    places = {place: runs for place, runs in places.items() if place[:2] == ("fig5", "usps")}
    _put_ours(put, places, sign)
    marks = {f"usps-study {mode}": [0.25, 0.5] for mode in MODES}
    panels = dict.fromkeys(("usps", "digits", *OURS), "usps")
    return made.study({**of_paper, **places}, milestones=marks, selections=selections, panels=panels)


OURS = (
    *("usps-common", "usps-ring", "usps-common-dial", "usps-dirichlet", "digits-common", "svhn"),
    *("usps-common-disjoint", "usps-skewed", "usps-common-spread"),
)


def _put_ours(put: Callable[..., None], places: dict[made.Spot, list[Any]], sign: int) -> None:
    """What claims of ours are about: cover gains 9, CF-CL 5, and bulk exchange 1."""
    gains = {"fedavg": -1.0, "cover-explicit": 9.0, "cover-activations": 9.0, "cover-implicit": 9.0}
    others = ("uniform-explicit", "kmeans-explicit", "bulk-explicit", "cfcl-explicit")
    for panel in OURS:
        for method in (*others, *gains, "uniform-activations", "uniform-implicit"):
            put({**gains, "cfcl-explicit": 5.0, "bulk-explicit": 1.0}.get(method, 0.0), "fig5", panel, method)
    for share in (0.0, 0.5, 0.9):
        put(1.0 + share, "redundancy", "usps", "cover-explicit", ("share", share))
        put(0.0, "redundancy", "usps", "uniform-explicit", ("share", share))
    for items in (2, 5, 10):
        # Uniform exchange is best with the most items, or turned around with the fewest; cover is with the most.
        points = {"uniform-explicit": sign * items / 10, "bulk-explicit": 0.0, "cover-explicit": sign * 4.0}
        for method, gain in points.items():
            curve = _level(50 + (4.0 if (method, items) == ("cover-explicit", 10) else gain))
            run = made.record(curve, push=0, pull=10 * items)
            places["frontier", "usps-common", method, ("n", items), ("reserve", 10)] = [run, run]
    for panel in (*OURS, "usps", "digits"):
        for method in (*others, "cover-explicit"):
            put(2.0 if method == "cover-explicit" else 0.0, "equal", panel, method)
    for share in (0.0, 0.5, 0.9):
        levels = {"fedavg": 50.0, "uniform-explicit": 50.0 + sign * 5 * (1 - share), "cover-explicit": 60.0}
        for method, level in levels.items():
            run = made.record(_level(level), new=1 - share)
            places["foretold", "usps", method, ("share", share)] = [run, run]
    for method, gain in (("uniform-explicit", 0.0), ("cover-explicit", 0.125)):
        run, worst = places["fig5", "usps-common", method][0], 0.25 + sign * gain
        places["fig5", "usps-common", method] = [
            replace(
                made.record(run),
                evaluations=tuple(
                    replace(item, worst_label=worst, worst_device=worst) for item in made.record(run).evaluations
                ),
            )
        ] * 2


def test_every_claim_can_be_supported() -> None:
    found = claims.judge(_whole(+1))

    assert {item.claim.id: item.verdict for item in found} == {claim.id: SUPPORTED for claim in claims.load()[1]}


def test_every_claim_of_a_difference_can_fail() -> None:
    found = claims.judge(_whole(-1))

    # What costs nothing costs at most so much: turned around, sparse graphs gain.
    assert {item.claim.id: item.verdict for item in found if item.verdict != CONTRADICTED} == {"11c": SUPPORTED}


def test_tests_are_counted_over_panels_and_cases() -> None:
    tests = {item.claim.id: len(item.findings) for item in claims.judge(_whole(+1))}

    assert tests == {
        **{"4a": 2, "4b": 1},
        **{"5a": 16, "5b": 16, "5c": 2, "5d": 16, "5e": 16, "5f": 4, "5g": 2},  # 2 panels × 2 modes × 4 baselines
        **{"6a": 16, "6b": 16, "6c": 2, "6d": 4, "6e": 2},  # 2 modes × 4 baselines × 2 milestones
        **{"6f": 16, "6g": 16, "6h": 2, "6i": 2},
        **{"7a": 2, "7b": 2, "8a": 24, "8b": 8, "9a": 6, "9b": 2},  # 8a: 2 modes × 4 baselines × 3 numbers of devices
        **{"10a": 6, "10b": 3, "10c": 2, "11a": 4, "11b": 2, "11c": 1},
        **{"5h": 4, "6j": 2, "7c": 2, "10d": 6, "11d": 8},
        **{"12a": 4, "12b": 1, "12c": 1, "12d": 1, "12e": 1, "12f": 5, "12g": 2, "12h": 1, "12i": 2},
        **{"13a": 1, "14a": 1, "14b": 2},
        **{"6k": 8, "6l": 8, "6m": 2, "15a": 1, "15b": 2},  # 15b: 2 lengths of embeddings
        **{
            "12j": 1,
            "12k": 1,
            "12l": 1,
            "12m": 1,
            "12n": 1,
            "12o": 1,
            "13b": 1,
            "13c": 1,
            "14c": 1,
            "14d": 6,
            "14e": 3,
        },
    }


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        # With three seeds an interval reaches 2.484 deviations to either side; 0.5 points are worth the name.
        ((2.0, 2.5, 3.0), SUPPORTED),  # 2.5 ± 1.242
        ((1.0, 2.0, 3.0), UNDECIDED),  # 2 ± 2.484
        ((-1.0, 0.0, 1.0), UNDECIDED),  # 0 ± 2.484
        ((0.0, 0.1, 0.2), NO_DIFFERENCE),  # 0.1 ± 0.248, within 0.5
        ((0.1, 0.3, 0.4), UNDECIDED),  # 0.267 ± 0.379, up to 0.646
        ((0.3, 0.35, 0.4), NO_DIFFERENCE),  # 0.35 ± 0.124: above zero, and not worth naming
        ((-0.4, -0.35, -0.3), NO_DIFFERENCE),
        ((-3.0, -2.5, -2.0), CONTRADICTED),  # -2.5 ± 1.242
        ((-1.2, -1.1, -0.6), UNDECIDED),  # -0.967 ± 0.8, from -0.167
        ((0.0, 0.0, 0.0), SAME),  # the same runs, so nothing was compared
    ],
)
def test_a_difference_is_supported_if_its_whole_interval_is(differences: Sequence[float], verdict: str) -> None:
    # Implicit runs differ far more between seeds than the modes do within one.
    implicit = (40.0, 60.0, 50.0)

    found = _only(_faster([sum(pair) for pair in zip(implicit, differences, strict=True)], implicit), "5c")

    assert found.verdict == verdict
    assert found.estimate is not None
    assert found.estimate.values == pytest.approx(differences)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((-0.25, -0.25, -0.25), SUPPORTED),
        ((-0.6, -0.55, -0.5), UNDECIDED),  # -0.55 ± 0.124 holds -0.5
        ((-1.2, -1.1, -1.0), CONTRADICTED),  # -1.1 ± 0.248
        ((-0.7, -0.68, -0.66), CONTRADICTED),  # -0.68 ± 0.050
    ],
)
def test_a_stated_size_is_exact(differences: Sequence[float], verdict: str) -> None:
    place = ("fig11", "usps", "cfcl-implicit")
    study = made.study(
        {
            (*place, ("labels", 8), ("degree", 2)): [_level(50 + points) for points in differences],
            (*place, ("labels", 8), ("degree", 8)): [_level(50)] * 3,
            (*place, ("labels", 1), ("degree", 8)): [_level(90)] * 3,
        }
    )

    assert _only(study, "11c").verdict == verdict


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("5a", 100 * (2 / 3 - 0.5)),  # on the way (0.5 + 0.75 + 0.75) / 3
        ("5b", 25.0),  # 0.75 at the end
    ],
)
def test_on_the_way_is_not_at_the_end(name: str, points: float) -> None:
    study = made.study(
        {
            ("fig5", "usps", "cfcl-explicit"): [[0.25, 0.75, 0.75, 0.75]] * 2,
            ("fig5", "usps", "fedavg"): [[0.5, 0.5, 0.5, 0.5]] * 2,
        }
    )

    found = next(item for item in _judgement(study, name).findings if item.estimate)

    assert found.case == "explicit, against fedavg"
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(points)


def test_seeds_are_paired_and_what_is_missing_is_said() -> None:
    study = _faster([55.0, 70.0, 80.0, 90.0], [50.0, 60.0])

    found = _only(study, "5c")

    assert found.estimate is not None
    assert found.estimate.values == pytest.approx((5.0, 10.0))
    assert found.seeds == 2
    assert found.note == "2 of 4 seeds are complete"


def test_one_seed_decides_nothing() -> None:
    found = _only(_faster([90.0], [50.0]), "5c")

    assert (found.verdict, found.note, found.seeds) == (UNDECIDED, "too few seeds", 1)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(40.0)


def test_missing_runs_are_named() -> None:
    study = made.study(
        {
            ("fig8", "usps", "cfcl-explicit", ("devices", 2)): [_level(50)] * 2,
            ("fig8", "usps", "fedavg", ("devices", 2)): [None, None],
        }
    )

    found = {item.case: item for item in _judgement(study, "8a").findings}

    assert found["explicit, against fedavg, devices 2"].note == "nothing measured of fedavg (devices 2)"
    assert found["implicit, against fedavg, devices 2"].note == (
        "nothing measured of cfcl-implicit (devices 2), fedavg (devices 2)"
    )
    assert {item.verdict for item in found.values()} == {NOT_RUN}
    assert _judgement(study, "8b").findings[0].note == "fewer than two values of devices"


def test_a_study_of_nothing_decides_nothing() -> None:
    found = claims.judge(made.study({}))

    assert {item.verdict for item in found} == {NOT_RUN}
    assert {item.counts for item in found} == {"not run"}
    assert {item.claim.whose for item in found} == {"paper", "drafts"}


def test_our_variant_is_judged_where_it_ran() -> None:
    study = made.study(
        {
            ("fig5", "usps", "novel-implicit"): [_level(60)] * 2,
            ("fig5", "usps", "uniform-implicit"): [_level(50)] * 2,
            ("fig5", "usps", "fedavg"): [_level(61)] * 2,
            ("fig5", "digits", "fedavg"): [_level(60)] * 2,
        }
    )

    found = _judgement(study, "5d")

    assert [(item.panel, item.case, item.verdict) for item in found.findings] == [
        ("usps", "implicit, against uniform-implicit", SUPPORTED),
        ("usps", "implicit, against fedavg", CONTRADICTED),
    ]
    assert [item.claim.id for item in claims.judge(study) if item.claim.whose == "ours"] == ["5d", "5e"]


def test_swept_values_are_those_of_the_panel() -> None:
    study = made.study(
        {
            ("fig11", "usps", "cfcl-implicit", ("labels", 10), ("degree", 3)): [_level(50)] * 2,
            ("fig11", "usps", "cfcl-implicit", ("labels", 9), ("degree", 6)): [_level(70)] * 2,
            ("fig11", "usps", "cfcl-implicit", ("labels", 10), ("degree", 6)): [_level(51)] * 2,
            ("fig11", "digits", "cfcl-implicit", ("labels", 11), ("degree", 6)): [_level(80)] * 2,
        }
    )

    usps, digits = _judgement(study, "11c").findings

    assert usps.estimate is not None
    assert usps.estimate.mean == pytest.approx(-1.0)  # 50 - 51, with 10 labels, in degrees 3 and 6
    assert digits.note == "fewer than two values of degree"


def test_savings_are_averaged_as_logarithms() -> None:
    study = _sooner([_to_half(20), _to_half(80)], [_to_half(10), _to_half(10)])

    found = _delay(study)

    # 1/2 and 1/8 of the time: 1/4 on average, with two seeds 12.7062 × log(2) = 8.8073 to either side of log(1/4)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(75.0)
    assert found.estimate.values == pytest.approx((50.0, 87.5))
    assert found.estimate.high == pytest.approx(99.99626, abs=1e-5)  # 1 - exp(-1.3863 - 8.8073)
    assert found.estimate.low == pytest.approx(-166975, rel=1e-3)  # 1 - exp(-1.3863 + 8.8073)
    assert found.verdict == UNDECIDED
    assert found.case == "explicit, against uniform-explicit, at 50 %"


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("6a", 77.5),  # 90 against 400 bytes
        ("6b", 50.0),  # 0.1 s a step in both, half the steps
        ("6d", 50.0),
    ],
)
def test_each_cost_is_its_own(name: str, saved: float) -> None:
    other = made.record([0.0, 1.0], every=4, push=50, pull=50, up=100)
    run = made.record([0.0, 1.0], every=2, push=20, pull=30, up=40)
    study = made.study(
        {("fig6", "usps", "fedavg"): [other] * 2, ("fig6", "usps", "cfcl-explicit"): [run] * 2},
        milestones={"usps explicit": [0.5]},
    )

    found = [item for item in _judgement(study, name).findings if item.estimate]

    assert len(found) == 1
    assert found[0].estimate is not None
    assert found[0].estimate.mean == pytest.approx(saved)


def test_implicit_and_explicit_bytes_are_compared_at_the_milestones_of_implicit_mode() -> None:
    explicit = made.record([0.0, 1.0], push=10, pull=90, up=1000)
    implicit = made.record([0.0, 0.5], push=10, pull=10, up=5)
    study = made.study(
        {("fig6", "usps", "cfcl-explicit"): [explicit] * 2, ("fig6", "usps", "cfcl-implicit"): [implicit] * 2},
        milestones={"usps explicit": [0.75], "usps implicit": [0.25]},
    )

    found = _only(study, "6c")

    # 2.5 steps of 100 bytes against 5 steps of 20
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(60.0)
    assert (found.case, found.verdict) == ("implicit, at 25 %", SUPPORTED)


def test_the_saving_over_milestones_is_one_average() -> None:
    # to 25 %: 5 of 10 seconds; to 75 %: 20 of 160; so 1/2 and 1/8, which is 1/4 on average
    mine, theirs = _timed([0.0, 0.5, 1.0], [0.0, 10.0, 30.0]), _timed([0.0, 0.5, 1.0], [0.0, 20.0, 300.0])

    found = _judgement(_sooner([theirs] * 2, [mine] * 2, marks=(0.25, 0.75)), "6e").findings[0]

    assert found.case == "explicit, mean over 25, 75 %"
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(75.0)
    assert found.verdict == SUPPORTED


def test_the_highest_milestone_may_be_judged_alone() -> None:
    mine, theirs = _timed([0.0, 0.5, 1.0], [0.0, 10.0, 30.0]), _timed([0.0, 0.5, 1.0], [0.0, 20.0, 300.0])
    runs = {("fig6", "usps", "uniform-explicit"): [theirs] * 2, ("fig6", "usps", "novel-explicit"): [mine] * 2}

    found = _judgement(made.study(runs, milestones={"usps explicit": [0.25, 0.75]}), "6i").findings

    assert [item.case for item in found] == ["explicit, at 75 %"]
    assert found[0].estimate is not None
    assert found[0].estimate.mean == pytest.approx(87.5)  # 20 of 160 seconds


def test_one_milestone_missed_leaves_no_average() -> None:
    mine, theirs = made.record([0.0, 0.5]), made.record([0.0, 0.25, 1.0])

    found = _judgement(_sooner([theirs] * 6, [mine] * 6, marks=(0.25, 0.75)), "6e").findings[0]

    assert (found.verdict, found.estimate) == (CONTRADICTED, None)


def test_who_never_gets_there_is_charged_with_all_it_spent() -> None:
    never = made.record([0.0, 0.25, 0.25], every=40)

    found = _delay(_sooner([never, _to_half(40)], [_to_half(20), _to_half(20)]))

    # 20 of 80 steps, and 20 of 40
    assert found.estimate is not None
    assert found.estimate.values == pytest.approx((75.0, 50.0))
    assert found.note == "a lower bound: uniform-explicit never gets there in 1 of 2 seeds"


def test_a_lower_bound_speaks_for_a_claim_and_never_against_it() -> None:
    short, long = (made.record([0.0, 0.25], every=steps) for steps in (10, 40))

    assert _delay(_sooner([long, long], [_to_half(20)] * 2)).verdict == SUPPORTED
    against = _delay(_sooner([short, short], [_to_half(20)] * 2))
    assert against.estimate is not None
    assert against.estimate.high == pytest.approx(-100.0)
    assert against.verdict == UNDECIDED


@pytest.mark.parametrize(
    ("reached", "verdict", "note"),
    [
        # by chance one in 2 to the 6, which is below 0.025
        ((False,) * 6, CONTRADICTED, "cfcl-explicit never gets there in 6 of 6 seeds, uniform-explicit does"),
        (
            (False,) * 5,
            UNDECIDED,
            "cfcl-explicit never gets there in 5 of 5 seeds, uniform-explicit does; 5 of 6 seeds are complete",
        ),
        ((True, *(False,) * 5), UNDECIDED, "cfcl-explicit never gets there in 5 of 6 seeds, uniform-explicit does"),
    ],
)
def test_a_method_that_never_gets_there_saves_nothing(reached: Sequence[bool], verdict: str, note: str) -> None:
    mine = [_to_half(10) if there else made.record([0.0, 0.25]) for there in reached]

    found = _delay(_sooner([_to_half(20)] * 6, mine))

    assert (found.verdict, found.note, found.estimate) == (verdict, note, None)


def test_a_seed_in_which_there_is_nothing_to_compare_is_left_out() -> None:
    never = made.record([0.0, 0.25])
    at_once = made.record([0.5, 0.75])
    study = _sooner([_to_half(20), _to_half(20), never, at_once], [_to_half(10), _to_half(10), never, at_once])

    found = _delay(study)

    assert found.estimate is not None
    assert found.estimate.values == pytest.approx((50.0, 50.0))
    assert found.note == "nothing to compare in 2 of 4 seeds"
    assert found.verdict == SUPPORTED


def test_no_pilot_no_milestones() -> None:
    found = _delay(_sooner([_to_half(20)] * 2, [_to_half(10)] * 2, marks=()))

    assert (found.case, found.verdict) == ("explicit, against uniform-explicit, no milestone", NOT_RUN)
    assert found.note == "no milestones for usps explicit"


def test_selections_of_the_pilot_do_not_count() -> None:
    study = made.study(
        {},
        selections=[
            made.selection(method, seed=seed, distance=distance, held=distance / 2)
            for method, distances in (("uniform-explicit", (9.0, 0.75, 1.0)), ("cfcl-explicit", (0.0, 0.5, 0.625)))
            for seed, distance in enumerate(distances)
        ],
    )

    explicit, implicit = _judgement(study, "7a").findings

    assert explicit.panel == "digits"
    assert explicit.estimate is not None
    assert explicit.estimate.values == (0.25, 0.375)
    assert implicit.note == "nothing measured of uniform-implicit, cfcl-implicit"
    held = _judgement(study, "7b").findings[0].estimate
    assert held is not None
    assert held.values == (12.5, 18.75)  # in points


@pytest.mark.parametrize(
    ("tests", "verdict", "counts"),
    [
        ((SUPPORTED, SUPPORTED), SUPPORTED, "2 of 2 supported"),
        ((SUPPORTED, SAME), SUPPORTED, "1 of 2 supported, 1 nothing compared"),
        ((SUPPORTED, UNDECIDED), UNDECIDED, "1 of 2 supported, 1 undecided"),
        ((SUPPORTED, NO_DIFFERENCE), UNDECIDED, "1 of 2 supported, 1 no difference"),
        ((SUPPORTED, NOT_RUN), UNDECIDED, "1 of 2 supported, 1 not run"),
        ((NO_DIFFERENCE, NO_DIFFERENCE), NO_DIFFERENCE, "0 of 2 supported, 2 no difference"),
        ((SUPPORTED, UNDECIDED, CONTRADICTED), CONTRADICTED, "1 of 3 supported, 1 contradicted, 1 undecided"),
        ((SAME, SAME), UNDECIDED, "0 of 2 supported, 2 nothing compared"),
        ((NOT_RUN, SAME), NOT_RUN, "0 of 2 supported, 1 not run, 1 nothing compared"),
        ((), NOT_RUN, "not run"),
    ],
)
def test_a_claim_is_as_good_as_its_worst_test(tests: Sequence[str], verdict: str, counts: str) -> None:
    findings = tuple(Finding("usps", "", item, None, "") for item in tests)

    found = Judgement(claims.load()[1][0], findings)

    assert (found.verdict, found.counts) == (verdict, counts)


def test_tables_say_what_was_found() -> None:
    judgements = [_judgement(_faster([52.0, 52.5, 53.0], [50.0] * 3), "5c"), _judgement(_faster([52.0], [50.0]), "5c")]

    details = markdown_table(claims.DETAILS, claims.details(judgements))

    assert details.splitlines()[2:] == [
        "| 5c | usps |  | +2.50 | +1.26 to +3.74 | points | 3 | supported |  |",  # 2.5 ± 1.242
        "| 5c | usps |  | +2.00 | – | points | 1 | undecided | too few seeds |",
    ]


def test_a_mean_over_milestones_says_where_some_cannot_be_compared() -> None:
    slow, quick = made.record([0.0, 0.25, 0.5, 0.75]), made.record([0.0, 0.5, 0.75, 0.75])
    both = {1: (slow, quick), 2: (made.record([0.0, 0.25, 0.5, 1.0]), made.record([0.0, 0.5, 0.75, 1.0]))}

    found = saving(both, [0.5, 0.9], "steps")

    # half way after one step of two, in both seeds; 0.9 is reached in the second alone, at the same cost or nearly so
    assert found.partial == (1,)
    assert (found.failed, found.bounds, found.void) == ((), (), ())
    assert found.estimate is not None
    assert found.estimate.values[0] == pytest.approx(50)
    assert found.estimate.values[1] < 50


def test_tables_have_a_place_for_what_is_missing_and_what_is_large() -> None:
    study = _sooner([_to_half(20), _to_half(80)], [_to_half(10), _to_half(10)])

    rows = claims.details([_judgement(study, "6e")])

    assert rows[0][2:7] == ["explicit, at 50 %", "+75.0", "-1.67e+05 to +100.0", "% saved", "2"]
    assert rows[1][2:8] == ["implicit, no milestone", "–", "–", "% saved", "0", NOT_RUN]
    assert rows[1][8] == "no milestones for usps implicit; nothing measured of uniform-implicit, cfcl-implicit"
    assert markdown_table(["a"], [["x | y"]]) == "| a |\n| --- |\n| x \\| y |"


def test_two_seeds_that_agree_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    study = _whole(1)
    assert _judgement(study, "5c").verdict == SUPPORTED

    monkeypatch.setattr(verdicts, "FEWEST_SEEDS", 3)

    found = _judgement(study, "5c")
    assert found.verdict == UNDECIDED
    assert {item.note for item in found.findings} == {"too few seeds"}
