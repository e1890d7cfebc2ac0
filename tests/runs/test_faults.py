"""What goes wrong in runs, as people hear of it."""

from dataclasses import replace
from pathlib import Path

from cfcl import config as configs
from cfcl.records import Faults
from cfcl.runs import card, faults, plots, report
from cfcl.runs.folders import Run
from tests.runs.conftest import MakeRun

EARLY = Faults(10, 0.5, messages=100, unsent=30, late=0, lost=20, damaged=0, refused=0)
LAST = Faults(20, 0.75, messages=1000, unsent=250, late=25, lost=125, damaged=100, refused=50)


def with_faults(run: Run, *found: Faults) -> Run:
    return replace(run, records=(*run.records[:-1], *found, run.records[-1]))


def test_one_line_tells_what_became_of_messages(make_run: MakeRun) -> None:
    run = make_run()
    assert faults.told(run.records) == ""
    # 1000 - 250 - 25 - 125 - 50 are used; what was damaged and yet used counts among them
    assert faults.told(with_faults(run, EARLY, LAST).records) == (
        "Faults: of 1,000 messages 25.0 % not sent, 2.5 % late, 12.5 % lost, 5.0 % refused; 55.0 % used"
    )
    whole = Faults(20, 1.0, messages=40, unsent=0, late=0, lost=0, damaged=0, refused=0)
    assert faults.told([whole]) == "Faults: of 40 messages none was lost; 100.0 % used"
    assert Faults(0, 0.0, 0, 0, 0, 0, 0, 0).used == 1.0


def test_the_table_counts_all_seeds_of_a_method(make_run: MakeRun) -> None:
    runs = [with_faults(make_run(seed=0), LAST), with_faults(make_run(seed=1), EARLY), make_run("fedavg")]
    # 280, 25, 145, 100 and 50 of 1,100; 550 and 50 of them were used
    assert faults.rows(runs) == [["cfcl-explicit", "1,100", "25.5 %", "2.3 %", "13.2 %", "9.1 %", "4.5 %", "54.5 %"]]


def test_the_report_has_a_section_where_things_go_wrong(make_run: MakeRun, tmp_path: Path) -> None:
    plain = make_run()
    faulty = with_faults(plain, EARLY, LAST)
    assert "<h3>Faults</h3>" not in report.render([plain])
    text = report.render([faulty])
    assert "<h3>Faults</h3>" in text
    assert '<td data-head="Used">55.0 %</td>' in text
    figure = plots.curves([faulty], *plots.FAULTS)
    assert figure is not None
    online, used = figure.axes
    assert list(online.lines[0].get_ydata()) == [0.5, 0.75]  # type: ignore[arg-type]
    assert list(used.lines[0].get_ydata()) == [0.5, 0.55]  # type: ignore[arg-type]
    assert plots.curves([plain], *plots.FAULTS) is None


def test_a_plan_names_what_may_go_wrong() -> None:
    wanted = ["faults.offline=0.3", "faults.loss=0.125", "faults.gone=0.01", "faults.links_file=/a/down.csv"]
    assert faults.planned(configs.load("digits", wanted).faults) == (
        "30 % of devices offline in each round, 1 % of devices lost for good, 12.5 % of messages lost, links down as "
        "in down.csv; bytes are those without faults"
    )


def test_who_is_hostile_is_told_in_the_card_and_before_a_run(make_run: MakeRun) -> None:
    assert faults.hostile(configs.load("digits")) == ""
    drawn = configs.load("digits", ["attack.devices=3", "attack.kind=model-flipped"])
    assert faults.hostile(drawn) == "3 of 10, model-flipped"
    named = make_run("cfcl-explicit", "attack.devices=[0, 2]")
    text = card.render(named, card.Facts())
    assert "- Some devices were hostile on purpose (2 of 3, items-noise). What it has learned of them" in text
    assert "hostile" not in card.render(make_run("fedavg"), card.Facts())
