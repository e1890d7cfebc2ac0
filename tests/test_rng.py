import pytest
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


def test_a_number_is_named_like_a_stream_and_never_changes() -> None:
    # 2504608501310636084 / 2**63
    assert rng.uniform(0, "pull", 3, 25) == pytest.approx(0.27155, abs=1e-5)
    found = [rng.uniform(0, "some", number) for number in range(1000)]
    assert 0.0 <= min(found) < 0.01
    assert 0.99 < max(found) < 1.0
    assert 0.47 < sum(found) / 1000 < 0.53  # 1 / sqrt(12 * 1000) is 0.009


def test_places_are_distinct_in_order_and_at_most_so_many() -> None:
    found = rng.places(100, 30, 7, "test").tolist()
    assert len(set(found)) == 30
    assert found == sorted(found)
    assert 0 <= found[0] < found[-1] < 100
    assert found != rng.places(100, 30, 7, "other").tolist()
    assert found != rng.places(100, 30, 8, "test").tolist()
    assert rng.places(3, 5, 7, "test").tolist() == [0, 1, 2]
