import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfcl import methods
from cfcl.runs import style
from cfcl.study import figures, layout, names, pages, report
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures import distances, gains
from cfcl.study.profiles import PROFILES
from tests.study import made

FIGURES = (
    "fig4",
    "fig5",
    "fig6",
    "fig7",
    "fig8",
    "fig9",
    "fig10",
    "fig11",
    "regime",
    "gains",
    "redundancy",
    "frontier",
    "faults",
)
LOW, HIGH = (0.5, 0.5, 0.5), (0.5, 0.75, 1.0)


def everything(num_seeds: int = 2) -> Study:
    """All figures, with as few places as tell them apart."""
    low, high = [LOW] * num_seeds, [HIGH] * num_seeds
    mapped = [made.record(HIGH, separation=2.0, labels=(0, 1), distances=((0.5, 1.0), (1.0, 0.5)))] * num_seeds
    both = ("explicit", "implicit")
    places: dict[made.Spot, Sequence[Sequence[float] | Measured | None]] = {
        ("fig4", "digits", "fedavg"): mapped,
        ("fig4", "digits", "cfcl-explicit"): mapped,
        **{(figure, "digits", "fedavg"): low for figure in ("fig5", "fig6")},
        **{(figure, "digits", f"cfcl-{mode}"): high for figure in ("fig5", "fig6") for mode in both},
        **{("fig6", "digits", f"uniform-{mode}"): high for mode in both},
        **{("fig8", "digits", f"cfcl-{mode}", ("devices", number)): high for mode in both for number in (2, 10)},
        **{("fig9", "digits", "cfcl-explicit", ("reserve", kind), ("size", 5)): high for kind in ("kmeans", "random")},
        ("fig10", "digits", "cfcl-implicit", ("importance", "local"), ("period", 10)): high,
        ("fig11", "digits", "cfcl-explicit", ("labels", 1), ("degree", 2)): high,
        **{
            ("redundancy", "digits", f"{method}-explicit", ("share", share)): curve
            for share in (0.0, 0.8)
            for method, curve in (("uniform", low), ("cover", high), ("oracle", high))
        },
        ("faults", "digits", "cfcl-explicit", ("faults", "none")): high,
        ("faults", "digits", "cfcl-explicit", ("faults", "20 % lost")): low,
        **{("gains", "digits", method): low for method in ("fedavg", "uniform-explicit")},
        ("gains", "digits", "cover-explicit"): high,
        ("frontier", "digits", "fedavg"): low,
        ("frontier", "digits", "uniform-explicit", ("n", 2), ("reserve", 10)): low,
        **{("frontier", "digits", "cover-explicit", ("n", 2), ("reserve", size)): high for size in (5, 10)},
        ("regime", "digits", "uniform-explicit", ("variation", "base")): low,
        ("regime", "digits", "cfcl-explicit", ("variation", "base")): high,
    }
    return made.study(
        places,
        milestones={"digits explicit": [0.625], "digits implicit": [0.625]},
        selections=[made.selection("cfcl-explicit", distance=0.25, held=0.5)],
    )


@cache
def whole() -> report.Report:
    """All of it, drawn once."""
    return report.compose(everything())


def _curve(axes: Axes, colour: str) -> Line2D:
    return next(line for line in axes.lines if to_hex(str(line.get_color())) == colour.lower())


def _y(line: Line2D) -> list[float]:
    return list(np.asarray(line.get_ydata(), dtype=float))


def _legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def _titles(figure: Figure) -> list[str]:
    return [axes.get_title("left") for axes in figure.axes]


def _texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def _segments(axes: Axes) -> list[list[list[float]]]:
    """The whiskers in a panel."""
    found: Any = axes.collections
    return [np.asarray(part).round(3).tolist() for lines in found for part in lines.get_segments()]


def test_every_figure_is_drawn_and_saved_with_the_same_bytes(tmp_path: Path) -> None:
    *written, _, _ = pages.write(whole(), tmp_path / "one")  # no panel of it stands for the study
    pages.write(report.compose(everything()), tmp_path / "other")

    names = [f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
    assert [path.name for path in written] == names
    for path in written:
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert text.startswith('<?xml version="1.0" encoding="utf-8"?>\n<svg ')
            assert ElementTree.fromstring(text.encode()).tag == "{http://www.w3.org/2000/svg}svg"
            sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:[a-z0-9]+ )*([0-9.]+)px", text)]
            assert len(sizes) > 10
            assert min(sizes) >= 8


def test_figures_without_a_finished_run_are_left_out() -> None:
    assert figures.draw(replace(everything(), runs={}, selections=())) == {}


def test_one_seed_is_enough_for_every_figure() -> None:
    assert set(figures.draw(everything(1))) == set(FIGURES)


def test_methods_are_named_for_what_they_are() -> None:
    words = [
        "oracle-implicit",
        "zebra-explicit",
        "novel-explicit",
        "bulk-implicit",
        "centralised",
        "fedavg",
        "tiger-x",
    ]

    assert [methods.parse(word).title for word in methods.ordered(words)] == [
        *("FedAvg", "bulk", "novel (ours)", "tiger (ours)", "zebra (ours)"),
        *("centralised (yardstick)", "oracle (yardstick)"),
    ]
    looks = layout.looks(["cfcl-implicit", "oracle-implicit", "zebra-implicit"])
    assert looks["cfcl-implicit"] == style.LOOKS["cfcl-explicit"]
    assert (looks["oracle-implicit"].colour, looks["oracle-implicit"].line) == (style.GREY, "--")
    assert looks["zebra-implicit"] not in style.LOOKS.values()


def test_fig4_averages_seeds_and_has_one_scale_a_row() -> None:
    def mapped(first: float, other: float, separation: float, labels: Sequence[int] = (3, 7)) -> Measured:
        distances = ((first, other), (other, first))
        return made.record(HIGH, labels=tuple(labels), distances=distances, separation=separation)

    figure = figures.draw(
        made.study(
            {
                ("fig4", "digits", "fedavg"): [mapped(1.0, 2.0, 2.0), mapped(2.0, 4.0, 3.0)],
                ("fig4", "digits", "cfcl-explicit"): [mapped(0.5, 8.0, 16.0), mapped(0.5, 8.0, 18.0)],
                ("fig4", "usps", "fedavg"): [mapped(0.25, 0.5, 2.0), mapped(9.0, 9.0, 2.0, labels=(7, 8))],
                ("fig4", "usps", "cfcl-explicit"): [None],
                ("fig4", "svhn", "cfcl-explicit"): [None],
            }
        )
    )["fig4"]

    first, second, third, blank, *bars = figure.axes
    assert _titles(figure)[:3] == [
        "digits, FedAvg\nseparation 2.50 (2 seeds)",
        "digits, CF-CL explicit\nseparation 17.00 (2 seeds)",
        "usps, FedAvg\nseparation 2.00 (2 seeds)",
    ]
    assert np.asarray(first.images[0].get_array()).tolist() == [[1.5, 3.0], [3.0, 1.5]]
    assert first.images[0].get_clim() == second.images[0].get_clim() == (0.5, 8.0)
    # label 7 is in both runs: 0.25 in one, 9 in the other
    assert np.asarray(third.images[0].get_array()).tolist() == [[4.625]]
    assert [text.get_text() for text in third.get_xticklabels()] == ["7"]
    assert _texts(blank) == ["usps, CF-CL explicit:\nno finished run"]
    assert len(bars) == 2


def test_fig4_without_a_common_label_has_no_map() -> None:
    one = made.record(HIGH, labels=(1,), distances=((0.5,),))

    assert distances.mean_map([one, replace(one, labels=(2,))]) is None


def test_fig5_has_intervals_of_the_mean_from_three_seeds_on() -> None:
    figure = figures.draw(
        made.study(
            {
                ("fig5", "usps", "fedavg"): [LOW, LOW, LOW],
                ("fig5", "usps", "cfcl-explicit"): [(0.5, 0.6, 0.5), (0.5, 0.6, 0.6), (0.5, 0.6, 0.7)],
                ("fig5", "usps", "uniform-implicit"): [(0.5, 0.5, 0.25), None, (0.5, 0.5, 0.75)],
                ("fig5", "usps", "novel-explicit"): [None, None, None],
                ("fig5", "usps", "oracle-explicit"): [HIGH, None, None],
                ("fig5", "usps", "centralised"): [HIGH, HIGH, HIGH],
                ("fig5", "digits", "cfcl-explicit"): [(0.25, 0.5)],
                ("fig5", "digits", "cfcl-implicit"): [None],
            }
        )
    )["fig5"]

    explicit, implicit, digits, empty = figure.axes
    assert _titles(figure) == ["usps, explicit", "usps, implicit", "digits, explicit", "digits, implicit"]
    assert explicit.get_title("right") == "1–3 seeds, bands: 95 % or range"
    assert implicit.get_title("right") == "2 seeds, bands: range"
    assert digits.get_title("right") == "1 seed"
    assert _texts(empty) == ["no finished run"]
    assert _y(_curve(explicit, style.BLUE)) == pytest.approx([50, 60, 60])
    assert _y(_curve(digits, style.BLUE)) == [25, 50]
    # FedAvg and CF-CL have bands; yardsticks have none, nor a say in the seeds; 4.30265 * 10 / sqrt(3) = 24.841
    corners = [np.asarray(band.get_paths()[0].vertices).round(3).tolist() for band in explicit.collections]
    assert len(corners) == 2
    assert [20, 35.159] in corners[1]
    assert [20, 84.841] in corners[1]
    # two seeds: from the lower to the higher one
    ranges = [np.asarray(band.get_paths()[0].vertices).tolist() for band in implicit.collections]
    assert [20, 25] in ranges[1]
    assert [20, 75] in ranges[1]
    yardsticks = [line for line in explicit.lines if line.get_linewidth() == 1.0]
    assert [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in yardsticks] == [
        (style.GREY, ":", ""),
        (style.GREY, "--", ""),
    ]
    assert len(implicit.lines) == 3  # FedAvg and centralised stand beside both modes
    assert sorted(_texts(explicit)) == ["CF-CL", "FedAvg", "centralised (yardstick)", "oracle (yardstick)"]
    assert explicit.get_ylim() == implicit.get_ylim()


def test_a_panel_shows_the_seeds_that_all_its_methods_have() -> None:
    low, high = (0.25, 0.25, 0.25), (0.75, 0.75, 0.75)
    curves = {"fedavg": [high, low, None], "cfcl-explicit": [None, LOW, high], "uniform-implicit": [None, None, LOW]}
    drawn = figures.draw(
        made.study(
            {
                **{("fig5", "usps", method): found for method, found in curves.items()},
                **{("fig6", "usps", method): found for method, found in curves.items()},
                **{("fig8", "usps", method, ("devices", 2)): found for method, found in curves.items()},
            },
            milestones={"usps explicit": [0.5]},
        )
    )

    # explicit: seed 2 is in both; implicit: no seed is, so that each method shows what it has
    explicit, implicit = drawn["fig5"].axes
    assert [_y(line)[0] for line in explicit.lines] == [25, 50]
    assert explicit.get_title("right") == "1 seed"
    assert [_y(line)[0] for line in implicit.lines] == [50, 50]
    assert implicit.get_title("right") == "1–2 seeds, bands: range"
    assert _y(_curve(drawn["fig8"].axes[0], style.BLACK)) == [25]


def test_fig5_has_a_panel_for_every_mode_that_travels_and_none_for_others() -> None:
    study = made.study(
        {
            ("fig5", "usps", "fedavg"): [LOW],
            ("fig5", "usps", "cfcl-explicit"): [HIGH],
            ("fig5", "svhn", "uniform-explicit"): [(0.5, 0.6)],
            ("fig5", "dial", "uniform-activations"): [HIGH],
            ("fig5", "dial", "cover-implicit"): [(0.25, 0.5)],
            ("fig5", "digits", "fedavg"): [LOW],
            ("fig5", "digits", "cfcl-implicit"): [HIGH],
        }
    )

    drawn = figures.draw(study)["fig5"].axes

    assert [axes.get_title("left") for axes in drawn] == [
        *("usps, explicit", "svhn, explicit"),
        *("dial, activations", "dial, implicit"),
        "digits, implicit",
    ]
    assert [[text.get_text() for text in axes.texts] for axes in drawn] == [
        ["FedAvg", "CF-CL"],
        ["uniform"],
        ["uniform"],
        ["cover (ours)"],
        ["FedAvg", "CF-CL"],
    ]
    (usps, svhn, activations, implicit, _) = drawn
    assert activations.get_ylim() == implicit.get_ylim()  # of one panel
    assert usps.get_ylim() != svhn.get_ylim()


def test_fig5_draws_the_steps_that_all_seeds_have() -> None:
    early = made.record((0.25, 0.5, 0.75), every=5)

    figure = figures.draw(made.study({("fig5", "usps", "cfcl-implicit"): [early, (0.75, 1.0)]}))["fig5"]

    (axes,) = figure.axes
    # one has the steps 0, 5, 10, the other 0 and 10
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [0, 10]
    assert _y(axes.lines[0]) == [50, 87.5]


def test_fig6_shows_what_is_saved_against_uniform_exchange_or_says_why_not() -> None:
    late, silent = (0.5, 0.5, 0.75), {"push": 0, "pull": 0}
    figure = figures.draw(
        made.study(
            {
                ("fig6", "usps", "fedavg"): [made.record(LOW, **silent)] * 3,
                ("fig6", "usps", "cfcl-explicit"): [HIGH, HIGH, HIGH],
                ("fig6", "usps", "uniform-explicit"): [HIGH, late, HIGH],
                ("fig6", "usps", "kmeans-explicit"): [HIGH, HIGH, LOW],
                ("fig6", "usps", "bulk-explicit"): [None, None, None],
                ("fig6", "usps", "oracle-explicit"): [HIGH, HIGH, HIGH],
            },
            milestones={"usps explicit": [0.625]},
        )
    )["fig6"]

    sent, seconds = figure.axes
    assert sent.get_xlim() == seconds.get_xlim()
    assert [text.get_text() for text in sent.get_yticklabels()] == ["to 62.5 %:   FedAvg", "CF-CL", "K-means"]
    for axes in figure.axes:
        assert [text for text in _texts(axes) if text] == ["never reached", "not reached in 1 of 3 seeds"]
        (dot,) = [line for line in axes.lines if line.get_marker() == "s"]
        # HIGH crosses 0.625 at step 5 of 20, late at step 15: a third in one of three seeds, so log2(3) / 3 doublings
        assert np.asarray(dot.get_xdata()).tolist() == pytest.approx([0.5283208])
        assert _y(dot) == [1]
    assert (sent.get_title(), seconds.get_title("right")) == ("", "3 seeds, bars: 95 %")
    assert [text.get_text() for text in sent.get_xticklabels()][-2:] == ["50", "75"]


def test_fig6_says_where_uniform_exchange_did_not_get_there() -> None:
    study = made.study(
        {
            ("fig6", "usps", "cfcl-explicit"): [HIGH, HIGH, LOW],
            ("fig6", "usps", "uniform-explicit"): [LOW, HIGH, LOW],
            ("fig6", "usps", "bulk-explicit"): [LOW, HIGH, LOW],
        },
        milestones={"usps explicit": [0.625, 1.0], "usps implicit": [0.5]},
    )

    sent, seconds = figures.draw(study)["fig6"].axes

    # in seed 1 uniform exchange never gets there, in seed 3 neither does
    notes = ["at least, 2 of 3 seeds", "1 of 3 seeds"] * 2
    assert [text for text in _texts(seconds) if text] == notes
    assert [text for text in _texts(sent) if text] == []
    never = made.study(
        {("fig6", "usps", f"{method}-explicit"): [LOW] for method in ("cfcl", "uniform")},
        milestones={"usps explicit": [0.625]},
    )
    assert _texts(figures.draw(never)["fig6"].axes[0]) == ["never reached, nor by uniform"]
    at_once = replace(never, about={**never.about, "milestones": {"usps explicit": [0.5]}})
    assert _texts(figures.draw(at_once)["fig6"].axes[0]) == ["reached before anything was sent"]


def test_fig6_shows_half_as_far_from_nothing_as_double() -> None:
    def at(mine: Sequence[float], theirs: Sequence[float]) -> float:
        places = {("fig6", "usps", "cfcl-explicit"): [mine], ("fig6", "usps", "uniform-explicit"): [theirs]}
        axes = figures.draw(made.study(places, milestones={"usps explicit": [0.75]}))["fig6"].axes[0]
        return float(np.asarray(next(line for line in axes.lines if line.get_marker() == "s").get_xdata())[0])

    early, late = (0.5, 0.75, 0.75), (0.5, 0.5, 0.75)  # at step 10, and at step 20
    assert (at(early, late), at(late, early)) == (1.0, -1.0)


def test_fig7_pools_the_items_of_all_worlds_but_the_pilots() -> None:
    figure = figures.draw(
        made.study(
            {},
            selections=[
                made.selection("cfcl-explicit", distance=0.25, held=0.5),
                made.selection("cfcl-explicit", seed=2, items=30, distance=0.5, held=0.25, histogram=(30,)),
                made.selection("cfcl-explicit", seed=made.PILOT, distance=9.0, held=1.0),
                made.selection("uniform-explicit", distance=0.125, held=0.75),
                made.selection("uniform-implicit", panel="usps", distance=0.125, held=0.75),
            ],
        )
    )["fig7"]

    both, nothing, _, usps = figure.axes
    assert _titles(figure) == ["digits, explicit", "digits, implicit", "usps, explicit", "usps, implicit"]
    assert both.get_title("right") == "1–2 seeds"
    legend = both.get_legend()
    assert legend is not None
    # (10 * 0.25 + 30 * 0.5) / 40 = 0.4375 and (10 * 0.5 + 30 * 0.25) / 40 = 0.3125
    assert [text.get_text() for text in legend.get_texts()] == [
        "CF-CL: mean 0.438, 31 % held already",
        "uniform: mean 0.125, 75 % held already",
    ]
    stairs: Any = both.patches[0]
    # 30 items in the first bin, 3 in the second, 7 in the fifth, of 40
    assert list(stairs.get_data().values) == [0.75, 0.075, 0, 0, 0.175]
    assert list(stairs.get_data().edges) == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.25])
    means: Any = both.collections[0]
    assert [part[0][0] for part in means.get_segments()] == [0.4375, 0.125]
    assert _texts(nothing) == ["no selections"]
    assert len(usps.patches) == 1


def test_fig8_has_a_line_a_method_over_evenly_spaced_numbers() -> None:
    figure = figures.draw(
        made.study(
            {
                ("fig8", "usps", "fedavg", ("devices", 10)): [LOW, LOW, LOW],
                ("fig8", "usps", "fedavg", ("devices", 2)): [(0.25, 0.25, 0.25)] * 3,
                ("fig8", "usps", "cfcl-implicit", ("devices", 10)): [(0.5, 0.5, 0.8)] * 3,
                ("fig8", "usps", "cfcl-implicit", ("devices", 2)): [None],
                ("fig8", "usps", "uniform-implicit", ("devices", 10)): [(0.55, 0.55, 0.55)] * 3,
                ("fig8", "usps", "uniform-implicit", ("devices", 2)): [(0.4, 0.4, 0.4)] * 3,
            }
        )
    )["fig8"]

    level, more = figure.axes
    assert level.get_title("left") == "usps, implicit: mean accuracy (%)"
    assert [text.get_text() for text in level.get_xticklabels()] == ["2", "10"]
    assert _y(_curve(level, style.BLACK)) == [25, 50]
    # (0.5 * 10 + 0.65 * 10) / 20
    assert _y(_curve(level, style.BLUE)) == pytest.approx([57.5])
    assert np.asarray(_curve(level, style.BLUE).get_xdata()).tolist() == [1]
    # uniform exchange has 40 and 55: FedAvg is 15 and 5 below it, CF-CL 2.5 above
    assert _y(_curve(more, style.BLACK)) == pytest.approx([-15, -5])
    assert _y(_curve(more, style.BLUE)) == pytest.approx([2.5])
    assert more.get_title("right") == "3 seeds, bars: 95 %"
    assert sorted(_texts(level)) == ["CF-CL", "FedAvg", "uniform"]
    assert sorted(_texts(more)) == ["CF-CL", "FedAvg"]
    # a point is equally tall in both
    spans = [high - low for low, high in (axes.get_ylim() for axes in figure.axes)]
    assert spans[0] == pytest.approx(spans[1])


def test_figs_9_to_11_have_a_line_a_value() -> None:
    def places(figure: str, key: str, axis: str, *values: Any) -> dict[made.Spot, Sequence[Sequence[float]]]:
        return {
            (figure, "usps", "cfcl-explicit", (key, value), (axis, 5)): [(0.25 * place, 0.25 * place, 0.25 * place)]
            for place, value in enumerate(values, start=1)
        }

    drawn = figures.draw(
        made.study(
            {
                **places("fig9", "reserve", "size", "kmeans", "random"),
                **places("fig10", "importance", "period", "global", "local"),
                **places("fig11", "degree", "labels", 8, 2),
            }
        )
    )

    assert sorted(_texts(drawn["fig9"].axes[0])) == ["K-means reserve", "random reserve"]
    assert sorted(_texts(drawn["fig10"].axes[0])) == ["global model", "local model"]
    assert sorted(_texts(drawn["fig11"].axes[0])) == ["2 neighbours", "8 neighbours"]
    # without uniform exchange, lines are compared with the plain choice
    beside = {name: drawn[name].axes[1] for name in ("fig9", "fig10", "fig11")}
    assert [axes.get_title("left") for axes in beside.values()] == [
        "points over random reserve",
        "points over local model",
        "points over 2 neighbours",
    ]
    assert [_y(axes.lines[0]) for axes in beside.values()] == [[-25], [-25], [-25]]
    for name, expected in (("fig9", [[25], [50]]), ("fig10", [[25], [50]]), ("fig11", [[50], [25]])):
        assert [_y(line) for line in drawn[name].axes[0].lines] == expected


def test_in_fig_10_a_choice_that_needs_no_model_is_named_without_one() -> None:
    def places(method: str, value: str, level: float) -> dict[made.Spot, Sequence[Sequence[float]]]:
        return {("fig10", "usps", method, ("importance", value), ("period", 5)): [(level, level, level)]}

    figure = figures.draw(
        made.study(
            {
                **places("cfcl-explicit", "global", 0.5),
                **places("cfcl-explicit", "local", 0.25),
                **places("uniform-explicit", "global", 0.75),
                **places("fedavg", "global", 0.125),
            }
        )
    )["fig10"]

    assert sorted(_texts(figure.axes[0])) == ["CF-CL, global model", "CF-CL, local model", "FedAvg", "uniform"]
    assert figure.axes[1].get_title("left") == "points over uniform exchange"


def test_regime_compares_with_uniform_and_takes_it_from_the_base_where_it_did_not_run_again() -> None:
    def level(*percents: int) -> list[Sequence[float]]:
        return [(percent / 100,) * 3 for percent in percents]

    figure = figures.draw(
        made.study(
            {
                ("regime", "usps", "fedavg", ("variation", "base")): level(40, 40, 40),
                ("regime", "usps", "uniform-explicit", ("variation", "base")): level(50, 50, 50),
                ("regime", "usps", "cfcl-explicit", ("variation", "base")): level(50, 60, 70),
                ("regime", "usps", "oracle-explicit", ("variation", "base")): level(80, 80, 80),
                ("regime", "usps", "cfcl-explicit", ("variation", "4 clusters")): level(60, 60, 60),
                ("regime", "usps", "uniform-explicit", ("variation", "n = 30")): [None],
                ("regime", "usps", "novel-explicit", ("variation", "n = 30")): level(55, 55, 55),
                ("regime", "usps", "uniform-implicit", ("variation", "base")): level(50),
                ("regime", "usps", "cfcl-implicit", ("variation", "base")): level(45),
            }
        )
    )["regime"]

    left, right, _, lone = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["base", "4 clusters", "n = 30"]
    assert _titles(figure) == ["usps, explicit", "against uniform", "usps, implicit", "against uniform"]
    pale = {
        (str(line.get_color()), round(_y(line)[0])): line.get_alpha()
        for line in left.lines
        if line.get_marker() != "None"
    }
    assert pale == {
        **{(style.BLACK, 0): 1.0, (style.BLACK, 1): 0.35, (style.BLACK, 2): 0.35},
        **{(style.VERMILLION, 0): 1.0, (style.VERMILLION, 1): 0.35},  # under `n = 30` it is missing, not left alone
        **{(style.BLUE, 0): 1.0, (style.BLUE, 1): 1.0},
        **{("#7A3B10", 2): 1.0, (style.GREY, 0): 1.0},
    }
    # against 50: 0, 10 and 20 have the mean 10 and reach 24.841; always 10 reaches nothing; the oracle is 30 ahead
    found = [(low[0], high[0]) for low, high in _segments(right)]
    assert found == [(-14.841, 34.841), (10, 10), (30, 30)]
    assert right.get_title("right") == "3 seeds, bars: 95 %"
    assert lone.get_title("right") == "1 seed"
    assert _legend(figure) == ["FedAvg", "CF-CL", "uniform", "novel (ours)", "oracle (yardstick)"]


def test_uniform_exchange_runs_once_whichever_model_scores() -> None:
    def level(percent: float) -> list[Sequence[float]]:
        return [(percent / 100,) * 3]

    drawn = figures.draw(
        made.study(
            {
                ("fig10", "usps", "cfcl-explicit", ("importance", "global"), ("period", 10)): level(60),
                ("fig10", "usps", "cfcl-explicit", ("importance", "local"), ("period", 10)): level(55),
                ("fig10", "usps", "uniform-explicit", ("importance", "global"), ("period", 10)): level(50),
            }
        )
    )["fig10"]

    _, right = drawn.axes
    assert right.get_title("left") == "points over uniform exchange"
    assert [_y(line)[0] for line in right.lines[:2]] == pytest.approx([10, 5])


def test_labels_stay_in_order_and_apart() -> None:
    # 0.1 and 0.12 move to 0.06 and 0.16 around their mean; 0.5 stays
    assert layout.apart([0.1, 0.12, 0.5], 0.1) == pytest.approx([0.06, 0.16, 0.5])
    # all three at one place: around it
    assert layout.apart([0.5, 0.5, 0.5], 0.2) == pytest.approx([0.3, 0.5, 0.7])
    # crowded at the top or at the bottom of a panel they stay inside; where there is no room, they go on above it
    assert layout.apart([0.2, 0.95, 0.95, 0.95], 0.1) == pytest.approx([0.2, 0.8, 0.9, 1.0])
    assert layout.apart([0.0, 0.05], 0.2) == pytest.approx([0.0, 0.2])
    assert layout.apart([0.5, 0.5, 0.5], 0.6) == pytest.approx([0.0, 0.6, 1.2])


def test_gains_in_redundant_data_are_paired_by_seed() -> None:
    study = made.study(
        {
            ("redundancy", "usps", "uniform-explicit", ("share", 0.8)): [(0.2, 0.2), (0.6, 0.6), None],
            ("redundancy", "usps", "cover-explicit", ("share", 0.8)): [(0.3, 0.3), (0.8, 0.8), (0.9, 0.9)],
        }
    )

    left, right = figures.draw(study)["redundancy"].axes

    colour = style.LOOKS["cover-explicit"].colour
    assert _curve(left, colour).get_ydata() == pytest.approx([200 / 3])  # all three seeds
    assert _curve(right, colour).get_ydata() == pytest.approx([15.0])  # 10 and 20 points, in the two that both have


def test_what_faults_cost_is_paired_with_the_same_method_without_them() -> None:
    study = made.study(
        {
            ("faults", "usps", "fedavg", ("faults", "none")): [(0.5, 0.5), (0.6, 0.6), (0.9, 0.9)],
            ("faults", "usps", "fedavg", ("faults", "30 % offline")): [(0.4, 0.4), (0.3, 0.3), None],
            ("faults", "usps", "cfcl-explicit", ("faults", "30 % offline")): [(0.4, 0.4), (0.4, 0.4), (0.4, 0.4)],
        }
    )

    levels, alone, changes, nothing = figures.draw(study)["faults"].axes

    colour = style.LOOKS["fedavg"].colour
    assert _curve(levels, colour).get_ydata() == pytest.approx([200 / 3, 35.0])
    assert _curve(changes, colour).get_ydata() == pytest.approx([-20.0])  # 10 and 30 points, in the two that both have
    assert _curve(changes, colour).get_xdata() == pytest.approx([1])
    assert [axes.get_title("left") for axes in (levels, alone)] == ["FedAvg", "CF-CL, explicit"]
    assert np.asarray(nothing.lines[0].get_xdata()).size == 0  # no run to compare with


def test_the_frontier_counts_all_bytes_between_devices() -> None:
    cover = made.record((0.5, 0.75, 0.75), push=50, pull=150)  # a step; after 20 steps
    blind = made.record((0.5, 0.5, 0.5), push=0, pull=150)
    study = made.study(
        {
            ("frontier", "usps", "uniform-explicit", ("n", 2), ("reserve", 10)): [blind],
            ("frontier", "usps", "cover-explicit", ("n", 2), ("reserve", 10)): [cover],
        }
    )

    axes, beside = figures.draw(study)["frontier"].axes

    assert _curve(axes, style.LOOKS["cover-explicit"].colour).get_xdata() == pytest.approx([4000.0])
    assert _curve(axes, style.LOOKS["uniform-explicit"].colour).get_xdata() == pytest.approx([3000.0])
    assert _texts(beside) == ["no finished run"]  # of uniform exchange with n = 10


def test_the_frontier_has_paired_differences_to_the_most_of_uniform_exchange() -> None:
    def runs(*levels: float, pull: int) -> list[Measured]:
        return [made.record((0.5, level, level), push=0, pull=pull) for level in levels]  # bytes a step; 20 steps

    study = made.study(
        {
            ("frontier", "usps", "uniform-explicit", ("n", 2), ("reserve", 10)): runs(0.5, 0.6, pull=100),
            ("frontier", "usps", "uniform-explicit", ("n", 10), ("reserve", 10)): runs(0.6, 0.7, pull=500),
            ("frontier", "usps", "cover-explicit", ("n", 2), ("reserve", 10)): runs(0.7, 0.9, pull=150),
        }
    )

    _, beside = figures.draw(study)["frontier"].axes

    assert beside.get_title("left") == "points over uniform exchange, n=10"
    assert _y(_curve(beside, style.LOOKS["uniform-explicit"].colour)) == pytest.approx([-10, 0])
    assert _y(_curve(beside, style.LOOKS["cover-explicit"].colour)) == pytest.approx([15])
    assert [[3000, 10], [3000, 20]] in _segments(beside)  # seeds 1 and 2
    (dotted,) = [line for line in beside.lines if line.get_linestyle() == ":"]
    assert list(np.asarray(dotted.get_xdata())) == [7500, 7500]  # 0.75 * 500 * 20


def test_gains_are_over_fedavg_and_over_uniform_exchange_of_the_mode() -> None:
    study = made.study(
        {
            ("gains", "usps", "fedavg"): [(0.2, 0.2), (0.3, 0.3)],
            ("gains", "usps", "uniform-explicit"): [(0.5, 0.5), (0.5, 0.5)],
            ("gains", "usps", "cover-explicit"): [(0.6, 0.6), (0.8, 0.8)],
            ("gains", "usps", "cover-implicit"): [(0.4, 0.4), (0.4, 0.4)],
        }
    )

    left, right = figures.draw(study)["gains"].axes

    colour = style.LOOKS["cover-explicit"].colour
    assert [text.get_text() for text in left.texts] == ["+25.0", "+45.0", "+15.0", "USPS: three kinds per device"]
    assert [text.get_text() for text in right.texts] == [
        "+20.0",  # of the implicit mode there is no uniform exchange
        "2 seeds, bars: range",
    ]
    assert _curve(right, colour).get_xdata() == pytest.approx([20.0])
    assert left.get_xlim() == right.get_xlim()
    assert [text.get_text() for text in left.get_yticklabels()] == [
        "uniform, explicit",
        "cover (ours), explicit",
        "cover (ours), implicit",
    ]


def test_the_picture_that_stands_for_the_study_has_its_two_panels_and_fits_a_readme() -> None:
    pair = {"fedavg": [(0.5, 0.5)], "uniform-explicit": [(0.4, 0.4)]}
    panels = ("usps", "svhn", "usps-common")
    study = made.study({("gains", panel, method): runs for panel in panels for method, runs in pair.items()})

    hero = gains.hero(study)

    assert hero is not None
    headings = [text.get_text() for axes in hero.axes for text in axes.texts if text.get_fontweight() == "bold"]
    assert headings == ["USPS: 80 % of every device's data are of one common kind", "USPS: three kinds per device"]
    assert hero.axes[0].texts[0].get_text() == "\N{MINUS SIGN}10.0"
    # 830 pixels over 7.8 inches are 106 an inch, so that print of 9 points is 13 pixels high
    assert (hero.get_figwidth(), hero.dpi) == (7.8, 200)
    alone = gains.hero(made.study({("gains", "usps-common", method): runs for method, runs in pair.items()}))
    assert alone is not None
    assert len(alone.axes) == 2
    assert gains.hero(made.study({("gains", "svhn", "fedavg"): [LOW]})) is None


def test_every_panel_of_the_registered_study_has_a_name_for_people() -> None:
    assert list(names.PANELS) == [*list(PROFILES["registered"].panels)]
    assert names.of("usps-short") == "usps-short"
