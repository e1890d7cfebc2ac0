"""What is recorded of a pull, on three devices in a line whose points are known one by one."""

from typing import Any

import pytest
import torch

import cfcl
from cfcl import rng
from cfcl.data.datasets import Dataset
from cfcl.models import Encoder
from tests.conftest import small

LINE = (
    "partition.kind=given",
    "partition.num_devices=3",
    "graph.kind=line",
    "train.steps=6",
    "train.batch_size=4",
    "train.learning_rate=0.01",
    "aggregation.period=6",
    "exchange.method=uniform",
    "exchange.period=2",
    "exchange.num_candidates=4",
    "exchange.num_pulled=4",
    "exchange.num_clusters=1",
    "evaluation.every=9",
)


def dataset(*labels: list[int]) -> Dataset:
    """Four images per device, with these labels."""
    images = torch.randint(0, 256, (12, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    known = torch.tensor(labels).flatten()
    return Dataset("line", images, known, images, known, torch.arange(12) // 4)


def pulls(data: Dataset, step: int, *overrides: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The records of the pulls at `step`, by transmitter and receiver."""
    rows = cfcl.run(small(*LINE, *overrides), engine="loop", dataset=data).of("pull")
    return {(row["transmitter"], row["receiver"]): row for row in rows if row["step"] == step}


def test_held_labels_are_those_of_the_receivers_own_points() -> None:
    found = pulls(dataset([0, 0, 0, 1], [1, 1, 2, 2], [3, 3, 2, 1]), 2)
    # everything goes to every neighbour: of 1, 1, 2, 2 device 0 holds the ones, device 2 all; of 0, 0, 0, 1 device 1
    # holds the one, of 3, 3, 2, 1 the 2 and the 1
    assert {link: row["held_labels"] for link, row in found.items()} == {
        (1, 0): 0.5,
        (0, 1): 0.25,
        (2, 1): 0.5,
        (1, 2): 1.0,
    }
    assert {row["items"] for row in found.values()} == {4}
    assert [row["effective_candidates"] for row in found.values()] == pytest.approx([4.0] * 4)


@pytest.mark.parametrize("overrides", [(), ("exchange.importance_model=local", "exchange.method=kmeans")], ids=" ".join)
def test_distances_are_to_the_receivers_centroid_under_the_global_model(overrides: tuple[str, ...]) -> None:
    data = dataset([0, 0, 0, 1], [1, 1, 2, 2], [3, 3, 2, 1])
    config = small(*LINE)
    encoder = Encoder(config.model, (1, 8, 8), seed=0)
    # by t = 2 devices have trained, but no new global model has come
    embeddings = encoder.embed(encoder.initial, data.train_images).view(3, 4, -1)
    found = pulls(data, 2, *overrides)
    assert len(found) == 4
    for (transmitter, receiver), row in found.items():
        # one cluster: its centroid is the mean of the receiver's four candidates, which are all it has
        shifts = embeddings[transmitter] - embeddings[receiver].mean(dim=0)
        assert row["centroid_distance"] == pytest.approx(float(shifts.norm(dim=1).mean()), rel=1e-4)


def test_implicit_distances_are_those_of_the_embeddings_that_came() -> None:
    data = dataset([0, 0, 0, 1], [1, 1, 2, 2], [3, 3, 2, 1])
    explicit, implicit = pulls(data, 2), pulls(data, 2, "exchange.mode=implicit")
    for link, row in explicit.items():
        assert implicit[link]["held_labels"] == row["held_labels"]
        assert implicit[link]["centroid_distance"] == pytest.approx(row["centroid_distance"], rel=1e-5)


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_relayed_items_keep_their_labels(mode: str) -> None:
    data = dataset([0] * 4, [1] * 4, [2] * 4)
    relaying = ("exchange.candidates=relay", "exchange.buffer=keep", f"exchange.mode={mode}")

    found = pulls(data, 4, *relaying)

    # device 1 holds four points of its own, then four of device 0, then four of device 2, and sends four of the twelve
    uniforms = torch.rand(12, dtype=torch.float64, generator=rng.stream(0, "candidates", 1, 4))
    sent = uniforms.argsort()[:4] // 4
    home = {(1, 0): int((sent == 1).sum()) / 4, (1, 2): int((sent == 2).sum()) / 4}
    assert len(set(home.values())) == 2
    assert {link: found[link]["held_labels"] for link in home} == home
    # what nobody looks at is followed all the same
    (traced,) = pulls(data, 4, *relaying, "evaluation.num_traced=1", "seed=2").items()
    assert traced == (traced[0], pulls(data, 4, *relaying, "seed=2")[traced[0]])


def test_without_labels_nothing_is_said_of_them() -> None:
    data = dataset([0] * 4, [1] * 4, [2] * 4)
    blind = Dataset("line", data.train_images, None, data.test_images, None, data.train_devices)
    rows = pulls(blind, 2)
    assert [row["held_labels"] for row in rows.values()] == [None] * 4
    assert all(row["centroid_distance"] > 0 for row in rows.values())
