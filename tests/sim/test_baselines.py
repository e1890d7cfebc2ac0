from dataclasses import replace

import pytest
import torch
from sklearn.decomposition import PCA

from cfcl.data import datasets
from cfcl.errors import CfclError
from cfcl.sim import baselines, evaluation
from cfcl.sim.simulation import Simulation
from tests.conftest import small

FEW = ("evaluation.labels_per_class=[2, 9]", "evaluation.features=true", "evaluation.max_train=300")


def test_yardsticks_are_judged_as_the_untrained_encoder_of_a_run_is() -> None:
    config = small(*FEW, "model.encoder=conv", "model.embedding_dim=6", "model.widths=[4, 5]", "seed=3")
    heard: list[str] = []

    found = baselines.compute(config, datasets.load(config.data), watch=heard.append)

    assert [(row.name, row.dim, row.note) for row in found] == [
        ("raw pixels", 64, None),
        ("6 principal components", 6, None),
        ("untrained, block1", 64, None),  # 4 maps of 4×4
        ("untrained, block2", 80, None),
        ("untrained, features", 20, None),
        ("untrained, embedding", 6, None),
    ]
    assert heard == [row.name for row in found]
    (first,) = Simulation(config)._evaluate(0)
    features, embedding = ({name: at.mean for name, at in row.accuracies.items()} for row in found[-2:])
    known = first.accuracies  # type: ignore[attr-defined]
    assert features == known["features"]
    assert {name: embedding[name] for name in ("2", "9")} == {name: known["embedding"][name] for name in ("2", "9")}
    assert embedding["all"] == pytest.approx(
        known["embedding"]["all"], abs=0.01
    )  # the run's own probe is the exact one
    for row in found:
        for at in row.accuracies.values():
            assert at.low < at.mean < at.high
    pixels = found[0].accuracies
    assert 0.2 < pixels["2"].mean < pixels["9"].mean < pixels["all"].mean
    assert pixels["2"].reach > pixels["all"].reach  # draws of two labels differ


def test_the_usual_numbers_of_labels_are_taken_where_none_is_asked_for() -> None:
    config = small("evaluation.max_train=200", "model.embedding_dim=70")
    found = baselines.compute(config, datasets.load(config.data))
    assert list(found[0].accuracies) == ["all", "1", "10", "100"]
    assert found[1].name == "64 principal components"  # no more than there are pixels


def test_principal_components_are_those_of_scikit_learn() -> None:
    config = small("evaluation.max_train=500", "model.embedding_dim=4")
    dataset = datasets.load(config.data)

    found = baselines._principal(config, dataset)

    known = dataset.train_images[evaluation.known(config, dataset)].flatten(1).double() / 255
    expected = torch.from_numpy(PCA(4).fit(known.numpy()).components_)
    torch.testing.assert_close((expected @ found).abs(), torch.eye(4, dtype=torch.float64), atol=1e-6, rtol=0)


def test_what_is_too_wide_is_averaged_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "WIDEST", 4)
    maps = torch.arange(16.0).view(1, 1, 4, 4)
    # over 2×2: (0 + 1 + 4 + 5) / 4 = 2.5 and so on
    flat, note = baselines._narrow(maps)
    assert (flat.tolist(), note) == ([[2.5, 4.5, 10.5, 12.5]], "averaged over 2×2")
    flat, note = baselines._narrow(maps.expand(1, 2, 4, 4))
    assert (flat.tolist(), note) == ([[5.0, 5.0]], "averaged over 3×3")
    # vectors: 16 numbers in four groups; and of five channels no 2×2 helps
    flat, note = baselines._narrow(maps.flatten(1))
    assert (flat.tolist(), note) == ([[1.5, 5.5, 9.5, 13.5]], "averaged to 4 numbers")
    assert baselines._narrow(torch.zeros(3, 5, 2, 2))[0].shape == (3, 4)
    flat, note = baselines._narrow(maps[:, :, :2, :2])
    assert (flat.tolist(), note) == ([[0.0, 1.0, 4.0, 5.0]], "")


def test_without_labels_there_are_no_yardsticks() -> None:
    dataset = replace(datasets.load(small().data), train_labels=None)
    with pytest.raises(CfclError, match=r"digits has no labels, and without them no accuracy .* give labelled data"):
        baselines.compute(small(), dataset)
