import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfcl.records import Evaluation, Final, Pull, Reason
from cfcl.runs import folders, network, plots, series, style
from tests.runs.conftest import MakeRun, altered

EFFECTIVE, HELD = plots.PULLS[:2]
TRIPLET, REGULARISER = plots.TRAINING[:2]


def _axes(figure: Figure | None) -> Axes:
    assert figure is not None
    return figure.axes[0]


def _curve(axes: Axes, label: str) -> Line2D:
    return next(line for line in axes.lines if line.get_label() == label)


def _x(line: Line2D) -> list[float]:
    return list(np.asarray(line.get_xdata(), dtype=float))


def _y(line: Line2D) -> list[float]:
    return list(np.asarray(line.get_ydata(), dtype=float))


def _legend(figure: Figure | None) -> list[str]:
    assert figure is not None
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_accuracy_is_the_mean_over_seeds_between_its_extremes(make_run: MakeRun) -> None:
    runs = [
        make_run("cfcl-explicit", seed=0, probe=(0.5, 0.625, 0.75)),
        make_run("cfcl-explicit", seed=1, probe=(0.25, 0.625, 0.5)),
        make_run("fedavg", seed=0, probe=(0.5, 0.5, 0.5)),
    ]

    figure = plots.accuracy(runs)

    axes = _axes(figure)
    curve = _curve(axes, "cfcl-explicit")
    assert _x(curve) == [0, 10, 20]
    assert _y(curve) == [0.375, 0.625, 0.625]
    (band,) = axes.collections  # FedAvg has one seed, so no band
    corners = band.get_paths()[0].vertices
    assert {(0, 0.25), (0, 0.5), (20, 0.5), (20, 0.75)} <= {tuple(corner) for corner in np.asarray(corners).tolist()}
    dashed = [_y(line) for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [[0.25, 0.25, 0.25], [0.125, 0.375, 0.375]]  # kNN stands 0.25 lower, FedAvg first
    assert _legend(figure) == ["fedavg", "cfcl-explicit", "(kNN)"]


def test_accuracy_against_bytes_shows_a_silent_method_as_a_level_line(make_run: MakeRun) -> None:
    axes = _axes(plots.accuracy_by_bytes([make_run("fedavg", probe=(0.5, 0.25, 0.375)), make_run("cfcl-implicit")]))

    curve = _curve(axes, "cfcl-implicit")
    # (50 pushed + 150 pulled) per step
    assert _x(curve) == [0, 2000, 4000]
    assert _y(curve) == [0.5, 0.625, 0.75]
    assert _y(_curve(axes, "fedavg (final)")) == [0.375, 0.375]


def test_accuracy_against_delay_adds_the_selection_time_before_each_evaluation(make_run: MakeRun) -> None:
    axes = _axes(plots.accuracy_by_seconds([make_run()]))

    # 0.1 s per step; exchanges at 10 (0.25 s, after the evaluation of step 10) and 15 (0.5 s)
    assert _x(_curve(axes, "cfcl-explicit")) == [0.0, 1.0, 2.75]


def test_pulls_are_averaged_over_links_with_the_middle_80_percent(make_run: MakeRun) -> None:
    found = series.over_steps([make_run()], Pull, "effective_candidates")

    # sorted 10 20 30 40: the 10 % quantile lies 0.3 of the way from the 1st to the 2nd, the 90 % one mirrors it
    assert found == series.Band(x=[10, 15], mean=[25, 27], low=[13, 15], high=[37, 39])


def test_reasons_of_pulls_leave_plots_as_they_are(make_run: MakeRun) -> None:
    run = make_run()
    explained = altered(run, Pull, reasons=(Reason(7, 2, -1.5, -0.5, -1.0, {"novelty": 0.75}),) * 5)
    (run.folder / "metrics.jsonl").write_text("".join(record.to_line() + "\n" for record in explained.records))

    again = folders.load(run.folder)

    assert again.records == explained.records != run.records
    plain, drawn = plots.curves([run], *plots.PULLS), plots.curves([again], *plots.PULLS)
    assert plain is not None
    assert drawn is not None
    assert style.to_svg(drawn, "a") == style.to_svg(plain, "a")


def test_panels_and_curves_without_content_are_left_out(make_run: MakeRun) -> None:
    fedavg, explicit, implicit = make_run("fedavg"), make_run("cfcl-explicit"), make_run("cfcl-implicit")

    assert plots.curves([fedavg], *plots.PULLS) is None
    assert plots.accuracy_by_bytes([fedavg]) is None
    assert _legend(plots.curves([fedavg, explicit, implicit], REGULARISER)) == ["cfcl-implicit"]
    assert _legend(plots.curves([fedavg, explicit, implicit], EFFECTIVE)) == ["cfcl-explicit", "cfcl-implicit"]
    drawn = plots.curves([explicit], TRIPLET, REGULARISER, HELD, columns=2)
    assert drawn is not None
    assert [axes.get_title("left") for axes in drawn.axes] == [TRIPLET.title, HELD.title]


def test_runs_without_labels_have_no_accuracy_and_no_map(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(labelled=False)

    assert plots.accuracy([run]) is None
    assert plots.accuracy_by_bytes([run]) is None
    assert plots.accuracy_by_seconds([run]) is None
    assert plots.label_distances([run]) is None
    assert plots.curves([run], HELD) is None
    written = {path.name for path in plots.draw_run(run, tmp_path / "plots")}
    assert written == {"traffic.png", "delay.png", "graph.png", "pulls.png", "training.png", "health.png"}


def test_bars_carry_the_final_bytes_and_seconds(make_run: MakeRun) -> None:
    runs = [make_run("fedavg"), make_run("cfcl-explicit")]

    uplink, d2d = plots.traffic(runs).axes
    delay = _axes(plots.delay(runs))

    widths = {str(bars.get_label()): [bar.get_width() for bar in bars] for bars in d2d.containers}
    assert widths == {"pushed": [0, 1000], "pulled": [0, 3000]}
    assert [text.get_text() for text in d2d.texts] == ["0 B", "1 kB", "0 B", "3 kB"]
    assert [bar.get_width() for bar in uplink.containers[0]] == [800_000, 800_000]
    assert [text.get_text() for text in delay.texts] == ["2.00 s", "2.75 s"]
    assert d2d.get_xscale() == "linear"


def test_bytes_that_differ_by_orders_are_logarithmic(make_run: MakeRun) -> None:
    run = altered(make_run(), Evaluation, bytes_push=99)

    assert plots.traffic([run]).axes[1].get_xscale() == "log"


def test_heat_maps_share_one_scale_and_average_seeds(make_run: MakeRun) -> None:
    runs = [
        make_run("fedavg"),
        altered(make_run(seed=0), Final, label_distances=((0.0, 1.0), (1.0, 1.0)), separation=2.0),
        altered(make_run(seed=1), Final, label_distances=((1.0, 2.0), (2.0, 0.0)), separation=4.0),
    ]

    figure = plots.label_distances(runs)

    assert figure is not None
    fedavg, explicit, bar = figure.axes
    assert np.asarray(fedavg.images[0].get_array()).tolist() == [[0.5, 1.25], [1.25, 0.25]]
    assert np.asarray(explicit.images[0].get_array()).tolist() == [[0.5, 1.5], [1.5, 0.5]]
    assert fedavg.images[0].get_clim() == explicit.images[0].get_clim() == (0.25, 1.5)
    assert explicit.get_title("left") == "cfcl-explicit\nseparation 3.00"
    assert bar.get_xlabel() == "mean embedding distance between labels"


def test_heat_maps_name_the_labels_that_all_seeds_have(make_run: MakeRun) -> None:
    wide = ((9.0, 9.0, 9.0), (9.0, 3.0, 4.0), (9.0, 4.0, 5.0))
    runs = [
        altered(make_run(seed=0), Final, labels=(3, 7), label_distances=((1.0, 2.0), (2.0, 3.0))),
        altered(make_run(seed=1), Final, labels=(2, 3, 7), label_distances=wide),
    ]

    figure = plots.label_distances(runs)

    assert figure is not None
    axes = figure.axes[0]
    # label 2 is in one run only; the others are averaged pair by pair
    assert np.asarray(axes.images[0].get_array()).tolist() == [[2.0, 3.0], [3.0, 4.0]]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["3", "7"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["3", "7"]


def test_heat_maps_without_a_common_label_are_left_out(make_run: MakeRun) -> None:
    runs = [altered(make_run(seed=0), Final, labels=(3, 7)), altered(make_run(seed=1), Final, labels=(4, 5))]

    assert plots.label_distances(runs) is None


def test_graph_draws_edges_as_wide_as_their_bytes(make_run: MakeRun) -> None:
    run = make_run(positions=((0.0, 0.0), (0.5, 0.0), (0.5, 1.0)))

    axes = _axes(network.graph(run))

    # 0-1 carried 100 + 200 + 300, the most; 1-2 carried 50
    assert network.edge_bytes(run) == {(0, 1): 600, (1, 2): 50}
    edges: Any = axes.collections[0]
    assert list(edges.get_linewidths()) == pytest.approx([2.2, 0.4 + 1.8 * 50 / 600])
    assert [segment[:, 0].tolist() for segment in edges.get_segments()] == [[0.0, 0.5], [0.5, 0.5]]
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "0", "1", "0, 1"]


def test_devices_without_positions_stand_on_a_circle(make_run: MakeRun) -> None:
    axes = _axes(network.graph(make_run("fedavg", labelled=False)))

    places = np.asarray(axes.collections[1].get_offsets())
    np.testing.assert_allclose(places, [[0, 1], [0.75**0.5, -0.5], [-(0.75**0.5), -0.5]], atol=1e-12)
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2"]


def test_a_crowd_of_devices_is_dots_without_numbers(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MANY", 2)

    axes = _axes(network.graph(make_run()))

    assert not axes.texts
    assert len(np.asarray(axes.collections[1].get_offsets())) == 3


def test_settings_that_differ_split_a_method_and_never_split_fedavg_by_exchange(make_run: MakeRun) -> None:
    runs = [
        make_run("cfcl-explicit", "exchange.num_pulled=3"),
        make_run("cfcl-explicit", "exchange.num_pulled=4", seed=1),
        make_run("cfcl-explicit", "exchange.num_pulled=4", seed=0),
        make_run("fedavg", "exchange.num_pulled=3"),
        make_run("fedavg", "exchange.num_pulled=4"),
        make_run("fedavg", "exchange.num_pulled=4", seed=1),
    ]

    groups = series.series(runs)

    assert {label: [run.config.seed for run in group] for label, group in groups.items()} == {
        "fedavg": [0, 1],
        "cfcl-explicit, exchange.num_pulled=3": [0],
        "cfcl-explicit": [0, 1],
    }
    assert series.usual(runs) == {"exchange.num_pulled": 4}
    assert series.base_of(runs[0], runs) == runs[3:]


def test_runs_of_two_versions_of_the_numerics_are_two_curves(make_run: MakeRun) -> None:
    runs = [make_run("fedavg"), make_run("cfcl-explicit"), make_run("cfcl-explicit", "records.explain=true", seed=1)]
    old = [replace(run, environment=replace(run.environment, numerics=1)) for run in runs[:2]]
    new = [replace(run, environment=replace(run.environment, numerics=2)) for run in runs]

    groups = series.series([*old, *new])

    assert {label: len(group) for label, group in groups.items()} == {
        "fedavg": 1,
        "fedavg, numerics=1": 1,
        "cfcl-explicit": 2,
        "cfcl-explicit, numerics=1": 1,
    }
    assert series.base_of(new[1], [*old, *new]) == [new[0]]


def test_every_method_has_its_own_look_and_modes_differ_in_grey() -> None:
    labels = [*style.LOOKS, "zebra-explicit", "aardvark-explicit"]
    looks = style.looks(labels)

    assert len({(look.colour, look.line, look.marker) for look in looks.values()}) == len(labels)
    assert looks == style.looks(reversed(labels))
    assert looks["cfcl-explicit"].colour == "#0072B2"
    explicit, implicit = looks["cfcl-explicit"], looks["cfcl-implicit"]
    grey = [np.dot(to_rgb(look.colour), (0.299, 0.587, 0.114)) for look in (explicit, implicit)]
    assert abs(grey[0] - grey[1]) > 0.2
    assert explicit.line != implicit.line


def test_plots_of_a_run_are_the_same_bytes_each_time(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("cfcl-implicit")
    before = {file.name: file.read_bytes() for file in run.folder.iterdir()}

    written = plots.draw_run(run, tmp_path / "plots")

    again = {"accuracy": plots.accuracy([run]), "label_distances": plots.label_distances([run])}
    for name, figure in again.items():
        assert figure is not None
        style.save_png(figure, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes() == (tmp_path / "plots" / f"{name}.png").read_bytes()
    names = ("accuracy", "traffic", "delay", "graph", "label_distances", "pulls", "training", "health")
    assert [path.name for path in written] == [f"{name}.png" for name in names]
    assert {file.name: file.read_bytes() for file in run.folder.iterdir()} == before


def test_figures_do_not_depend_on_the_settings_of_the_user(make_run: MakeRun) -> None:
    run = make_run("cfcl-implicit")
    plain = style.to_svg(plots.delay([run]), "a")

    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        assert style.to_svg(plots.delay([run]), "a") == plain


def test_names_in_a_picture_do_not_hang_on_the_last_bits_of_its_layout() -> None:
    def drawn(left: float) -> str:
        figure = Figure()
        for place in (left, 0.6):
            figure.add_axes((place, 0.1, 0.3, 0.8)).plot([0.0, 1.0])
        return style.to_svg(figure, "a")

    first, second = drawn(0.1), drawn(0.1 + 1e-12)

    assert first == second
    clips = re.findall(r'<clipPath id="(a-\d+)"', first)
    assert len(clips) == 2
    assert set(clips) == set(re.findall(r"url\(#([^)]+)\)", first))


def test_few_labels_are_drawn_over_steps_for_both_spaces(make_run: MakeRun) -> None:
    run = make_run(few=True, probe=(0.5, 0.625, 0.75))
    quantities = plots.few_labels([run])
    assert [quantity.title for quantity in quantities] == [
        "Accuracy of the embedding, 3 labels per class",
        "Accuracy of the features, 3 labels per class",
        "Accuracy of the features, all labels",
    ]
    figure = plots.curves([run], *quantities)
    assert figure is not None
    drawn = [_y(_curve(axes, "cfcl-explicit")) for axes in figure.axes]
    assert drawn == [[0.25, 0.375, 0.5], [0.375, 0.5, 0.625], [0.625, 0.75, 0.875]]
    assert plots.curves([make_run("fedavg")], *plots.few_labels([make_run("uniform-explicit")])) is None


@pytest.mark.parametrize(
    ("validation", "split"),
    [((0.0,), "test split"), ((0.1,), "validation split"), ((0.0, 0.1), "test or the validation")],
)
def test_the_split_behind_accuracies_is_told(make_run: MakeRun, validation: tuple[float, ...], split: str) -> None:
    runs = [make_run("fedavg", f"data.validation={share}") for share in validation]
    assert split in _axes(plots.accuracy(runs)).get_title(loc="left")
