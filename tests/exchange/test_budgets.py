"""Budgets that change over time, and candidates that differ by device."""

from pathlib import Path

import pytest

from cfcl import device
from cfcl.config import Config, build
from cfcl.errors import CfclError
from cfcl.exchange import links
from cfcl.records import Pull
from cfcl.sim import world
from cfcl.sim.simulation import Simulation
from cfcl.topology import Graph
from tests.conftest import small

LINE = Graph(num_devices=3, edges=((0, 1), (1, 2)), positions=None)
HEAD = "transmitter,receiver,num_pulled,num_reserve,step\n"


def table(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "table.csv"
    file.write_text(text)
    return build({"exchange": {"budgets_file": str(file), "num_pulled": 5, "num_reserve": 10}})


def test_a_number_holds_from_its_step_on(tmp_path: Path) -> None:
    found = links.budgets(table(tmp_path, HEAD + "0,1,2,7,0\n0,1,4,7,20\n0,1,0,7,10\n1,0,3,9,5\n"), LINE)
    assert [found.pulled(0, 1, step) for step in (0, 9, 10, 19, 20, 99)] == [2, 2, 0, 0, 4, 4]
    assert [found.pulled(1, 0, step) for step in (4, 5)] == [5, 3]
    assert (found.reserve(0, 1), found.reserve(1, 0)) == (7, 10)


def test_a_link_without_items_at_any_step_never_pulls(tmp_path: Path) -> None:
    found = links.budgets(table(tmp_path, HEAD + "0,1,0,7,0\n0,1,0,7,10\n1,0,0,7,0\n1,0,1,7,10\n"), LINE)
    assert [found.ever_pulled(*link) for link in ((0, 1), (1, 0), (1, 2))] == [False, True, True]


def test_a_link_that_pulls_only_later_is_pushed_to_from_the_start(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(HEAD + "0,1,0,3,0\n0,1,2,3,6\n1,0,0,3,0\n")
    scene = world.build(small(f"exchange.budgets_file={file}"))
    assert device.reserve_due(scene.setting, 0, 1) == 3
    assert device.reserve_due(scene.setting, 1, 0) == 0
    assert device.reserve_due(scene.setting, 1, 2) == 3


def test_items_follow_the_table_in_a_run_and_bulk_sums_it_up(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(HEAD + "0,1,1,3,0\n0,1,4,3,6\n")
    overrides = (f"exchange.budgets_file={file}",)
    rows = [row for row in Simulation(small(*overrides)).rows() if isinstance(row, Pull)]
    # exchanges at t = 3, 6, 9
    assert [row.items for row in rows if (row.transmitter, row.receiver) == (0, 1)] == [1, 4, 4]
    assert {row.items for row in rows if (row.transmitter, row.receiver) != (0, 1)} == {2}
    rows = [row for row in Simulation(small(*overrides, "exchange.method=bulk")).rows() if isinstance(row, Pull)]
    assert [row.items for row in rows if (row.transmitter, row.receiver) == (0, 1)] == [9]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("0,1,1,3,-1", "from 0, from 1 and from 0"),
        ("0,1,1,3,1.5", "from 0, from 1 and from 0"),
        ("0,1,1,3,nan", "is not 5 numbers"),
        ("0,1,1,3,inf", "is not 5 numbers"),
        ("0,1,51,3,4", "exceeds the 50 candidates of device 0"),
        ("0,1,1,3,4\n0,1,2,3,4", "link 0->1 is named twice"),
        ("0.5,1,1,3,4", "0.5->1 is not a link"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        links.budgets(table(tmp_path, f"{HEAD}{row}\n"), LINE)


def test_candidates_differ_by_device(tmp_path: Path) -> None:
    file = tmp_path / "candidates.csv"
    file.write_text("device,num_candidates\n1,12\n0,9\n")
    scene = world.build(small(f"exchange.candidates_file={file}"))
    assert [scene.setting.budgets.candidates(i) for i in range(4)] == [9, 12, 8, 8]
    images = scene.dataset.train_images
    states = [device.start(scene.setting, i, images, part) for i, part in enumerate(scene.parts)]
    found = device.prepare(scene.setting, states, 3)
    assert [len(state.candidates.positions) for state in found if state.candidates is not None] == [9, 12, 8, 8]


def test_one_candidate_is_enough_for_one_item(tmp_path: Path) -> None:
    file = tmp_path / "candidates.csv"
    file.write_text("device,num_candidates\n1,1\n")
    alone = small(f"exchange.candidates_file={file}", "exchange.num_clusters=1", "exchange.num_pulled=1")
    assert world.build(alone).setting.budgets.candidates(1) == 1


def test_a_budget_is_checked_against_the_transmitters_own_candidates(tmp_path: Path) -> None:
    candidates, budgets = tmp_path / "candidates.csv", tmp_path / "budgets.csv"
    candidates.write_text("device,num_candidates\n1,12\n")
    tables = (f"exchange.candidates_file={candidates}", f"exchange.budgets_file={budgets}")
    budgets.write_text("transmitter,receiver,num_pulled,num_reserve\n1,0,12,3\n")
    assert world.build(small(*tables)).setting.budgets.pulled(1, 0, 3) == 12
    budgets.write_text("transmitter,receiver,num_pulled,num_reserve\n0,1,12,3\n")
    with pytest.raises(CfclError, match="num_pulled=12 exceeds the 8 candidates of device 0"):
        world.build(small(*tables))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("device,candidates\n", "header 'device,candidates' is not"),
        ("device,num_candidates\n4,12\n", "device 4 is not one of 0 to 3"),
        ("device,num_candidates\n1,12\n1,13\n", "device 1 is not one of 0 to 3, named once"),
        ("device,num_candidates\n1,2\n", "num_candidates=2 is below exchange.num_clusters=3"),
        ("device,num_candidates\n1,9.5\n", "num_candidates=9.5 is below"),
        ("device,num_candidates\n1,9999\n", "exchange.num_candidates=9999 exceeds the"),
    ],
)
def test_bad_tables_of_candidates_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "candidates.csv"
    file.write_text(text)
    with pytest.raises(CfclError, match=complaint):
        Simulation(small(f"exchange.candidates_file={file}"))
