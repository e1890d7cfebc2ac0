from io import StringIO

from rich.console import Console

from cfcl.records import Evaluation
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
