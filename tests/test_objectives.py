"""The seam between a device and what it minimises, and the objectives of two views."""

from dataclasses import replace
from typing import Any, final

import pytest
import torch
from torch import Tensor

import cfcl
from cfcl import device, rng
from cfcl.config import Config
from cfcl.core import losses
from cfcl.errors import CfclError
from cfcl.models import Encoder
from cfcl.objectives import Layout, Objective, Seen, Terms, Triplet, build
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

    found = objective.terms(Seen(embeddings), received=received, margin=0.5, weight=2.0)

    # row 0: 1 - 1 + 1 = 1;  row 1: 0 - 16 + 1, closed
    torch.testing.assert_close(found.own, torch.tensor([1.0, 0.0]))
    # row 0: 1 - 1 + 0.5 and 1 - 9 + 0.5, closed;  row 1: 0 - 2 + 0.5 and 0 - 10 + 0.5, both closed
    torch.testing.assert_close(found.regulariser, torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(found.total, torch.tensor([2.0, 0.0]))
    without = objective.terms(Seen(embeddings), received=received, margin=0.5, weight=0.0)
    torch.testing.assert_close(without.total, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(without.regulariser, torch.zeros(2))


def test_roles_pick_the_images_of_a_triplet() -> None:
    objective = make("train.margin=1.0")
    embeddings = torch.tensor([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    roles = torch.tensor([[0, 2], [2, 0], [1, 1]])
    found = objective.terms(Seen(embeddings, roles), received=embeddings[:0], margin=0.0, weight=0.0)
    # (0,0)-(1,0)-(0,2): 1 - 4 + 1 = -2, closed;  (1,0)-(0,0)-(0,2): 1 - 5 + 1 = -3, closed
    torch.testing.assert_close(found.own, torch.zeros(2))
    swapped = objective.terms(Seen(embeddings, roles[[0, 2, 1]]), received=embeddings[:0], margin=0.0, weight=0.0)
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


# Points a and b: first views (2, 0) and (0, 1), second views (0.6, 0.8) and (-1, 0)
VIEWS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-1.0, 0.0]])
NOTHING = torch.zeros(0, 2)
PLAIN = Seen(VIEWS)


def terms(*overrides: str, seen: Seen = PLAIN, received: Tensor = NOTHING, weight: float = 0.0) -> Terms:
    return build(small(*overrides)).terms(seen, received=received, margin=1.5, weight=weight)


@pytest.mark.parametrize(
    ("objective", "own", "total"),
    [
        ("infonce", [0.294129, 1.939178, 0.948774, 0.362230], [0.478784, 3.211333, 1.426577, 2.468344]),
        ("dcl", [-1.073072, 1.783901, 0.459033, -0.828899], [-0.487581, 3.170195, 1.151970, 2.379813]),
    ],
)
def test_received_embeddings_are_further_negatives(objective: str, own: list[float], total: list[float]) -> None:
    settings = (f"train.objective={objective}", "train.temperature=0.5")
    plain = terms(*settings)
    torch.testing.assert_close(plain.own, torch.tensor(own))
    assert plain.total.tolist() == plain.own.tolist()
    assert plain.regulariser.tolist() == [0.0] * 4

    found = terms(*settings, received=torch.tensor([[1.0, 0.0], [-3.0, 4.0]]), weight=3.0)

    # squared distances to (1, 0): 1, 2, 0.8, 4; to (-3, 4): 41, 18, 23.2, 20: rows a1 and a2 leave out the first.
    # cosines over 0.5 with (1, 0): -, 0, -, -2; with (-3, 4): -1.2, 1.6, 0.56, 1.2.
    # In the sums besides those of the batch 3 e^-1.2, 3 (e^0 + e^1.6), 3 e^0.56, 3 (e^-2 + e^1.2)
    torch.testing.assert_close(found.own, torch.tensor(own))
    torch.testing.assert_close(found.total, torch.tensor(total))
    torch.testing.assert_close(found.regulariser, (torch.tensor(total) - torch.tensor(own)) / 3)


@pytest.mark.parametrize(
    ("normalise", "expected"),
    [
        # mean squares (1.4^2 + 0.8^2) / 2 = 1.3 and (1 + 1) / 2 = 1; variances 2, 0.5 and 1.28, 0.32: deviations lack
        # 0, 0.292822 and 0, 0.434226, a quarter of which sum; covariances -1 and 0.64, so that the mean of the sums is
        # 1 + 0.4096: 2 * 1.3 + 4 * 0.181762 + 10 * 1.4096
        ("false", [17.423048, 16.823048]),
        # all times sqrt 2: 2.6 and 2; variances 4, 1 and 2.56, 0.64: lack 0.199937 once; covariances -2 and 1.28
        ("true", [5.2 + 4 * 0.049984 + 10 * 5.6384, 4.0 + 4 * 0.049984 + 10 * 5.6384]),
    ],
)
def test_vicreg_by_hand_on_and_off_the_sphere(normalise: str, expected: list[float]) -> None:
    settings = ("train.invariance=2", "train.variance=4", "train.covariance=10", f"model.normalise={normalise}")
    found = terms("train.objective=vicreg", *settings)
    torch.testing.assert_close(found.total, torch.tensor(expected))


def test_vicreg_and_byol_take_received_embeddings_by_eq_23() -> None:
    received = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    seen = Seen(VIEWS, None, VIEWS, VIEWS.roll(1, 0))
    for objective in ("vicreg", "byol"):
        found = terms(
            f"train.objective={objective}", "regulariser.reduction=sum", seen=seen, received=received, weight=2.0
        )
        # a: |a1 - a2|^2 = 2.6: 2.6 - 1 + 1.5 and 2.6 - 29 + 1.5, closed; b: 2 - 2 + 1.5 and 2 - 16 + 1.5, closed
        torch.testing.assert_close(found.regulariser, torch.tensor([3.1, 1.5]))
        torch.testing.assert_close(found.total, found.own + torch.tensor([6.2, 3.0]))


def test_byol_by_hand_both_ways_round() -> None:
    predictions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [0.0, -2.0]])
    targets = torch.tensor([[0.0, 2.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = terms("train.objective=byol", seen=Seen(VIEWS, None, predictions, targets))
    # a: cos((1, 0), (1, 0)) = 1 and cos((3, 4), (0, 2)) = 0.8: 0 + 0.4; b: cos = 1 and 0: 0 + 2
    torch.testing.assert_close(found.total, torch.tensor([0.4, 2.0]))


def test_the_target_of_byol_follows_the_model() -> None:
    objective = build(small("train.objective=byol", "train.momentum=0.75"))
    params = torch.tensor([1.0, -2.0])
    start = objective.extras(params)
    assert objective.target(start) is params
    # 0.75 * 1 + 0.25 * 5 = 2; 0.75 * -2 + 0.25 * 2 = -1
    assert objective.follow(start, torch.tensor([5.0, 2.0]))["target"].tolist() == [2.0, -1.0]
    assert build(small("train.objective=infonce")).target({}) is None


def test_a_predictor_is_trained_with_the_encoder_and_no_part_of_it() -> None:
    config = small("train.objective=byol")
    plain = Encoder(config.model, (1, 8, 8), seed=0)
    longer = Encoder(config.model, (1, 8, 8), seed=0, tail=build(config).tail)
    # 16 * 64 + 64 and 64 * 16 + 16
    assert longer.num_parameters == plain.num_parameters + 1088 + 1040
    assert torch.equal(longer.initial.params[: plain.num_parameters], plain.initial.params)
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(longer.embed(longer.initial, images), plain.embed(plain.initial, images))
    saved, expected = longer.state_dict(longer.initial), plain.state_dict(plain.initial)
    assert saved.keys() == expected.keys()
    gradient, _, predicted = longer.gradient(longer.initial, images, lambda found: (longer.predict(found).sum(), found))
    # the last bias adds to the sum once per image
    assert gradient[-16:].tolist() == [3.0] * 16
    assert predicted.shape == (3, 16)


def test_a_batch_of_views_is_of_distinct_points_a_share_of_them_pulled() -> None:
    objective = build(small("train.objective=dcl"))
    alone, both = (
        objective.compose(rng.stream(0, "batch"), num_local=20, num_pulled=number).used.tolist() for number in (0, 9)
    )
    assert len(set(alone)) == len(set(both)) == 8
    assert max(alone) < 20
    # half of eight; the local ones are those that a run without exchange draws
    assert both[:4] == alone[:4]
    assert all(20 <= position < 29 for position in both[4:])


def test_pulled_points_are_augmented_twice_like_others() -> None:
    setting = world.build(small("train.objective=infonce")).setting
    store = torch.zeros(20, 1, 8, 8, dtype=torch.uint8)
    state = device.start(setting, 0, store, torch.arange(20))
    state = replace(state, pulled=torch.full((9, 1, 8, 8), 255, dtype=torch.uint8))
    (batch,) = device.draw_batches(setting, [state], 3)
    assert batch.images.shape == (16, 1, 8, 8)
    bright = batch.images.flatten(1).mean(dim=1)
    assert (bright > 0.3).tolist() == ([False] * 4 + [True] * 4) * 2
    assert not torch.equal(batch.images[4:8], batch.images[12:])
    _, report = device.local_step(setting, state, 3, batch)
    assert report.pulled_share == 0.5
    assert (report.triplet, report.regulariser, report.active) == (report.loss, 0.0, 1.0)
    below_zero = build(setting.config, lambda one, two: -(one - two).square().mean())
    state, report = device.local_step(replace(setting, objective=below_zero), state, 3, batch)
    assert report.loss < 0
    assert (report.active, state.active) == (1.0, 1.0)


def test_a_step_of_byol_moves_model_predictor_and_target() -> None:
    config = small("train.objective=byol", "train.momentum=0.9")
    scene = world.build(config)
    before = device.start(scene.setting, 0, scene.dataset.train_images, scene.parts[0])
    after, report = device.local_step(scene.setting, before, 0)
    moved = after.weights.params != before.weights.params
    assert bool(moved[:17_648].any())
    assert bool(moved[17_648:].any())
    start, end = before.weights.params, after.weights.params
    torch.testing.assert_close(after.extras["target"], start + 0.1 * (end - start))
    # at the start the target is the model, the predictor is not the identity
    assert 0 < report.loss < 8
    assert torch.equal(before.extras["target"], start)


def test_more_points_than_a_device_has_are_refused() -> None:
    config = small("train.objective=vicreg", "train.batch_size=21")
    setting = world.build(config).setting
    state = device.start(setting, 3, torch.zeros(20, 1, 8, 8, dtype=torch.uint8), torch.arange(20))
    with pytest.raises(CfclError, match=r"^train\.batch_size=21 exceeds the 20 points of device 3.*: lower it$"):
        device.check(setting, state)
    with pytest.raises(CfclError, match=r"objective='byol' compares points of one batch, but batch_size=1: set train"):
        small("train.objective=byol", "train.batch_size=1")


@final
class Pull(Objective):
    """Two views of a point attract each other: the smallest objective of two views, with state that is averaged."""

    two_views = True

    def compose(self, stream: torch.Generator, *, num_local: int, num_pulled: int) -> Layout:
        drawn = torch.randperm(num_local, generator=stream)[:4]
        return Layout(drawn, drawn[:0], None)

    def terms(self, seen: Seen, *, received: Tensor, margin: float, weight: float) -> Terms:
        one, two = seen.embeddings.chunk(2)
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


def test_a_loss_of_ones_own_is_an_objective_of_two_views() -> None:
    seen: list[tuple[int, ...]] = []

    def spread(first: Tensor, second: Tensor) -> Tensor:
        seen.append(tuple(first.shape))
        scale = 4.0  # the root of 16, as on the sphere
        return losses.vicreg_loss(scale * first, scale * second, invariance=25.0, variance=25.0, covariance=1.0).mean()

    mine = cfcl.run(small(), loss=spread)
    named = cfcl.run(small("train.objective=vicreg"), workers=1)

    assert set(seen) == {(8, 16)}
    assert [row["loss"] for row in mine.of("train")] == pytest.approx([row["loss"] for row in named.of("train")], 1e-4)
    torch.testing.assert_close(mine.encoder.weights.params, named.encoder.weights.params, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("loss", "complaint"),
    [
        (
            lambda one, two: (one - two).square().sum(1),
            r"^the loss gave \(8,\), but one number is needed: let it return",
        ),
        (lambda one, two: 1.0, r"^the loss gave float, but one number"),
    ],
)
def test_a_loss_that_is_no_number_is_refused(loss: Any, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        cfcl.run(small(), loss=loss)


def test_a_loss_with_parameters_is_refused_and_one_without_them_trains() -> None:
    class Distance(torch.nn.Module):
        """As in libraries of losses."""

        def __init__(self, *parts: torch.nn.Module) -> None:
            super().__init__()
            self.parts = torch.nn.Sequential(*parts)

        def forward(self, one: Tensor, two: Tensor) -> Tensor:
            apart: Tensor = self.parts(one) - two
            return apart.square().mean()

    with pytest.raises(CfclError, match=r"^the loss Distance has parameters, but they would be neither trained nor"):
        cfcl.run(small(), loss=Distance(torch.nn.Linear(16, 16)))
    assert cfcl.run(small(), loss=Distance()).of("train")


def test_a_loss_of_ones_own_stays_in_its_process() -> None:
    with pytest.raises(CfclError, match="2 workers cannot share objects of this process"):
        cfcl.run(small(), loss=lambda one, two: (one - two).square().mean(), workers=2)
