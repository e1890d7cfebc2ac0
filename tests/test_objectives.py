"""The seam between a device and what it minimises."""

from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from cfcl import device, rng
from cfcl.config import Config
from cfcl.objectives import Layout, Objective, Terms, Triplet, build
from cfcl.protocol.link import Direct
from cfcl.protocol.parties import together
from cfcl.protocol.steps import play, rounds
from cfcl.sim import world
from tests.conftest import small


def make(*overrides: str) -> Triplet:
    found = build(small(*overrides))
    assert isinstance(found, Triplet)
    return found


def test_the_terms_of_a_batch_by_hand() -> None:
    objective = make("train.margin=1.0", "regulariser.reduction=sum")
    # anchors (0, 0) and (1, 0); positives (1, 0) and (1, 0); negatives (0, 1) and (5, 0)
    embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    received = torch.tensor([[0.0, 1.0], [0.0, 3.0]])

    found = objective.terms(embeddings, None, received=received, margin=0.5, weight=2.0)

    # row 0: 1 - 1 + 1 = 1;  row 1: 0 - 16 + 1, closed
    torch.testing.assert_close(found.own, torch.tensor([1.0, 0.0]))
    # row 0: 1 - 1 + 0.5 and 1 - 9 + 0.5, closed;  row 1: 0 - 2 + 0.5 and 0 - 10 + 0.5, both closed
    torch.testing.assert_close(found.regulariser, torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(found.total, torch.tensor([2.0, 0.0]))
    without = objective.terms(embeddings, None, received=received, margin=0.5, weight=0.0)
    torch.testing.assert_close(without.total, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(without.regulariser, torch.zeros(2))


def test_roles_pick_the_images_of_a_triplet() -> None:
    objective = make("train.margin=1.0")
    embeddings = torch.tensor([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    roles = torch.tensor([[0, 2], [2, 0], [1, 1]])
    found = objective.terms(embeddings, roles, received=embeddings[:0], margin=0.0, weight=0.0)
    # (0,0)-(1,0)-(0,2): 1 - 4 + 1 = -2, closed;  (1,0)-(0,0)-(0,2): 1 - 5 + 1 = -3, closed
    torch.testing.assert_close(found.own, torch.zeros(2))
    swapped = objective.terms(embeddings, roles[[0, 2, 1]], received=embeddings[:0], margin=0.0, weight=0.0)
    # 4 - 1 + 1 = 4;  5 - 1 + 1 = 5
    torch.testing.assert_close(swapped.own, torch.tensor([4.0, 5.0]))


def test_what_a_candidate_is_worth_uses_the_margin_of_training() -> None:
    reserve, positives = torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[1.0, 0.0]]])
    candidates = torch.tensor([[[0.0, 1.0], [0.0, 3.0]]])
    # 1 - 1 + m and 1 - 9 + m, with m = 0.5 and 9
    for margin, expected in ((0.5, [0.5, 0.0]), (9.0, [9.0, 1.0])):
        found = make(f"train.margin={margin}").usefulness(reserve, positives, candidates)
        torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


def test_negatives_of_the_same_batch_are_other_anchors() -> None:
    layout = make("train.negatives=batch").compose(rng.stream(0, "batch"), num_local=20, num_pulled=0)
    assert layout.roles is not None
    assert len(layout.others) == 0
    assert len(set(layout.anchors.tolist())) == 8
    assert layout.roles[1].tolist() == [8 + row for row in layout.roles[0].tolist()]
    assert torch.equal(layout.used, torch.cat([layout.anchors, layout.anchors[layout.roles[2]]]))
    assert not bool((layout.used[:8] == layout.used[8:]).any())


@final
class Pull(Objective):
    """Two views of a point attract each other: the smallest objective of two views, with state that is averaged."""

    two_views = True

    def compose(self, stream: torch.Generator, *, num_local: int, num_pulled: int) -> Layout:
        drawn = torch.randperm(num_local, generator=stream)[:4]
        return Layout(drawn, drawn[:0], None)

    def terms(
        self, embeddings: Tensor, roles: Tensor | None, *, received: Tensor, margin: float, weight: float
    ) -> Terms:
        one, two = embeddings.chunk(2)
        distance = (one - two).square().sum(-1)
        return Terms(distance, torch.zeros_like(distance), distance)

    def usefulness(self, reserve: Tensor, positives: Tensor, candidates: Tensor) -> Tensor:
        return candidates.double().square().sum(-1)

    def extras(self, params: Tensor) -> dict[str, Tensor]:
        return {"target": params * 2, "count": torch.zeros(1)}


def start(config: Config) -> Any:
    scene = world.build(config)
    objective = Pull()
    setting = replace(scene.setting, objective=objective, extras=objective.extras(scene.setting.encoder.initial.params))
    rules = replace(scene.rules, setting=setting)
    images = scene.dataset.train_images
    return together(rules, [device.start(setting, i, images, part) for i, part in enumerate(scene.parts)])


def test_two_views_are_two_draws_of_the_same_points() -> None:
    (host,) = start(small("augment.rotation=3", "augment.perspective=0.05"))
    (batch, _) = device.draw_batches(host.rules.setting, [host.devices[0], host.devices[1]], 3)
    one, two = batch.images.chunk(2)
    assert one.shape == two.shape == (4, 1, 8, 8)
    assert not torch.equal(one, two)
    originals = host.devices[0].points[batch.positions].float() / 255
    # both are views of the same points: nearer to their own than to another's
    for view in (one, two):
        distances = (view.flatten(1)[:, None] - originals.flatten(1)[None]).square().sum(-1)
        assert bool((distances.argmin(1) == torch.arange(4)).all())


def test_another_objective_trains_and_its_state_is_averaged_with_the_model() -> None:
    (host,) = start(small("exchange.method=fedavg"))
    host.devices[1] = replace(host.devices[1], extras={**host.devices[1].extras, "count": torch.tensor([4.0])})
    for step in range(5):
        for item in rounds(host.rules, step):
            for phase in item.phases:
                assert play(phase, [host], Direct(), step).refusals == []
    weights = [len(host.devices[i].points) for i in range(4)]
    # only device 1 had a count
    expected = 4.0 * weights[1] / sum(weights)
    assert host.server.extras["count"].tolist() == [torch.tensor(expected).item()]
    assert host.devices[3].extras["count"].tolist() == host.server.extras["count"].tolist()
    assert not torch.equal(host.devices[0].weights.params, host.rules.setting.encoder.initial.params)
