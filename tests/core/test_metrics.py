import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from cfcl.core.metrics import (
    alignment,
    effective_number,
    effective_rank,
    few_label_hits,
    knn_accuracy,
    label_distances,
    linear_cka,
    linear_probe,
    linear_probe_sgd,
    mean_pairwise_cka,
    moments,
    quick_hits,
    separation,
    softmax_regression,
    standardise,
    uniformity,
)
from cfcl.rng import stream


def _line(*values: float) -> Tensor:
    """Points on a line."""
    return torch.tensor(values).unsqueeze(-1)


def _blobs(num_points: int, dim: int, num_classes: int, *, collinear: bool = False) -> tuple[Tensor, Tensor]:
    """Overlapping classes; collinear features are mixed so that their strengths span four decades."""
    generator = stream(0, "metrics")
    labels = torch.randint(num_classes, (num_points,), generator=generator)
    centres = torch.randn(num_classes, dim, generator=generator)
    embeddings = centres[labels] + torch.randn(num_points, dim, generator=generator)
    if collinear:
        strength = torch.logspace(0, -4, dim).unsqueeze(-1)
        embeddings = embeddings @ (strength * torch.randn(dim, dim, generator=generator))
    return embeddings, labels


def _pair(embeddings: Tensor, labels: Tensor, by: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Embeddings, standardised by those of `by`, and their labels."""
    return standardise(embeddings, *moments(embeddings if by is None else by)), labels


def _standardised(embeddings: Tensor) -> Tensor:
    return ((embeddings - embeddings.mean(dim=0)) / embeddings.std(dim=0, correction=0)).double()


def test_softmax_regression_by_hand() -> None:
    # By symmetry the weights are w and -w and the bias is 0: the loss is log(1 + exp(-2w)) + ridge w^2,
    # stationary where ridge w = 1 / (1 + exp(2w)): at w = 1 for ridge = 1 / (1 + 7.3890561) = 0.1192029
    weights = softmax_regression(_line(1.0, -1.0), torch.tensor([1, 0]), num_classes=2, ridge=0.1192029)

    expected = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


def test_softmax_regression_leaves_the_bias_free() -> None:
    # no feature tells anything: the bias alone fits the shares 3/4 and 1/4, whatever the ridge: log 3 = 1.0986123
    weights = softmax_regression(torch.zeros(4, 2), torch.tensor([1, 0, 1, 1]), num_classes=2, ridge=10.0)

    expected = torch.tensor([[0.0, 0.0, -1.0986123 / 2], [0.0, 0.0, 1.0986123 / 2]], dtype=torch.float64)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("dim", "collinear"), [(5, False), (16, True)])
def test_softmax_regression_finds_the_coefficients_of_scikit_learn(dim: int, collinear: bool) -> None:
    embeddings, labels = _blobs(500, dim, 4, collinear=collinear)
    features = _standardised(embeddings)
    ridge = 1e-3

    weights = softmax_regression(features, labels, num_classes=4, ridge=ridge)

    reference = LogisticRegression(C=1 / (500 * ridge), tol=1e-10, max_iter=10000, solver="newton-cg")
    reference.fit(features.numpy(), labels.numpy())
    torch.testing.assert_close(weights[:, :-1], torch.from_numpy(reference.coef_), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(weights[:, -1], torch.from_numpy(reference.intercept_), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("ridge", [1e-2, 1e-4, 1e-6])
def test_softmax_regression_converges_on_collinear_features(ridge: float) -> None:
    embeddings, labels = _blobs(2000, 16, 10, collinear=True)
    features = _standardised(embeddings)

    weights = softmax_regression(features, labels, num_classes=10, ridge=ridge).requires_grad_()

    logits = features @ weights[:, :-1].T + weights[:, -1]
    loss = torch.nn.functional.cross_entropy(logits, labels) + ridge / 2 * weights[:, :-1].square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    assert gradient.norm() < 1e-5


def test_softmax_regressions_of_several_sets_are_those_of_each() -> None:
    features, labels = _blobs(300, 4, 3)
    sets = torch.stack([torch.arange(40), torch.arange(60, 100), torch.arange(160, 200)])

    together = softmax_regression(features[sets], labels[sets], num_classes=3, ridge=1e-2)

    assert together.shape == (3, 3, 5)
    for found, chosen in zip(together, sets, strict=True):
        alone = softmax_regression(features[chosen], labels[chosen], num_classes=3, ridge=1e-2)
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-4)


def test_standardise_by_hand() -> None:
    # mean 3, deviation 2; the second feature is constant and keeps its distance
    mean, deviation = moments(torch.tensor([[1.0, 7.0], [5.0, 7.0]]))
    assert (mean.tolist(), deviation.tolist()) == ([3.0, 7.0], [2.0, 1.0])
    assert standardise(torch.tensor([[4.0, 9.0]]), mean, deviation).tolist() == [[0.5, 2.0]]


def test_quick_hits_are_those_of_the_converged_probe() -> None:
    embeddings, labels = _blobs(1500, 8, 5, collinear=True)
    train, test = embeddings[:500], embeddings[500:]

    hits = quick_hits(*_pair(train, labels[:500]), *_pair(test, labels[500:], by=train), num_classes=5, ridge=1e-3)

    expected = linear_probe(train, labels[:500], test, labels[500:], num_classes=5, ridge=1e-3)
    assert hits.shape == (1000,)
    assert hits.double().mean().item() == pytest.approx(expected, abs=0.003)


def test_few_label_hits_by_hand() -> None:
    train, train_labels = _line(0.0, 1.0, 6.0, 10.0, 11.0), torch.tensor([0, 0, 1, 1, 1])
    test, test_labels = _line(2.0, 5.0, 20.0), torch.tensor([0, 1, 0])

    chosen = torch.tensor([[0, 3], [1, 2], [0, 4]])
    hits = few_label_hits(train, train_labels, test, test_labels, chosen, num_classes=2, ridge=1e-3)

    # boundaries half way: at 5, 3.5 and 5.5; 5 lies on the first and beyond the second only, 20 is wrong everywhere
    assert hits[:, [0, 2]].tolist() == [[True, False]] * 3
    assert hits[1:, 1].tolist() == [True, False]


@pytest.mark.parametrize("dim", [6, 90])
def test_few_label_hits_are_those_of_a_probe_on_these_labels_alone(dim: int) -> None:
    embeddings, labels = _blobs(700, dim, 4)
    embeddings = (embeddings + 3 * torch.randn(700, dim, generator=stream(0, "noise"))) * torch.linspace(0.2, 3, dim)
    train, test = torch.split(standardise(embeddings, *moments(embeddings[:300])), [300, 400])
    chosen = torch.stack([torch.arange(40), torch.arange(100, 140)])

    hits = few_label_hits(train, labels[:300], test, labels[300:], chosen, num_classes=4, ridge=0.02)

    for found, some in zip(hits, chosen, strict=True):
        weights = softmax_regression(train[some], labels[some], num_classes=4, ridge=0.02)
        predicted = (test @ weights[:, :-1].T + weights[:, -1]).argmax(dim=1)
        assert (found == (predicted == labels[300:])).double().mean() > 0.99
    assert 0.3 < hits.double().mean() < 0.999


def test_linear_probe_agrees_with_scikit_learn() -> None:
    embeddings, labels = _blobs(1500, 8, 5)
    train, test = embeddings[:500], embeddings[500:]
    mean, deviation = train.mean(dim=0), train.std(dim=0, correction=0)

    accuracy = linear_probe(train, labels[:500], test, labels[500:], num_classes=5, ridge=1e-3)

    reference = LogisticRegression(C=1 / (500 * 1e-3), tol=1e-8, max_iter=1000)
    reference.fit(((train - mean) / deviation).numpy(), labels[:500].numpy())
    expected = reference.score(((test - mean) / deviation).numpy(), labels[500:].numpy())
    assert accuracy == pytest.approx(expected, abs=0.001)
    assert 0.5 < accuracy < 0.95


def test_probes_by_hand() -> None:
    train, train_labels = _line(0.0, 1.0, 10.0, 11.0), torch.tensor([0, 0, 1, 1])
    test, test_labels = _line(2.0, 4.0, 7.0, 20.0), torch.tensor([0, 0, 1, 0])

    # the boundary is at 5.5 by symmetry: labels 0, 0, 1, 1, of which the last is wrong
    assert linear_probe(train, train_labels, test, test_labels, num_classes=2, ridge=1e-3) == 0.75
    assert linear_probe_sgd(train, train_labels, test, test_labels, num_classes=2) == 0.75


@pytest.mark.parametrize(
    "probe",
    [
        partial(linear_probe, num_classes=3, ridge=1e-2),
        partial(linear_probe_sgd, num_classes=3, steps=100),
        partial(linear_probe_sgd, num_classes=3, steps=3),
    ],
)
def test_probes_standardise_with_the_training_set(probe: Callable[..., float]) -> None:
    embeddings, labels = _blobs(600, 4, 3)
    train, test = embeddings[:400], embeddings[400:]
    scale, shift = torch.tensor([1e-6, 1.0, 1e3, 1e6]), torch.tensor([0.0, 10.0, -1e3, 3e6])

    accuracy = probe(train, labels[:400], test, labels[400:])

    rescaled = probe(train * scale + shift, labels[:400], test * scale + shift, labels[400:])
    assert rescaled == pytest.approx(accuracy, abs=0.006)  # one point of 200, for the rounding of the shift
    # standardised by itself, a test set that lies elsewhere would do as well as before
    assert probe(train, labels[:400], test + 3, labels[400:]) < accuracy - 0.1


def test_probes_of_constant_embeddings_predict_the_commonest_label() -> None:
    train, test = torch.full((5, 3), 0.1), torch.full((4, 3), 0.1)
    train_labels, test_labels = torch.tensor([2, 1, 2, 0, 2]), torch.tensor([2, 2, 2, 0])

    assert linear_probe(train, train_labels, test, test_labels, num_classes=3, ridge=1e-3) == 0.75
    assert linear_probe(train, train_labels, test, test_labels, num_classes=3, ridge=0.0) == 0.75
    assert linear_probe_sgd(train, train_labels, test, test_labels, num_classes=3) == 0.75


def test_linear_probe_of_separable_classes_without_ridge_is_perfect() -> None:
    train, labels = torch.eye(4), torch.tensor([3, 1, 0, 2])

    assert linear_probe(train, labels, train, labels, num_classes=4, ridge=0.0) == 1.0


def test_linear_probe_sgd_comes_close_to_the_converged_one() -> None:
    embeddings, labels = _blobs(1500, 8, 5)
    data = embeddings[:500], labels[:500], embeddings[500:], labels[500:]

    accuracy = linear_probe_sgd(*data, num_classes=5)

    assert accuracy == pytest.approx(linear_probe(*data, num_classes=5, ridge=1e-6), abs=0.005)
    # no step: all logits are zero and label 0 is predicted
    assert linear_probe_sgd(*data, num_classes=5, steps=0) == (labels[500:] == 0).double().mean().item()


def test_linear_probe_sgd_gets_along_with_collinear_features() -> None:
    embeddings, labels = _blobs(1500, 8, 5, collinear=True)

    accuracy = linear_probe_sgd(embeddings[:500], labels[:500], embeddings[500:], labels[500:], num_classes=5)

    # 0.84 when converged; plain gradient steps of the same length get to 0.53, ten times as long to 0.585
    assert accuracy > 0.62


@pytest.mark.parametrize(
    ("num_neighbours", "expected"),
    [
        # test points 0.4, 1.9, 6 of labels 0, 0, 0 among 0, 1 | 2, 10, 11 of labels 0, 0 | 1, 1, 1
        (1, 1 / 3),  # nearest: 0 (0), 2 (1), 2 or 10 (1)
        (2, 2 / 3),  # 0, 1 (0, 0);  2, 1 (1, 0): a tie, the lowest label;  2, 10 (1, 1)
        (3, 2 / 3),  # 0, 1, 2 (0);  2, 1, 0 (0);  2, 10 and 1 or 11 (1)
        (5, 0.0),  # all: three of five have label 1
        (99, 0.0),  # more than there are: all
    ],
)
def test_knn_accuracy_by_hand(num_neighbours: int, expected: float) -> None:
    train, train_labels = _line(0.0, 1.0, 2.0, 10.0, 11.0), torch.tensor([0, 0, 1, 1, 1])
    test, test_labels = _line(0.4, 1.9, 6.0), torch.tensor([0, 0, 0])

    accuracy = knn_accuracy(train, train_labels, test, test_labels, num_neighbours=num_neighbours, num_classes=2)

    assert accuracy == pytest.approx(expected)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_knn_accuracy_agrees_with_scikit_learn_over_several_parts(offset: float) -> None:
    embeddings, labels = _blobs(1000, 6, 4)
    embeddings = embeddings.double() + offset
    train, test = embeddings[:300], embeddings[300:]

    accuracy = knn_accuracy(train, labels[:300], test, labels[300:], num_neighbours=7, num_classes=4)

    reference = KNeighborsClassifier(7).fit(train.numpy(), labels[:300].numpy())
    assert accuracy == pytest.approx(reference.score(test.numpy(), labels[300:].numpy()))
    assert accuracy < 0.95


def test_knn_accuracy_sees_small_differences_far_from_the_origin() -> None:
    # 4097.0 + k/1024 are exact in single precision, their squares are not
    train = _line(4097.0, 4097.0 + 1 / 1024, 4097.0 + 5 / 1024)
    test = _line(4097.0 + 2 / 1024, 4097.0 + 4 / 1024)

    labels = torch.tensor([0, 1, 2])
    assert knn_accuracy(train, labels, test, torch.tensor([1, 2]), num_neighbours=1, num_classes=3) == 1.0


def test_alignment_by_hand() -> None:
    first = torch.tensor([[0.0, 0.0], [1.0, 2.0], [5.0, 5.0]])
    second = torch.tensor([[3.0, 4.0], [1.0, 0.0], [5.0, 5.0]])

    # (25 + 4 + 0) / 3
    assert alignment(first, second) == pytest.approx(29 / 3)


def test_uniformity_by_hand() -> None:
    # squared distances 1, 9, 4: exp(-2) = 0.13533528, exp(-18) = 0.00000002, exp(-8) = 0.00033546;
    # their mean is 0.04522359, its logarithm -3.096137
    assert uniformity(_line(0.0, 1.0, 3.0)) == pytest.approx(-3.096137, abs=1e-5)


def test_uniformity_of_distant_points_does_not_underflow() -> None:
    # -2 * 100^2
    assert uniformity(_line(0.0, 100.0)) == pytest.approx(-20000.0)


@pytest.mark.parametrize("num_points", [1, 2, 300])
def test_uniformity_of_coinciding_points_is_zero(num_points: int) -> None:
    assert uniformity(torch.full((num_points, 3), 0.1)) == pytest.approx(0.0, abs=1e-12)


def test_uniformity_matches_a_loop_over_several_parts() -> None:
    embeddings, _ = _blobs(300, 3, 4)

    kernel = [math.exp(-2 * math.dist(x, y) ** 2) for x, y in combinations(embeddings.tolist(), 2)]

    assert uniformity(embeddings) == pytest.approx(math.log(sum(kernel) / len(kernel)), rel=1e-6)


def test_effective_rank_by_hand() -> None:
    # around the mean (5, -7): singular values 3 sqrt(2) and sqrt(2), shares 3/4 and 1/4;
    # entropy 0.75 * 0.28768207 + 0.25 * 1.38629436 = 0.56233514, its exponential 1.7547654
    embeddings = torch.tensor([[8.0, -7.0], [2.0, -7.0], [5.0, -6.0], [5.0, -8.0]])

    assert effective_rank(embeddings) == pytest.approx(1.7547654)


@pytest.mark.parametrize("num_points", [1, 2, 7])
def test_effective_rank_of_coinciding_points_is_one(num_points: int) -> None:
    assert effective_rank(torch.full((num_points, 3), 0.1, dtype=torch.float64)) == 1.0


def test_effective_number_by_hand() -> None:
    probabilities = torch.tensor(
        [[0.25, 0.25, 0.25, 0.25], [0.5, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0], [0.75, 0.25, 0.0, 0.0]]
    )

    # the last as for the effective rank
    torch.testing.assert_close(effective_number(probabilities), torch.tensor([4.0, 2.0, 1.0, 1.7547654]))


def test_linear_cka_by_hand() -> None:
    first = _line(6.0, 4.0, 5.0, 5.0)
    second = torch.tensor([[1.0, -2.0], [0.0, -2.0], [-1.0, -1.0], [0.0, -3.0]])

    # centred: a = (1, -1, 0, 0); b1 = (1, 0, -1, 0), b2 = (0, 0, 1, -1); a.b1 = 1, a.b2 = 0, |a|^2 = 2,
    # B^T B = [[2, -1], [-1, 2]] of norm sqrt(10): 1 / (2 sqrt(10)) = 0.15811388
    assert linear_cka(first, second) == pytest.approx(0.15811388)
    assert linear_cka(second, first) == pytest.approx(0.15811388)


def test_linear_cka_ignores_rotation_scale_and_offset() -> None:
    embeddings, _ = _blobs(50, 3, 4)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=stream(0, "rotation"))).Q

    assert linear_cka(embeddings, 7 * embeddings @ rotation + 2) == pytest.approx(1.0, abs=1e-5)


def test_linear_cka_of_a_constant_embedding_is_zero() -> None:
    embeddings, _ = _blobs(50, 3, 4)

    assert linear_cka(embeddings, torch.full((50, 2), 0.1, dtype=torch.float64)) == 0.0


def test_mean_pairwise_cka_by_hand() -> None:
    first, second = _line(1.0, -1.0, 0.0, 0.0), _line(1.0, 0.0, -1.0, 0.0)

    # first and second: 1 / (2 * 2); the third is the first, scaled: (1/4 + 1 + 1/4) / 3
    assert mean_pairwise_cka(torch.stack([first, second, 3 * first + 5])) == pytest.approx(0.5)
    assert mean_pairwise_cka(torch.stack([first])) == 1.0


def test_label_distances_by_hand() -> None:
    embeddings = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 6.0], [6.0, 8.0]])
    labels = torch.tensor([0, 1, 0, 0, 1])

    # within 0: 2, 6, 4, mean 4;  within 1: 5;  between, from (3, 4): 5, sqrt(13), sqrt(13), from (6, 8): 10,
    # sqrt(72), sqrt(40): (15 + 7.2111026 + 8.4852814 + 6.3245553) / 6 = 6.1701565;  no point has label 2
    expected = [[4.0, 6.1701565, 0.0], [6.1701565, 5.0, 0.0], [0.0, 0.0, 0.0]]
    distances = label_distances(embeddings, labels, 3)
    torch.testing.assert_close(distances, torch.tensor(expected, dtype=torch.float64))


def test_label_distances_of_a_single_member_are_zero_on_the_diagonal() -> None:
    assert label_distances(_line(1.0, 4.0), torch.tensor([1, 0]), 2).tolist() == [[0.0, 3.0], [3.0, 0.0]]


def test_label_distances_match_a_loop_over_several_parts() -> None:
    embeddings, labels = _blobs(300, 3, 3)
    pairs: dict[tuple[int, int], list[float]] = {}
    points = list(zip(embeddings.tolist(), labels.tolist(), strict=True))
    for (x, first), (y, second) in combinations(points, 2):
        pairs.setdefault((min(first, second), max(first, second)), []).append(math.dist(x, y))

    distances = label_distances(embeddings, labels, 3)

    for (first, second), values in pairs.items():
        assert distances[first, second].item() == pytest.approx(sum(values) / len(values), rel=1e-6)
        assert distances[second, first].item() == pytest.approx(sum(values) / len(values), rel=1e-6)


def test_separation_by_hand() -> None:
    # off the diagonal (4 + 6 + 8) / 3 = 6, on it (2 + 1 + 3) / 3 = 2
    assert separation(torch.tensor([[2.0, 4.0, 6.0], [4.0, 1.0, 8.0], [6.0, 8.0, 3.0]])) == pytest.approx(3.0)


def test_separation_is_zero_where_it_has_no_meaning() -> None:
    assert separation(torch.tensor([[0.0, 4.0], [4.0, 0.0]])) == 0.0
    assert separation(torch.zeros(3, 3)) == 0.0
    assert separation(torch.tensor([[5.0]])) == 0.0


@st.composite
def _degenerate(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Few distinct embeddings at any scale, with arbitrary labels of which some do not occur."""
    num_points, num_distinct, dim = draw(st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(1, 4)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    scale = 10.0 ** draw(st.integers(-30, 30))
    distinct = torch.randn(num_distinct, dim, generator=generator) * scale
    which = torch.randint(num_distinct, (num_points,), generator=generator)
    return distinct[which], torch.randint(4, (num_points,), generator=generator)


@settings(deadline=None)
@given(_degenerate())
def test_degenerate_embeddings_give_no_nan(data: tuple[Tensor, Tensor]) -> None:
    embeddings, labels = data
    set_and_labels = (embeddings, labels, embeddings, labels)

    assert 0 <= linear_probe(*set_and_labels, num_classes=4, ridge=1e-4, max_iterations=20) <= 1
    assert 0 <= linear_probe_sgd(*set_and_labels, num_classes=4, steps=5) <= 1
    points, _ = _pair(embeddings, labels)
    chosen = torch.tensor([[0, len(labels) - 1], [0, 0]])
    assert quick_hits(points, labels, points, labels, num_classes=4, ridge=1e-4).shape == labels.shape
    assert few_label_hits(points, labels, points, labels, chosen, num_classes=4, ridge=0.02).shape == (2, len(labels))
    assert 0 <= knn_accuracy(*set_and_labels, num_neighbours=3, num_classes=4) <= 1
    assert 1 <= effective_rank(embeddings) <= embeddings.shape[1] + 1e-9
    assert -math.inf < uniformity(embeddings) <= 1e-12
    assert 0 <= linear_cka(embeddings, embeddings.flip(0)) <= 1 + 1e-9
    assert 0 <= mean_pairwise_cka(torch.stack([embeddings, embeddings.flip(0)])) <= 1 + 1e-9
    assert 0 <= separation(label_distances(embeddings, labels, 4)) < math.inf
    assert alignment(embeddings, embeddings.flip(0)) < math.inf


def test_equal_points_are_at_no_distance_however_many() -> None:
    # by matrix products, which torch prefers for more than 25 rows, the difference of large squares would remain
    same = torch.tensor([[1234.5, -678.9, 3.14]]).expand(60, -1)
    assert uniformity(same) == pytest.approx(0.0, abs=1e-12)
    points = 1000 * torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    distances = label_distances(points.repeat(2, 1), torch.arange(40).repeat(2), 40)
    assert distances.diagonal().tolist() == [0.0] * 40


def test_probes_have_the_lengths_that_the_config_tells() -> None:
    points, labels = torch.tensor([[-1.0], [-2.0], [1.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    assert linear_probe(points, labels, points, labels, num_classes=2, ridge=1e-4) == 1.0
    assert linear_probe_sgd(points, labels, points, labels, num_classes=2) == 1.0
    defaults = {probe: signature(probe).parameters for probe in (linear_probe, linear_probe_sgd)}
    assert defaults[linear_probe]["max_iterations"].default == 200
    assert defaults[linear_probe_sgd]["steps"].default == 1000
    assert defaults[linear_probe_sgd]["learning_rate"].default == 0.1
