import math
from dataclasses import replace

import pytest
import torch

from cfcl.config import Config
from cfcl.data import datasets
from cfcl.data.datasets import Dataset
from cfcl.models import Encoder
from cfcl.records import Evaluation, Final, Setup
from cfcl.sim import evaluation, world
from cfcl.sim.simulation import Simulation
from tests.conftest import small


def judged(labels: list[int]) -> Final:
    """The label map of a fresh encoder on images of one grey each, dark for label 3 and bright for others."""
    known = torch.tensor(labels)
    shades = torch.where(known == 3, 10, 200).to(torch.uint8)
    images = shades.view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    config = Config()
    encoder = Encoder(config.model, (1, 8, 8), seed=0)
    dataset = Dataset("shades", images, known, images, known)
    embeddings = encoder.embed(encoder.initial, evaluation.map_images(config, dataset))
    return evaluation.label_map(config, dataset, embeddings, 7)


def test_the_label_map_leaves_out_labels_with_a_single_point() -> None:
    found = judged([3, 7, 3, 5, 7, 9, 3])
    assert (found.step, found.labels) == (7, (3, 7))  # 5 and 9 occur once
    assert found.label_distances is not None
    within, between = found.label_distances[0]
    assert within == 0.0  # equal images
    assert between > 0.0
    assert found.label_distances[1] == (between, 0.0)


def test_a_sample_of_single_points_has_no_label_map() -> None:
    assert judged([1, 2, 3]) == Final(7)


def test_health_by_hand() -> None:
    config = small("train.margin=2.0")
    embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    altered = torch.tensor([[0.0, 1.0], [1.0, 0.0], [3.0, 2.0]])

    found = evaluation.health(config, embeddings, altered)

    # squared shifts 1, 0, 4
    assert found["alignment"] == pytest.approx(5 / 3)
    # squared distances 1, 9, 4, each twice: log of the mean of e^-2, e^-18, e^-8
    assert found["uniformity"] == pytest.approx(math.log((math.exp(-2) + math.exp(-18) + math.exp(-8)) / 3))
    # on a line: one direction
    assert found["effective_rank"] == pytest.approx(1.0)
    # anchor 0: 1-1+2 = 2, 1-9+2 < 0; anchor 1: 0-1+2 = 1, 0-4+2 < 0; anchor 3: 4-9+2 < 0, 4-4+2 = 2; six triplets
    assert found["objective"] == pytest.approx(5 / 6)


def test_health_is_that_of_a_fixed_sample_of_test_images() -> None:
    images = torch.arange(40).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    dataset = Dataset("counted", images[:3], None, images, None)
    shown = evaluation.health_images(small("evaluation.num_health=10"), dataset)[:, 0, 0, 0].tolist()
    assert len(set(shown)) == 10
    assert shown == sorted(shown)
    assert shown != evaluation.health_images(small("evaluation.num_health=10", "seed=1"), dataset)[:, 0, 0, 0].tolist()
    needed = evaluation.images(small("evaluation.num_health=10"), dataset)
    assert needed.keys() == {"sample", "altered"}  # no accuracy without labels
    assert (needed["sample"][:, 0, 0, 0] * 255).round().int().tolist() == shown


def test_agreement_compares_the_drawn_devices() -> None:
    assert evaluation.compared_devices(small("evaluation.num_health_devices=4")) == [0, 1, 2, 3]
    drawn = [
        tuple(evaluation.compared_devices(small("evaluation.num_health_devices=2", f"seed={n}"))) for n in range(9)
    ]
    assert all(len(pair) == 2 and pair == tuple(sorted(pair)) for pair in drawn)
    assert len(set(drawn)) > 1
    one, other = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [0.0], [1.0]])
    # a line and its mirror image agree; the two curves have no linear part in common: (1 + 0 + 0) / 3
    assert evaluation.agreement([one, -one, other])["cka"] == pytest.approx(1 / 3)


def test_few_labels_are_drawn_from_every_class() -> None:
    labels = torch.tensor([2, 0, 1, 0, 2, 2, 0, 2, 5, 0])

    one, three = evaluation.few_labels(labels, 1, seed=0), evaluation.few_labels(labels, 3, seed=0)

    assert one.shape == (5, 4)  # five draws of the labels 0, 1, 2 and 5
    for few, more in zip(one, three, strict=True):
        assert labels[few].sort().values.tolist() == [0, 1, 2, 5]
        assert labels[more].sort().values.tolist() == [0, 0, 0, 1, 2, 2, 2, 5]  # of 1 and 5 there is one only
        assert set(few.tolist()) < set(more.tolist())
        assert more.tolist() == sorted(set(more.tolist()))
    many = torch.arange(60) % 2
    for few, more in zip(evaluation.few_labels(many, 5, seed=0), evaluation.few_labels(many, 6, seed=0), strict=True):
        assert set(few.tolist()) < set(more.tolist())  # by chance hardly ever
    assert len({tuple(draw.tolist()) for draw in three}) > 1
    assert torch.equal(three, evaluation.few_labels(labels, 3, seed=0))
    assert not torch.equal(three, evaluation.few_labels(labels, 3, seed=1))


def figures(*overrides: str) -> dict[str, object]:
    (found,) = Simulation(small("evaluation.max_train=300", *overrides))._evaluate(0)
    return found.to_dict()


def test_features_and_few_labels_are_judged_where_they_are_asked_for() -> None:
    plain = figures()
    assert not any("few" in name or "features" in name for name in plain)

    both = figures("evaluation.features=true", "evaluation.labels_per_class=[2, 20]")

    assert {name: both[name] for name in plain} == plain  # to the bit
    few, features_few = both["few"], both["features_few"]
    assert isinstance(few, dict)
    assert isinstance(features_few, dict)
    assert few.keys() == features_few.keys() == {"2", "20"}
    for accuracies, whole in ((few, both["probe"]), (features_few, both["features_probe"])):
        assert isinstance(whole, float)
        assert 0.1 < accuracies["2"] < accuracies["20"] < whole + 0.02 < 1.02
    assert {name for name in both if name.startswith("features_")} == {
        "features_probe", "features_knn", "features_few", "features_alignment", "features_uniformity",
        "features_effective_rank",
    }  # fmt: skip


def test_the_worst_label_and_the_worst_device_by_hand() -> None:
    # label 0: two images, right in 2 of 4 draws; label 1: one, in 2 of 2; label 2 is not tested, so it does not count
    hits = torch.tensor([[True, False, True], [False, True, True]])
    blank = torch.zeros(1, dtype=torch.uint8).view(1, 1, 1, 1)
    labels, tested = torch.tensor([0, 1, 2, 1, 0, 0]), torch.tensor([0, 0, 1])
    dataset = Dataset("made", blank.expand(6, 1, 8, 8), labels, blank.expand(3, 1, 8, 8), tested)
    # devices have the labels 0 1 2, 1 0 0, and 2 alone: (0.5 + 1) / 2 = 0.75, (1 + 0.5 + 0.5) / 3 = 2 / 3, none
    parts = [torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]), torch.tensor([2])]

    assert evaluation.worst(hits, dataset, parts) == pytest.approx({"worst_label": 0.5, "worst_device": 2 / 3})
    assert evaluation.worst(hits, dataset, parts[2:]) == {"worst_label": 0.5}


def test_the_worst_are_recorded_where_they_are_asked_for() -> None:
    wanted = ("evaluation.labels_per_class=[20, 2]",)
    plain, both = figures(*wanted), figures(*wanted, "evaluation.worst=true")

    assert {name: both[name] for name in plain} == plain  # to the bit
    assert both.keys() - plain.keys() == {"worst_label", "worst_device"}
    assert isinstance(few := both["few"], dict)
    assert 0 < both["worst_label"] < both["worst_device"] < few["20"]  # type: ignore[operator]


def test_features_are_judged_by_their_direction() -> None:
    # lengths do not count: (1, 0), (0, 1) against (0, 1), (0, 1)
    sample, altered = torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.tensor([[0.0, 3.0], [0.0, 1.0]])
    dataset = Dataset("none", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), None, torch.zeros(0), None)

    found = evaluation.judge_features(small(), dataset, {"sample": sample, "altered": altered})

    # squared shifts 2 and 0; the only distance is sqrt(2): log exp(-4); one direction around the mean
    assert found == {
        "alignment": pytest.approx(1.0), "uniformity": pytest.approx(-4.0), "effective_rank": pytest.approx(1.0)
    }  # fmt: skip


def test_the_setup_tells_how_many_images_are_behind_accuracies_if_anything_new_is_asked_for() -> None:
    assert world.build(small()).setup().num_judged is None
    assert world.build(small("evaluation.features=true")).setup().num_judged == 359
    assert world.build(small("evaluation.labels_per_class=[3]")).setup().num_judged == 359


def test_with_validation_the_test_split_is_not_looked_at() -> None:
    known = datasets.load(small().data)
    config = small("data.validation=0.25", "evaluation.labels_per_class=[2]")

    rows = [list(Simulation(config, dataset=some).rows()) for some in (known, _untested(known))]

    assert rows[0] == rows[1]
    setup, first = rows[0][0], rows[0][1]
    assert isinstance(setup, Setup)
    assert isinstance(first, Evaluation)
    # a quarter of 142 146 142 146 145 146 145 143 139 144, rounded: 36 37 36 37 36 37 36 36 35 36
    assert (setup.num_judged, setup.split, sum(setup.points)) == (362, "validation", 1438 - 362)
    assert first.probe is not None
    assert small("data.validation=0.25").digest != small().digest
    other = world.build(small("data.validation=0.25", "seed=5")).dataset
    assert torch.equal(other.test_images, world.build(config).dataset.test_images)


def _untested(dataset: Dataset) -> Dataset:
    assert dataset.test_labels is not None
    return replace(dataset, test_images=dataset.test_images[:0], test_labels=dataset.test_labels[:0])
