from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cfcl.errors import CfclError
from cfcl.runs import forecast
from cfcl.sim import world
from cfcl.study import claims, hours, plan
from cfcl.study.bundle import Cell
from cfcl.study.figures import FIGURES, faults, variations
from cfcl.study.figures.figure import METHODS
from cfcl.study.figures.steps import YARDSTICKS
from cfcl.study.profiles import PROFILES, Panel
from tests.study import made

FULL = PROFILES["full"]


def test_methods_of_a_seed_share_everything_but_the_exchange() -> None:
    runs = {cell.method: run for cell, run in plan.plan(FULL, ["fig5"], ["usps"], [1])}

    assert set(runs) == {*METHODS, *YARDSTICKS}
    base = runs["fedavg"]
    for method, run in runs.items():
        assert run.seed == 1
        assert (run.train, run.aggregation, run.model, run.evaluation) == (
            base.train,
            base.aggregation,
            base.model,
            base.evaluation,
        )
        if method != "centralised":
            assert (run.partition, run.graph) == (base.partition, base.graph)


def test_figures_share_runs_where_they_can() -> None:
    digests = {
        figure: {cell.digest for cell, _ in plan.plan(FULL, [figure], ["usps"], [1])}
        for figure in ("fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10")
    }
    pilots = {cell.digest for cell, _ in plan.plan(FULL, ["fig6"], ["usps"], [1]) if cell.seed == FULL.pilot}

    assert digests["fig4"] <= digests["fig5"]
    assert digests["fig7"] <= digests["fig4"]
    assert digests["fig6"] - pilots <= digests["fig5"]
    # all ten devices, the reserve and the period of the preset: the runs of figure 5 again
    assert len(digests["fig8"] & digests["fig5"]) == len(METHODS)
    assert len(digests["fig9"] & digests["fig5"]) == 2
    assert len(digests["fig10"] & digests["fig5"]) == 2


def test_the_pilot_is_only_what_sets_milestones_and_comes_first() -> None:
    found = plan.plan(FULL, ["fig6"], ["usps"], [1, 2])

    assert [cell.method for cell, _ in found[:2]] == ["uniform-explicit", "uniform-implicit"]
    assert [cell.seed for cell, _ in found] == [FULL.pilot] * 2 + [1] * len(METHODS) + [2] * len(METHODS)
    assert FULL.pilot not in (*FULL.seeds, *FULL.regime_seeds)


def test_the_regime_is_studied_on_seeds_that_are_not_reported() -> None:
    for profile in PROFILES.values():
        assert not {*profile.regime_seeds} & {*profile.seeds, profile.pilot}


def test_evaluations_keep_their_distance_when_the_aggregation_period_changes() -> None:
    found = plan.plan(FULL, ["fig10"], ["usps"], [1])

    # every 50 steps, or at every aggregation if those are rarer
    every = {run.aggregation.period: run.evaluation.every for _, run in found}
    assert every == {10: 5, 25: 2, 50: 1, 100: 1}


def test_every_variation_is_one_of_its_kind_and_differs_from_the_base() -> None:
    found = plan.plan(FULL, ["regime"], seeds=[100])
    names = [item.name for item in variations.VARIATIONS]

    assert len(set(names)) == len(names)
    assert {cell.panel for cell, _ in found} == {"fashion-mnist", "usps"}
    exchanging = [cell for cell, _ in found if cell.method not in ("fedavg", "centralised")]
    assert len({cell.digest for cell in exchanging}) == len(exchanging)
    assert {run.train.steps for _, run in found} == {variations.STEPS}


def test_variations_of_exchange_alone_share_the_runs_without_exchange() -> None:
    found = {
        cell.settings["variation"]: cell.digest
        for cell, _ in plan.plan(PROFILES["quick"], ["regime"], seeds=[100])
        if cell.method == "fedavg"
    }

    assert found["margin 1, n = 2, buffer kept"] == found["margin 1"]
    assert found["margin 1, regulariser's weight 3"] == found["margin 1"]
    assert found["margin 1"] != found["base"]


def test_plans_are_merged_into_what_one_plan_would_be() -> None:
    def cells(figures: list[str], panels: list[str], seeds: list[int]) -> list[Cell]:
        return [cell for cell, _ in plan.plan(FULL, figures, panels, seeds)]

    whole = cells(["fig6", "fig11"], ["fashion-mnist", "usps"], [1, 7])
    parts = cells(["fig11"], ["usps"], [7]) + cells(["fig6", "fig11"], ["usps", "fashion-mnist"], [7, 1])
    read = [replace(cell, settings=dict(sorted(cell.settings.items()))) for cell in parts]  # as a file has them
    foreign = [replace(whole[0], panel="mnist"), replace(whole[-1], digest="of another time")]
    kept = replace(made.study({}), cells=(*read[:9], *foreign))

    assert plan.merged(FULL, kept, read[9:]) == whole


def test_where_the_data_lie_changes_no_digest() -> None:
    here = plan.plan(FULL, ["fig4"], ["usps"], [1])
    there = plan.plan(FULL, ["fig4"], ["usps"], [1], ["data.dir='/elsewhere'"])

    assert [cell for cell, _ in here] == [cell for cell, _ in there]
    assert {str(run.data.dir) for _, run in there} == {"/elsewhere"}


def test_a_shortened_panel_is_as_long_as_it_says() -> None:
    run = Panel("usps", interval=20, steps=60).config("bulk-implicit", 3, ["exchange.num_pulled=2"])

    assert (run.train.steps, run.evaluation.every, run.method, run.seed) == (60, 2, "bulk-implicit", 3)
    assert run.exchange.num_pulled == 2


@pytest.mark.parametrize(
    ("figures", "panels", "seeds", "complaint"),
    [
        (["fig12"], [], [], "'fig12' is not a figure of the study: choose from fig4, "),
        (["regime"], [], [], "'regime' is not part of this profile"),
        (["fig4"], ["mnist"], [], "--panels 'mnist' is not in this profile: choose from digits"),
        (["fig4"], [], [9, 10], "--seeds 10 is the pilot, which sets milestones and is not reported: choose others"),
    ],
)
def test_what_there_is_not_is_refused(figures: list[str], panels: list[str], seeds: list[int], complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        plan.check(PROFILES["smoke"], figures, panels, seeds)


REGISTERED = PROFILES["registered"]
WHOLE = plan.plan(REGISTERED, plan.named(["all"], REGISTERED))


def test_all_is_every_figure_of_the_profile() -> None:
    paper = ["fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11"]
    assert all(plan.named(["all"], PROFILES[name]) == paper for name in ("smoke", "quick", "full"))
    assert plan.named(["fig5", "all", "regime"], FULL)[0] == "fig5"
    assert set(FIGURES) == {*plan.named(["all"], REGISTERED), "regime"}


def test_what_matters_most_is_run_first() -> None:
    done = list(dict.fromkeys((cell.figure, cell.panel) for cell, _ in WHOLE if cell.seed != REGISTERED.pilot))

    assert WHOLE[0][0].seed == REGISTERED.pilot
    assert done[:6] == [
        ("gains", "usps-common"),
        ("gains", "usps"),
        ("redundancy", "usps"),
        ("foretold", "usps"),
        ("frontier", "usps-common"),
        ("equal", "usps-common"),
    ]
    assert done.index(("fig6", "usps-paper")) < done.index(("fig11", "usps-study")) < done.index(("fig5", "svhn"))


def test_the_plan_counts_each_run_once_and_fits() -> None:
    found = hours.rows(REGISTERED, [cell for cell, _ in WHOLE])

    assert sum(row.runs for row in found) == len({cell.digest for cell, _ in WHOLE})
    assert sum(row.seconds for row in found) <= 15 * 2 * 3600  # fifteen hours of two cores
    by_place = {(row.figure, row.panel): row for row in found}
    # seven methods and twelve seeds at 55 seconds; then six methods and four shares, of which one is that panel
    assert by_place["gains", "usps-common"].words[2:] == ["7", "7", "12", "84", "55", "1.28"]
    assert by_place["redundancy", "usps"].words[2:] == ["6", "24", "8", "144", "55", "2.20"]
    assert by_place["foretold", "usps"].words[2:] == ["3", "12", "8", "0", "–", "0.00"]


def test_the_published_plan_is_that_of_the_profile() -> None:
    # if this fails: `cfcl reproduce all --profile registered --plan docs/study/plan.md`
    published = Path(__file__).parents[2] / "docs" / "study" / "plan.md"

    assert published.read_text(encoding="utf-8") == hours.text("registered")


def test_a_profile_without_known_times_has_no_plan() -> None:
    with pytest.raises(CfclError, match="the runs of profile 'smoke' have no known times: choose --profile registered"):
        hours.text("smoke")


def test_every_claim_of_the_paper_has_eight_seeds_on_usps() -> None:
    for claim in claims.load()[1]:
        figure = FIGURES[claim.figure]
        there = claim.on or [panel for panel in figure.panels(REGISTERED) if panel in ("usps-paper", "usps-study")]
        assert there, claim.id
        assert set(there) <= set(figure.panels(REGISTERED)), claim.id
        if claim.whose != "ours":
            assert all(len(figure.seeds_of(REGISTERED, panel)) >= 8 for panel in there), claim.id


def test_uniform_exchange_at_the_bytes_of_a_rule_sends_a_little_more() -> None:
    runs = {cell.method: run for cell, run in WHOLE if (cell.figure, cell.panel) == ("equal", "digits-common")}
    uniform, cover, bulk = (
        forecast.Forecast(world.build(runs[f"{name}-explicit"]), 1, 0.0).bytes_d2d
        for name in ("uniform", "cover", "bulk")
    )

    # by link: 29 × 2 items of 64 bytes; 23 × 2 and ten reserve points, which cover sends with radii of four bytes each
    assert (uniform, cover, bulk) == (70 * 29 * 2 * 64, 70 * (56 * 64 + 10 * 4), 70 * 56 * 64)
    # so 3,712 against 3,624 bytes on digits, and 14,848 against 14,376 on USPS: 2.4 and 3.3 % more


def test_the_registered_study_uses_seeds_on_which_nothing_was_chosen() -> None:
    runs = WHOLE
    seeds = {cell.seed for cell, _ in runs}
    assert seeds == {*range(200, 220), 299}
    assert {cell.seed for cell, run in runs if run.data.validation} == set()
    counts = Counter((figure, panel) for figure, panel, _ in {(cell.figure, cell.panel, cell.seed) for cell, _ in runs})
    assert counts["fig5", "usps"] == counts["fig5", "usps-common"] == counts["fig5", "usps-paper"] == 12
    assert counts["fig6", "usps-study"] == 13  # and the pilot
    assert counts["fig9", "usps-study"] == counts["redundancy", "usps"] == 8
    assert (counts["frontier", "usps-common"], counts["fig5", "svhn"]) == (8, 3)


def test_figures_of_the_registered_study_share_runs() -> None:
    digests = {
        figure: {cell.digest for cell, _ in plan.plan(REGISTERED, [figure]) if cell.seed == 200}
        for figure in ("fig5", "redundancy", "frontier", "fig8")
    }

    # common data of a share of 0.8, and of one budget, are those of a panel; all ten devices are those of another
    assert len(digests["redundancy"] & digests["fig5"]) == 6
    assert len(digests["frontier"] & digests["fig5"]) == 5
    assert len(digests["fig8"] & digests["fig5"]) == 9


def test_runs_without_faults_are_those_of_other_figures() -> None:
    planned = plan.plan(REGISTERED, ["faults"], seeds=[200])
    mine = {(cell.method, cell.settings["faults"]): run for cell, run in planned}
    others = {cell.digest for cell, _ in plan.plan(REGISTERED, ["fig5"], seeds=[200])}

    # five methods; nothing, two rates of absence, two of loss, and both at once
    assert len(mine) == 5 * 6
    shared = {key for key, run in mine.items() if run.digest in others}
    assert shared == {(method, "none") for method in faults.METHODS}
    both = mine["cfcl-explicit", "30 % offline, 20 % lost"]
    assert (both.faults.offline, both.faults.loss, both.faults.straggling) == (0.3, 0.2, 0.0)
    assert FIGURES["faults"].seeds_of(REGISTERED, "usps") == (200, 201, 202)
    assert len(plan.plan(PROFILES["smoke"], ["faults"])) == 3 * 2 * 2  # methods, rates, seeds
    with pytest.raises(CfclError, match=r"'faults' is not part of this profile: choose --profile smoke or registered$"):
        plan.check(FULL, ["faults"], [], [])


def test_the_paper_is_judged_in_its_own_settings() -> None:
    panels = REGISTERED.panels
    printed = panels["usps-paper"].config("cfcl-implicit", 200, [])

    assert (printed.exchange.num_pulled, printed.exchange.buffer, printed.model.embedding_dim) == (10, "purge", 16)
    assert (printed.exchange.num_reserve, printed.exchange.num_candidates) == (10, 100)
    assert printed.evaluation.labels_per_class == ()
    assert panels["usps"].config("fedavg", 200, []).evaluation.labels_per_class == (10,)


def test_figures_that_a_profile_does_not_place_are_refused() -> None:
    with pytest.raises(CfclError, match="'redundancy' is not part of this profile"):
        plan.check(FULL, ["redundancy"], [], [])
    with pytest.raises(CfclError, match="'exchanges' is not part of this profile"):
        plan.check(PROFILES["smoke"], ["exchanges"], [], [])
    with pytest.raises(CfclError, match="'regime' is not part of this profile"):
        plan.check(REGISTERED, ["regime"], [], [])


def test_a_figure_is_named_at_one_place_of_the_source() -> None:
    source = Path(plan.__file__).parent
    for figure in FIGURES:
        found = [path.name for path in source.rglob("*.py") if f'"{figure}"' in path.read_text(encoding="utf-8")]
        assert len(found) == 1, (figure, found)
