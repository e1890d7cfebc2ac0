import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from cfcl.use import classifier, classify
from cfcl.use.embedding import Vectors
from cfcl.use.labels import Labels


def clouds(size: int, noise: float = 0.1) -> torch.Tensor:
    """Points around three corners of a triangle, in turns."""
    corners = torch.tensor([[0.0, 5.0], [5.0, 0.0], [-5.0, -5.0]])
    draws = torch.randn(size, 2, generator=torch.Generator().manual_seed(1))
    return corners[torch.arange(size) % 3] + noise * draws


def labelled(size: int) -> Labels:
    return Labels(tuple(range(size)), tuple(place % 3 for place in range(size)), ("a", "b", "c"))


def test_a_few_labels_are_enough_for_what_stands_apart() -> None:
    found = classifier.fit(clouds(60), labelled(9))
    assert found.probabilities.argmax(dim=1).tolist() == [place % 3 for place in range(60)]
    assert (found.accuracy, found.num_folds) == (1.0, 3)
    torch.testing.assert_close(found.probabilities.sum(dim=1), torch.ones(60, dtype=torch.float64))
    assert float(found.probabilities.amax(dim=1).min()) > 0.9


def test_labels_that_say_nothing_get_no_confidence() -> None:
    noise = torch.randn(400, 5, generator=torch.Generator().manual_seed(2))
    found = classifier.fit(noise, labelled(90))
    assert found.accuracy < 0.5
    assert float(found.probabilities.amax(dim=1).mean()) < 0.5  # a third would be no knowledge at all
    assert found.temperature > 1


def test_folds_spread_each_class_evenly() -> None:
    # Class 0 begins with fold 0, class 1 with fold 1.
    assert classifier._folds(torch.tensor([0, 0, 0, 1, 1, 0, 1]), 3).tolist() == [0, 1, 2, 1, 2, 0, 0]


def test_the_temperature_makes_labels_most_likely() -> None:
    # Always 4 against 0, and right three times of four: log(3) / 4 is the factor that makes 0.75 of it.
    logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    found = classifier._temperature(logits, torch.tensor([0, 0, 1, 1]))
    assert found == pytest.approx(4 / math.log(3), rel=0.03)


def test_wilsons_interval_by_hand() -> None:
    # 8 of 10 with a quantile of 2: middle (0.8 + 0.2) / 1.4 = 0.714286, half 2 / 1.4 × sqrt(0.016 + 0.01) = 0.230350
    low, high = classifier.wilson(8, 10, quantile=2.0)
    assert (low, high) == pytest.approx((0.483936, 0.944636), abs=1e-6)
    assert classifier.wilson(0, 5)[0] == pytest.approx(0.0, abs=1e-12)
    assert classifier.wilson(5, 5)[1] == pytest.approx(1.0)


def test_next_to_label_is_what_is_not_covered() -> None:
    directions = torch.tensor([[1.0, 0.0], [9.0, 0.5], [0.0, 1.0], [0.1, 3.0], [0.0, 2.0], [-1.0, 0.0]])
    # Labelled: the first. Three point up, one to the left, and length does not count.
    first, second = classifier.next_to_label(directions, (0,), 2)
    assert (first in (2, 3, 4), second) == (True, 5)
    assert 0 not in classifier.next_to_label(directions, (0,), 10)


def test_of_very_many_images_some_evenly_spread_ones_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "LOOKED_AT", 12)
    found = sorted(classifier.next_to_label(clouds(100), (0, 1), 10))
    assert len(found) == 10
    assert {b - a for a, b in pairwise(found)} == {10}


def test_only_images_without_a_label_are_predicted(tmp_path: Path) -> None:
    vectors = Vectors([f"{place}.png" for place in range(12)], clouds(12).numpy(), list(range(12)), [])
    found = classify.classify(vectors, labelled(6))
    assert [item.name for item in found.predictions] == [f"{place}.png" for place in range(6, 12)]
    assert [item.label for item in found.predictions] == ["a", "b", "c", "a", "b", "c"]
    assert found.given == (2, 2, 2)

    classify.write(tmp_path / "x" / "p.csv", found.predictions)
    lines = (tmp_path / "x" / "p.csv").read_text().splitlines()
    assert (lines[0], len(lines), lines[1][:8]) == ("name,label,confidence", 7, "6.png,a,")
    classify.write_blank(tmp_path / "n.csv", ["a, b", "c"])
    assert (tmp_path / "n.csv").read_text() == 'name,label\n"a, b",\nc,\n'


def test_vectors_of_more_dimensions_than_labels() -> None:
    wide = torch.cat([clouds(60), torch.zeros(60, 40)], dim=1)
    found = classifier.fit(wide, labelled(9))
    torch.testing.assert_close(
        found.probabilities, classifier.fit(clouds(60), labelled(9)).probabilities, atol=0.02, rtol=0
    )
    assert np.isfinite(found.probabilities.numpy()).all()
