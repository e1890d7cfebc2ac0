import torch

from cfcl.core.resampling import bootstrap, resample
from cfcl.rng import stream


def test_bootstrap_by_hand() -> None:
    hits = torch.tensor([[True, True, False, False], [True, False, False, False]])
    # the images as they are; the first alone; the last alone; the second twice and the third twice
    counts = torch.tensor([[1.0, 1, 1, 1], [4, 0, 0, 0], [0, 0, 0, 4], [0, 2, 2, 0]])
    draws = torch.tensor([[0, 1], [1, 1], [0, 1], [0, 0]])

    mean, low, high = bootstrap(hits, counts, draws)

    # rounds: (1/2 + 1/4) / 2 = 0.375; 1; 0; 1/2 by the first draw alone. In order 0, 0.375, 0.5, 1: the quantile 0.025
    # lies 0.075 of the way from the first to the second, 0.975 as far from the last to the third
    assert mean == 0.375
    assert (round(low, 9), round(high, 9)) == (0.028125, 0.9625)


def test_one_draw_stands_for_all() -> None:
    hits = torch.tensor([[True, False, True, True]])
    assert bootstrap(hits, torch.ones(3, 4), torch.tensor([[4, 1], [0, 2], [3, 3]])) == (0.75, 0.75, 0.75)


def test_every_round_has_as_many_images_and_draws_as_there_are() -> None:
    counts, draws = resample(7, 5, rounds=300, generator=stream(0, "resample"))
    assert counts.sum(dim=1).tolist() == [7.0] * 300
    assert draws.shape == (300, 5)
    assert torch.unique(draws).tolist() == [0, 1, 2, 3, 4]
    # each image occurs once on average: 300 rounds of variance 6/7 leave a standard error of 0.053
    assert bool(((counts.mean(dim=0) - 1).abs() < 0.25).all())
    assert torch.equal(counts, resample(7, 5, rounds=300, generator=stream(0, "resample"))[0])


def test_the_interval_of_many_images_is_that_of_the_normal_law() -> None:
    hits = torch.arange(1000)[None] < 800
    counts, draws = resample(1000, 1, rounds=2000, generator=stream(1, "resample"))
    mean, low, high = bootstrap(hits, counts, draws)
    # 1.96 sqrt(0.8 * 0.2 / 1000) = 0.0248
    assert mean == 0.8
    assert abs(low - 0.7752) < 0.003
    assert abs(high - 0.8248) < 0.003
