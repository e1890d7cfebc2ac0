import torch

from cfcl.sim import loop, selections
from cfcl.sim.selections import select
from tests.conftest import small


def test_the_same_model_and_step_give_what_a_run_selects() -> None:
    """At its first exchange all devices of a run hold the initial model if nothing is learnt before."""
    for method in ("cfcl", "uniform", "kmeans", "novel", "oracle"):
        for mode in ("explicit", "implicit"):
            config = small(
                f"exchange.method={method}",
                f"exchange.mode={mode}",
                "exchange.period=4",
                "train.learning_rate=1e-30",
                "train.steps=5",
            )
            rows = [row for row in loop.Simulation(config).rows() if row["kind"] == "pull"]

            picks = select(config, loop.Simulation(config).model, [4])

            assert len(picks.distances) == len(picks.held) == sum(row["items"] for row in rows)
            mean = sum(row["items"] * row["centroid_distance"] for row in rows) / len(picks.distances)
            held = sum(row["items"] * row["held_labels"] for row in rows) / len(picks.held)
            torch.testing.assert_close(float(picks.distances.double().mean()), mean)
            torch.testing.assert_close(float(picks.held.double().mean()), held)


def test_selections_at_several_moments_are_put_together() -> None:
    config = small("exchange.method=uniform")
    model = loop.Simulation(config).model

    one, two, both = (selections.select(config, model, moments) for moments in ([3], [6], [3, 6]))

    assert torch.equal(torch.cat([one.distances, two.distances]), both.distances)
    assert not torch.equal(one.distances, two.distances)
