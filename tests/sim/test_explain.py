"""Why each item was chosen, on request."""

import json
import math
from collections.abc import Iterable

import pytest

from cfcl.records import Pull, Record
from cfcl.sim.simulation import Simulation
from tests.conftest import small


def pulls(rows: Iterable[Record]) -> list[Pull]:
    return [row for row in rows if isinstance(row, Pull)]


@pytest.mark.parametrize("method", ["cfcl-explicit", "cfcl-implicit", "uniform-explicit", "cover-explicit"])
def test_explanations_change_no_figure_and_hold_no_pixel(method: str) -> None:
    name, mode = method.split("-")
    settings = (f"exchange.method={name}", f"exchange.mode={mode}")
    plain = [row.to_line() for row in Simulation(small(*settings)).rows()]
    simulation = Simulation(small(*settings, "records.explain=true"))
    told = list(simulation.rows())
    assert [json.loads(line) for line in plain] == [
        {key: value for key, value in json.loads(row.to_line()).items() if key != "reasons"} for row in told
    ]
    sizes = [len(part) for part in simulation.world.parts]
    for row in pulls(told):
        assert row.reasons is not None
        assert len(row.reasons) == row.items
        assert len({reason.index for reason in row.reasons}) == row.items
        assert all(0 <= reason.index < sizes[row.transmitter] for reason in row.reasons)
        assert all(reason.log_probability <= 1e-9 for reason in row.reasons)


def test_stages_multiply_to_the_law_they_were_drawn_from() -> None:
    rows = pulls(Simulation(small("exchange.mode=implicit", "records.explain=true")).rows())
    reason = next(reason for row in rows for reason in row.reasons or () if reason.cluster is not None)
    assert reason.macro is not None
    assert reason.micro is not None
    assert set(reason.scores) == {"score"}
    # P = macro * micro, up to what the normalisation over all candidates adds
    assert math.isclose(reason.macro + reason.micro, reason.log_probability, abs_tol=1e-6)
    uniform = pulls(Simulation(small("exchange.method=uniform", "records.explain=true")).rows())
    assert {(r.cluster, r.macro, r.micro) for row in uniform for r in row.reasons or ()} == {(None, None, None)}
    assert all(r.log_probability == pytest.approx(-math.log(8)) for row in uniform for r in row.reasons or ())
