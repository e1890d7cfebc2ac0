import math
from typing import Literal

import pytest
import torch

from cfcl.core import losses


@pytest.mark.equation("1")
def test_triplet_loss_matches_eq_1_by_hand() -> None:
    anchor = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    positive = torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    negative = torch.tensor([[0.0, 2.0], [4.0, -2.0]])

    loss = losses.triplet_loss(anchor, positive, negative, margin=1.0)

    # row 0: 25 - 4 + 1 = 22, active;  row 1: 1 - 25 + 1 = -23, clamped to 0
    torch.testing.assert_close(loss, torch.tensor([22.0, 0.0]))


@pytest.mark.equation("2", "3")
def test_objective_sums_over_anchors_draws_and_other_points() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0]])
    positives = torch.tensor([[[1.0], [1.0], [3.0]], [[0.0], [3.0], [5.0]]])

    total = losses.objective(points, positives, margin=2.0)

    # squared distances: 0-1: 1, 0-3: 9, 1-3: 4. Anchor-positive, draw 1: 1, 0, 0; draw 2: 0, 4, 4.
    # draw 1: anchor 0: 1-1+2 = 2, 1-9+2 < 0; anchor 1: 0-1+2 = 1, 0-4+2 < 0; anchor 3: < 0, 0-4+2 < 0  -> 3
    # draw 2: anchor 0: 0-1+2 = 1, < 0;       anchor 1: 4-1+2 = 5, 4-4+2 = 2; anchor 3: 4-9+2 < 0, 4-4+2 = 2 -> 10
    assert float(total) == pytest.approx(13.0)


@pytest.mark.equation("3")
def test_objective_agrees_with_triplets_one_by_one() -> None:
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(5, 3, generator=generator)
    positives = torch.randn(2, 5, 3, generator=generator)

    by_hand = sum(
        float(losses.triplet_loss(points[a, None], positives[f, a, None], points[n, None], margin=0.7))
        for f in range(2)
        for a in range(5)
        for n in range(5)
        if n != a
    )

    assert float(losses.objective(points, positives, margin=0.7)) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.equation("23")
@pytest.mark.parametrize(("reduction", "expected"), [("mean", [2.0, 9.5]), ("sum", [4.0, 19.0])])
def test_regulariser_matches_eq_23_by_hand(reduction: Literal["mean", "sum"], expected: list[float]) -> None:
    anchor = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    positive = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    received = torch.tensor([[0.0, 0.0], [3.0, 0.0]])

    found = losses.regulariser(anchor, positive, received, margin=3.0, reduction=reduction)

    # anchor 0, |a-p|^2 = 1: 1 - 0 + 3 = 4 and 1 - 9 + 3 = -5 -> 0; anchor 1, |a-p|^2 = 9: 9 - 4 + 3 = 8, 9 - 1 + 3 = 11
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.equation("23")
def test_the_weight_scales_only_the_regulariser() -> None:
    total = losses.regularised_triplet_loss(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 2.0]), weight=0.5)

    # 1 + 0.5 * 4 = 3;  0 + 0.5 * 2 = 1
    torch.testing.assert_close(total, torch.tensor([3.0, 1.0]))


def test_received_embeddings_carry_no_gradient() -> None:
    anchor, received = torch.zeros(1, 2, requires_grad=True), torch.tensor([[3.0, 0.0]], requires_grad=True)

    loss = losses.regulariser(anchor, torch.tensor([[1.0, 2.0]]), received, margin=5.0, reduction="mean")
    torch.autograd.backward(loss)

    # the hinge is open: 5 - 9 + 5 = 1; d/da (|a-p|^2 - |a-z|^2) = 2 (z - p) = 2 (2, -2)
    assert loss.tolist() == [1.0]
    assert received.grad is None
    torch.testing.assert_close(anchor.grad, torch.tensor([[4.0, -4.0]]))


def test_nothing_received_is_no_term() -> None:
    anchor = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    found = losses.regulariser(anchor, anchor + 1, torch.zeros(0, 2), margin=1.0, reduction="mean")
    assert found.tolist() == [0.0, 0.0]


@pytest.mark.equation("24")
@pytest.mark.parametrize(("radius", "expected"), [("length", 5.0), ("squared", 13.0)])
def test_dynamic_margin_matches_eq_24_by_hand(radius: Literal["length", "squared"], expected: float) -> None:
    squared_radii = torch.tensor([4.0, 100.0, 9.0])
    occupied = torch.tensor([True, False, True])

    # k = 2; lengths 2 and 3: 2 * 2.5 = 5; squares 4 and 9: 2 * 6.5 = 13; the empty cluster does not count
    assert losses.regulariser_margin(squared_radii, occupied, factor=2.0, radius=radius) == pytest.approx(expected)


def test_dynamic_margin_without_clusters_is_zero() -> None:
    none = torch.zeros(2, dtype=torch.bool)
    assert losses.regulariser_margin(torch.ones(2), none, factor=1.0, radius="length") == 0.0


@pytest.mark.equation("25")
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 2.735759),  # t mod 5 = 0: 2 * (1 + e^-1) = 2 * 1.3678794
        (4, 1.548898),  # t mod 5 = 4: 2 * (e^-1 + e^(0.1 - 1)) = 2 * (0.3678794 + 0.4065697)
        (5, 2.833724),  # t mod 5 = 0: 2 * (1 + e^(0.125 - 1)) = 2 * (1 + 0.4168620)
        (22, 2.488318),  # t mod 5 = 2: 2 * (e^-0.5 + e^(0.55 - 1)) = 2 * (0.6065307 + 0.6376282)
    ],
)
def test_regulariser_weight_matches_eq_25_by_hand(step: int, expected: float) -> None:
    found = losses.regulariser_weight(step, num_steps=40, aggregation_period=5, weight=2.0, staleness=1.0)
    assert found == pytest.approx(expected, abs=1e-5)


def test_regulariser_weight_without_local_steps_has_a_constant_first_term() -> None:
    found = losses.regulariser_weight(3, num_steps=10, aggregation_period=1, weight=1.0, staleness=0.3)
    # 1 + e^(0.3 - 0.3) = 2
    assert found == pytest.approx(2.0)


def test_proximal_gradient_points_away_from_the_global_model() -> None:
    found = losses.proximal_gradient(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 2.0]), weight=0.5)
    torch.testing.assert_close(found, torch.tensor([0.5, -2.0]))


def test_active_share_counts_open_hinges() -> None:
    assert losses.active_share(torch.tensor([0.0, 0.1, 0.0, 3.0])) == 0.5


# Points a and b: first views (2, 0) and (0, 1), second views (0.6, 0.8) and (-1, 0); cosines a1-a2 0.6, b1-b2 0,
# a1-b1 0, a1-b2 -1, b1-a2 0.8, a2-b2 -0.6
VIEWS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-1.0, 0.0]])
NEVER = -math.inf


def test_similarities_of_views_by_hand() -> None:
    positive, negatives = losses.view_similarities(VIEWS, temperature=0.5)
    torch.testing.assert_close(positive, torch.tensor([1.2, 0.0, 1.2, 0.0]))
    expected = [
        [NEVER, 0.0, NEVER, -2.0],
        [0.0, NEVER, 1.6, NEVER],
        [NEVER, 1.6, NEVER, -1.2],
        [-2.0, NEVER, -1.2, NEVER],
    ]
    torch.testing.assert_close(negatives, torch.tensor(expected))


def test_nt_xent_and_its_decoupled_form_by_hand() -> None:
    rows = losses.view_similarities(VIEWS, temperature=0.5)
    # log(e^0 + e^-2) - 1.2, log(e^0 + e^1.6) - 0, log(e^1.6 + e^-1.2) - 1.2, log(e^-2 + e^-1.2) - 0
    torch.testing.assert_close(losses.decoupled_loss(*rows), torch.tensor([-1.073072, 1.783901, 0.459033, -0.828899]))
    # with e^1.2 and e^0 in the sums: log(3.320117 + 1.135335) - 1.2 = 0.294129, and so on
    torch.testing.assert_close(losses.nt_xent_loss(*rows), torch.tensor([0.294129, 1.939178, 0.948774, 0.362230]))


def test_nt_xent_agrees_with_a_plain_loop() -> None:
    views = torch.randn(10, 3, generator=torch.Generator().manual_seed(2))
    cosine = torch.nn.functional.cosine_similarity
    for row, loss in enumerate(losses.nt_xent_loss(*losses.view_similarities(views, temperature=0.3)).tolist()):
        terms = {other: math.exp(float(cosine(views[row], views[other], dim=0)) / 0.3) for other in range(10)}
        del terms[row]
        assert loss == pytest.approx(-math.log(terms[(row + 5) % 10] / sum(terms.values())), rel=1e-4)


def test_similarities_of_received_embeddings_by_hand() -> None:
    received = torch.tensor([[1.0, 0.0], [-3.0, 4.0]])
    found = losses.received_similarities(VIEWS[:2], received, temperature=0.5, weight=3.0, margin=1.5)
    # cosines over 0.5: 2, -1.2; 0, 1.6, each plus log 3 = 1.098612; squared distances 1 < 1.5, 41; 2, 18
    torch.testing.assert_close(found, torch.tensor([[NEVER, -0.101388], [1.098612, 2.698612]]))
    at_margin = losses.received_similarities(VIEWS[:2], received, temperature=0.5, weight=0.5, margin=1.0)
    # 2 - log 2: what lies at the margin counts
    assert float(at_margin[0, 0]) == pytest.approx(1.306853)


def test_received_embeddings_push_and_carry_no_gradient() -> None:
    views, received = torch.tensor([[0.0, 1.0]], requires_grad=True), torch.tensor([[1.0, 0.0]], requires_grad=True)
    found = losses.received_similarities(views, received, temperature=0.5, weight=1.0, margin=0.0)
    torch.autograd.backward(found)
    assert received.grad is None
    # d/dv cos(v, (1, 0)) = ((1, 0) - 0 * v) / |v|
    torch.testing.assert_close(views.grad, torch.tensor([[2.0, 0.0]]))


FIRST = torch.tensor([[0.0, 0.0], [2.0, 0.2], [4.0, 0.4]])
SECOND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])


def test_the_variance_hinge_by_hand() -> None:
    # variances 4 and 0.04: deviations sqrt(4.0001) > 1 and sqrt(0.0401) = 0.2002498
    torch.testing.assert_close(losses.variance_hinge(FIRST), torch.tensor([0.0, 0.7997502]))


def test_squared_covariances_by_hand() -> None:
    third = torch.tensor([[1.0], [1.0], [-2.0]])
    # centred columns (-2, 0, 2), (-0.2, 0, 0.2), (1, 1, -2): covariances 0.4, -3, -0.3
    expected = torch.tensor([0.16 + 9.0, 0.16 + 0.09, 9.0 + 0.09])
    torch.testing.assert_close(losses.squared_covariances(torch.cat([FIRST, third], dim=1)), expected)


def test_vicreg_by_hand() -> None:
    found = losses.vicreg_loss(FIRST, SECOND, invariance=2.0, variance=3.0, covariance=10.0)
    # mean squares: (1 + 0) / 2, (4 + 0.64) / 2, (25 + 1.96) / 2; SECOND has variances 1, 1 and covariance 0.5:
    # shared: 3 * 0.7997502 / 2 / 2 + 10 * (0.16 + 0.25) = 4.699813
    torch.testing.assert_close(found, torch.tensor([1.0, 4.64, 26.96]) + 4.699813)


def test_byol_by_hand() -> None:
    prediction = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    target = torch.tensor([[0.0, 2.0], [-5.0, 0.0], [7.0, 0.0]], requires_grad=True)
    found = losses.byol_loss(prediction, target)
    # cosines 0.8, -1, 0
    torch.testing.assert_close(found, torch.tensor([0.4, 4.0, 2.0]))
    torch.autograd.backward(found.sum())
    assert target.grad is None
    # -2 times the part of the target's direction across the prediction, over its length: row 2: -2 * (1, 0) / 1
    assert prediction.grad is not None
    torch.testing.assert_close(prediction.grad[2], torch.tensor([-2.0, 0.0]))
