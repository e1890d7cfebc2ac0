import pytest
import torch

from cfcl.config import Config
from cfcl.models import Encoder, Weights
from cfcl.sim.selections import select
from tests.conftest import small
from tests.played import play

CHEAP = ("evaluation.max_train=50", "evaluation.num_health=4", "evaluation.num_neighbours=1")


def initial(config: Config) -> Weights:
    return Encoder(config.model, (1, 8, 8), seed=config.seed).initial


@pytest.mark.parametrize(
    "method",
    ["cfcl-explicit", "cfcl-implicit", "uniform-explicit", "kmeans-implicit", "cover-explicit", "oracle-explicit"],
)
def test_the_same_model_and_step_give_what_a_run_selects(method: str) -> None:
    """At its first exchange all devices of a run hold the initial model if nothing is learnt before."""
    word, _, mode = method.partition("-")
    settings = ("exchange.period=4", "train.learning_rate=1e-30", "train.steps=5", *CHEAP)
    config = small(f"exchange.method={word}", f"exchange.mode={mode}", *settings)
    rows = play(config).of("pull")

    picks = select(config, initial(config), [4])

    assert len(picks.distances) == len(picks.held) == sum(row["items"] for row in rows)
    mean = sum(row["items"] * row["centroid_distance"] for row in rows) / len(picks.distances)
    held = sum(row["items"] * row["held_labels"] for row in rows) / len(picks.held)
    torch.testing.assert_close(float(picks.distances.double().mean()), mean)
    torch.testing.assert_close(float(picks.held.double().mean()), held)


def test_selections_at_several_moments_are_put_together() -> None:
    config = small("exchange.method=uniform")

    one, two, both = (select(config, initial(config), moments) for moments in ([3], [6], [3, 6]))

    assert torch.equal(torch.cat([one.distances, two.distances]), both.distances)
    assert not torch.equal(one.distances, two.distances)


def test_the_mean_distance_is_to_all_centroids_of_the_receiver() -> None:
    one, several = (small("exchange.method=uniform", f"exchange.num_clusters={number}") for number in (1, 3))
    alone, among = select(one, initial(one), [3]), select(several, initial(several), [3])
    # with one centroid it is the nearest, too; with three the others are farther
    torch.testing.assert_close(alone.mean_distances, alone.distances)
    assert bool((among.mean_distances > among.distances).all())
