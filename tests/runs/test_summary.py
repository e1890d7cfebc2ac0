from io import StringIO

from rich.console import Console

from cfcl.records import Evaluation, Interval, Yardstick
from cfcl.runs import progress, summary
from cfcl.runs.suites import Result
from tests.runs.conftest import MakeRun, altered


def test_methods_are_averaged_over_seeds_and_paired_with_fedavg(make_run: MakeRun) -> None:
    runs = [
        make_run("cfcl-explicit", seed=0, probe=(0.5, 0.5, 0.75)),
        make_run("cfcl-explicit", seed=1, probe=(0.5, 0.5, 0.5)),
        make_run("cfcl-explicit", seed=2, probe=(0.5, 0.5, 1.0)),
        make_run("fedavg", seed=1, probe=(0.5, 0.5, 0.625)),
        make_run("fedavg", seed=0, probe=(0.5, 0.5, 0.25)),
    ]
    runs[0] = altered(runs[0], Evaluation, cka=0.25, joules=3.0)

    explicit, fedavg = summary.by_method(runs)

    assert (explicit.method, explicit.seeds, fedavg.method, fedavg.seeds) == ("cfcl-explicit", 3, "fedavg", 2)
    # probes 0.75, 0.5 and 1.0 have the variance (0 + 0.0625 + 0.0625) / 2; kNN stands 0.25 below the probe
    assert (explicit.probe, explicit.probe_spread, explicit.knn) == (0.75, 0.25, 0.5)
    # paired in seed 0: 0.75 - 0.25, and in seed 1: 0.5 - 0.625; seed 2 has no FedAvg run
    assert (explicit.gains, explicit.over_fedavg) == ((0.5, -0.125), 0.1875)
    assert (fedavg.gains, fedavg.over_fedavg) == ((), None)
    # 0.25, 0.75 and 0.75; 3, 0 and 0
    assert (explicit.cka, explicit.joules) == (1.75 / 3, 1.0)
    # 20 steps: 50 bytes pushed, 150 pulled and 40,000 sent up per step, 0.1 s each; selection took 0.25 s and 0.5 s
    assert (explicit.bytes_push, explicit.bytes_pull, explicit.bytes_up) == (1000, 3000, 800_000)
    assert (explicit.seconds, explicit.selection, fedavg.selection) == (2.0, 0.75, 0.0)


def test_one_seed_without_labels_has_neither_accuracy_nor_spread(make_run: MakeRun) -> None:
    (found,) = summary.by_method([make_run(labelled=False)])

    assert (found.probe, found.probe_spread, found.knn, found.over_fedavg) == (None, None, None, None)


def _shown(table: object) -> list[list[str]]:
    out = StringIO()
    Console(file=out, width=120).print(table)
    return [line.split() for line in out.getvalue().splitlines() if line.strip()]


def test_the_table_of_a_comparison(make_run: MakeRun) -> None:
    runs = [make_run("fedavg", probe=(0.5, 0.5, 0.5)), make_run(probe=(0.5, 0.5, 0.75)), make_run(seed=1)]

    rows = _shown(progress.compare_table(summary.by_method(runs)))

    assert rows[0][-4:] == ["mean", "over", "2", "seeds"]
    assert rows[-2] == ["fedavg", "50.0", "–", "25.0", "0", "B", "0", "B", "800", "kB", "2.0", "s"]
    assert rows[-1][:4] == ["cfcl-explicit", "75.0", "±0.0", "+25.0"]


def test_the_table_of_a_run_leaves_out_what_was_not_measured(make_run: MakeRun, played: Result) -> None:
    rows = _shown(progress.run_table(make_run(labelled=False).evaluations))

    assert rows[1] == ["step", "alignment", "uniformity", "rank", "cka", "D2D", "uplink", "delay"]
    # the local models are compared from the first aggregation on
    assert rows[3][:5] == ["0", "0.250", "-1.500", "7.500", "–"]
    assert rows[5] == ["20", "0.250", "-1.500", "7.500", "0.750", "4", "kB", "800", "kB", "2.0", "s"]
    assert [row[0] for row in _shown(progress.run_table(played.evaluations))[3:]] == ["0", "8", "12"]


def test_an_interval_counts_seeds_and_images_by_hand() -> None:
    # 0.6, 0.7, 0.8: mean 0.7, variance 0.01; Student's 4.302653 with two degrees: 18.512822 * 0.01 / 3 = 0.0617094;
    # images: 1.959964^2 * 0.7 * 0.3 / 400 = 3.841459 * 0.000525 = 0.0020168; the root of their sum is 0.2524405
    found = summary.interval([0.6, 0.7, 0.8], 400)
    assert (round(found.mean, 9), round(found.reach, 6)) == (0.7, 0.25244)
    # one seed: images alone, 1.959964 sqrt(0.25 / 400) = 0.0489991
    alone = summary.interval([0.5], 400)
    assert (alone.mean, round(alone.low, 6), round(alone.high, 6)) == (0.5, 0.451001, 0.548999)


YARDSTICKS = [
    Yardstick("raw pixels", 64, {"all": Interval(0.75, 0.5, 1.0), "3": Interval(0.5, 0.25, 0.75)}),
    Yardstick("untrained, block1", 32, {"all": Interval(0.5, 0.25, 0.75), "30": Interval(0.5, 0.5, 0.5)}, "halved"),
]


def test_the_tables_of_a_comparison_with_few_labels(make_run: MakeRun) -> None:
    runs = [
        make_run("fedavg", "data.validation=0.1", probe=(0.5, 0.5, 0.5), few=True),
        make_run("cfcl-explicit", "data.validation=0.1", probe=(0.5, 0.5, 0.75), few=True),
    ]

    plain, few = progress.compare_tables(summary.by_method(runs), YARDSTICKS)

    assert "validation accuracies" in str(plain.title)
    # 1.96 sqrt(0.5 * 0.5 / 400) = 4.9, 1.96 sqrt(0.75 * 0.25 / 400) = 4.2
    assert [row[:3] for row in _shown(plain)[-2:]] == [["fedavg", "50.0", "±4.9"], ["cfcl-explicit", "75.0", "±4.2"]]
    assert "validation accuracies" in str(few.title)
    lines = [" ".join(row) for row in _shown(few)]
    assert lines[-9] == "dim 3/class 30/class all labels"
    assert lines[-7:] == [
        "fedavg, embedding 25.0 ±4.2 – 50.0 ±4.9",
        "fedavg, features 37.5 ±4.7 – 62.5 ±4.7",
        "cfcl-explicit, embedding 50.0 ±4.9 – 75.0 ±4.2",
        "cfcl-explicit, features 62.5 ±4.7 – 87.5 ±3.2",
        "What you would use instead",
        "raw pixels 64 50.0 ±25.0 – 75.0 ±25.0",
        "untrained, block1 (halved) 32 – 50.0 ±0.0 50.0 ±25.0",
    ]


def test_a_comparison_without_few_labels_has_one_table(make_run: MakeRun) -> None:
    assert len(progress.compare_tables(summary.by_method([make_run()]), [])) == 1
    assert progress.few_table(make_run("fedavg").evaluations) is None
    assert progress.few_table(make_run("uniform-explicit", labelled=False).evaluations) is None


def test_the_few_labels_of_a_run(make_run: MakeRun) -> None:
    table = progress.few_table(make_run(few=True).evaluations, "validation")

    assert table is not None
    assert "validation accuracies" in str(table.title)
    rows = _shown(table)
    assert rows[-8] == ["3/class", "all", "labels"]
    assert rows[-6] == ["step", "0,", "embedding", "25.0", "50.0"]
    assert rows[-1] == ["step", "20,", "features", "62.5", "87.5"]
