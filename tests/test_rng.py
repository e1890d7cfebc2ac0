import torch

from cfcl import rng


def test_a_stream_is_named_by_seed_and_words() -> None:
    def draw(*name: str | int, seed: int = 0) -> list[float]:
        return torch.rand(3, generator=rng.stream(seed, *name)).tolist()

    assert draw("pull", 1, 2) == draw("pull", 1, 2)
    different = [
        draw("pull", 1, 2),
        draw("pull", 12),
        draw("pull", "1", 2),
        draw("push", 1, 2),
        draw("pull", 1, 2, seed=1),
    ]
    assert len({tuple(numbers) for numbers in different}) == 5


def test_seeds_never_change() -> None:
    # A change here changes every published number.
    assert rng.derive(0, "pull", 3, 25) == 2504608501310636084
