"""What a set of embeddings is worth: probes with labels, and health without them.

Everything is computed in double precision unless said otherwise, and no degenerate input gives NaN.
"""

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_ROWS_AT_ONCE = 256
"""Rows of a distance matrix held at a time: 60,000 columns of them take 120 MB."""


def warm_up() -> None:
    """Have torch load what the first optimiser of a process needs, which takes a second, before a clock runs."""
    torch.optim.LBFGS([torch.zeros(1, requires_grad=True)])


def linear_probe(
    train: Float[Tensor, "train dim"],
    train_labels: Int[Tensor, " train"],
    test: Float[Tensor, "test dim"],
    test_labels: Int[Tensor, " test"],
    *,
    num_classes: int,
    ridge: float,
    max_iterations: int = 200,
) -> float:
    """Test accuracy of a converged softmax regression on standardised embeddings."""
    return _share(
        probe_hits(
            train, train_labels, test, test_labels, num_classes=num_classes, ridge=ridge, max_iterations=max_iterations
        )
    )


def probe_hits(
    train: Float[Tensor, "train dim"],
    train_labels: Int[Tensor, " train"],
    test: Float[Tensor, "test dim"],
    test_labels: Int[Tensor, " test"],
    *,
    num_classes: int,
    ridge: float,
    max_iterations: int = 200,
) -> Bool[Tensor, " test"]:
    """Which test points this probe gets right."""
    train, test = _standardised(train, test)
    weights = softmax_regression(
        train, train_labels, num_classes=num_classes, ridge=ridge, max_iterations=max_iterations
    )
    return _hits(test, test_labels, weights)


def quick_hits(
    train: Float[Tensor, "train dim"],
    train_labels: Int[Tensor, " train"],
    test: Float[Tensor, "test dim"],
    test_labels: Int[Tensor, " test"],
    *,
    num_classes: int,
    ridge: float,
) -> Bool[Tensor, " test"]:
    """Which test points the same probe gets right, up to one or two; faster in hundreds of dimensions.

    Embeddings are standardised already. Single precision, at most 100 iterations.
    """
    weights = softmax_regression(
        train,
        train_labels,
        num_classes=num_classes,
        ridge=ridge,
        max_iterations=100,
        tolerance=3e-5,
        precision=torch.float32,
    )
    return _hits(test.float(), test_labels, weights)


def few_label_hits(
    train: Float[Tensor, "train dim"],
    train_labels: Int[Tensor, " train"],
    test: Float[Tensor, "test dim"],
    test_labels: Int[Tensor, " test"],
    chosen: Int[Tensor, "draws few"],
    *,
    num_classes: int,
    ridge: float,
) -> Bool[Tensor, "draws test"]:
    """Which test points a converged probe on the `chosen` training points alone gets right, draw by draw.

    Embeddings are standardised already, by all training points: only labels are few. Single precision, all draws at
    once.
    """
    weights = few_label_weights(train[chosen].float(), train_labels[chosen], num_classes=num_classes, ridge=ridge)
    return _hits(test.float(), test_labels, weights)


def few_label_weights(
    few: Float[Tensor, "*sets few dim"], labels: Int[Tensor, "*sets few"], *, num_classes: int, ridge: float
) -> Float[Tensor, "*sets classes dim+1"]:
    """What `softmax_regression` finds, in single precision; fast where there are fewer points than dimensions."""
    # The best weights lie in the span of the points: seen in a basis of it they are fewer, and no others.
    basis = torch.linalg.qr(few.mT).Q if few.shape[-2] < few.shape[-1] else None
    weights = softmax_regression(
        few if basis is None else few @ basis,
        labels,
        num_classes=num_classes,
        ridge=ridge,
        max_iterations=100,
        tolerance=3e-4,
        precision=torch.float32,
    )
    return weights if basis is None else torch.cat([weights[..., :-1] @ basis.mT, weights[..., -1:]], dim=-1)


def linear_probe_sgd(
    train: Float[Tensor, "train dim"],
    train_labels: Int[Tensor, " train"],
    test: Float[Tensor, "test dim"],
    test_labels: Int[Tensor, " test"],
    *,
    num_classes: int,
    steps: int = 1000,
    learning_rate: float = 0.1,
) -> float:
    """Test accuracy of a linear layer on standardised embeddings after `steps` full-batch updates from zero.

    The updates are Adam's: embeddings are far from orthogonal, so a plain step short enough for their strongest
    direction hardly moves along the others. Single precision, no ridge, no random numbers.
    """
    train, test = _standardised(train, test)
    design = _with_bias(train).float()
    weights = design.new_zeros(num_classes, len(design)).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=learning_rate)
    for _ in range(steps):
        weights.grad = _cross_entropy(weights.detach(), design, train_labels)[1]
        optimizer.step()
    return _share(_hits(test, test_labels, weights.detach().double()))


def softmax_regression(
    features: Float[Tensor, "*sets points dim"],
    labels: Int[Tensor, "*sets points"],
    *,
    num_classes: int,
    ridge: float,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
    precision: torch.dtype = torch.float64,
) -> Float[Tensor, "*sets classes dim+1"]:
    """The weights, bias last, that minimise mean cross-entropy + `ridge / 2 |W|^2`; the bias is free.

    L-BFGS from zero, in coordinates in which the Hessian's upper bound `X X^T / 2 + ridge` is the identity:
    embeddings are so nearly collinear that it would not converge in their own. Several sets of points have weights of
    their own, found together.
    """
    exact = _with_bias(features.double())
    penalty = exact.new_full((exact.shape[-2],), ridge)
    penalty[-1] = 0.0
    to_weights = _whitening(exact @ exact.mT / (2 * exact.shape[-1]) + penalty.diag()).to(precision)
    design, penalty = exact.to(precision), penalty.to(precision)
    whitened = design.new_zeros(*design.shape[:-2], num_classes, design.shape[-2]).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [whitened],
        max_iter=max_iterations,
        max_eval=25 * max_iterations,  # the line search alone decides how many it needs
        tolerance_grad=tolerance,
        tolerance_change=0.0,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def evaluate() -> float:
        weights = whitened.detach() @ to_weights
        loss, gradient = _cross_entropy(weights, design, labels)
        whitened.grad = (gradient + penalty * weights) @ to_weights.mT
        return (loss + 0.5 * (penalty * weights.square()).sum()).item()

    optimizer.step(evaluate)  # type: ignore[no-untyped-call]
    return whitened.detach() @ to_weights


def knn_accuracy(
    train: Float[Tensor, "train dim"],
    train_labels: Int[Tensor, " train"],
    test: Float[Tensor, "test dim"],
    test_labels: Int[Tensor, " test"],
    *,
    num_neighbours: int,
    num_classes: int,
) -> float:
    """Test accuracy of the majority among the nearest training points; a tied vote goes to the lowest label.

    At most all training points vote. Distances are in the precision of the embeddings, less the training mean.
    """
    mean = _mean(train)
    train, test = (train.double() - mean).to(train.dtype), (test.double() - mean).to(test.dtype)
    norms = train.square().sum(dim=1)
    num_correct = 0
    for start in range(0, len(test), _ROWS_AT_ONCE):
        rows, labels = test[start : start + _ROWS_AT_ONCE], test_labels[start : start + _ROWS_AT_ONCE]
        # |test|^2 is the same in a row
        distances = torch.addmm(norms, rows, train.T, alpha=-2)
        nearest = distances.topk(min(num_neighbours, len(train)), largest=False).indices
        votes = labels.new_zeros(len(rows), num_classes)
        votes.scatter_add_(1, train_labels[nearest], torch.ones_like(nearest))
        num_correct += int((votes.argmax(dim=1) == labels).sum())
    return num_correct / len(test)


def alignment(first: Float[Tensor, "pairs dim"], second: Float[Tensor, "pairs dim"]) -> float:
    """Mean squared distance of positive pairs."""
    return (first.double() - second.double()).square().sum(dim=1).mean().item()


def uniformity(embeddings: Float[Tensor, "points dim"]) -> float:
    """`log mean exp(-2 |x - y|^2)` over distinct pairs: 0 if all coincide, or if there is one point only."""
    num_points = len(embeddings)
    if num_points == 1:
        return 0.0
    parts = []
    for start, distances in _distance_rows(embeddings):
        exponents = -2 * distances.square()
        exponents.diagonal(offset=start).fill_(-torch.inf)  # no pair of a point with itself
        parts.append(exponents.flatten().logsumexp(dim=0))
    return torch.stack(parts).logsumexp(dim=0).item() - math.log(num_points * (num_points - 1))


def effective_rank(embeddings: Float[Tensor, "points dim"]) -> float:
    """Effective number of the normalised singular values of the centred embeddings; 1 if all coincide."""
    values = torch.linalg.svdvals(_centre(embeddings))
    total = values.sum()
    return effective_number(values / total).item() if total > 0 else 1.0


def effective_number(probabilities: Float[Tensor, "*batch outcomes"]) -> Float[Tensor, "*batch"]:
    """Exponential of the entropy: how many equally likely outcomes would be as uncertain."""
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy.exp()


def linear_cka(first: Float[Tensor, "points dim1"], second: Float[Tensor, "points dim2"]) -> float:
    """Linear centred kernel alignment of two embeddings of the same points; 0 if either is constant."""
    first, second = _centre(first), _centre(second)
    return _cka(_overlap(first, second), _overlap(first, first), _overlap(second, second))


def mean_pairwise_cka(embeddings: Float[Tensor, "devices points dim"]) -> float:
    """Mean linear CKA over all pairs of devices that embedded the same points; 1 for a single device."""
    centred = [_centre(own) for own in embeddings]
    norms = [_overlap(own, own) for own in centred]
    values = [
        _cka(_overlap(centred[i], centred[j]), norms[i], norms[j]) for i, j in combinations(range(len(centred)), 2)
    ]
    return sum(values) / len(values) if values else 1.0


def label_distances(
    embeddings: Float[Tensor, "points dim"], labels: Int[Tensor, " points"], num_classes: int
) -> Float[Tensor, "classes classes"]:
    """Mean Euclidean distance between the embeddings of two labels; within one label, over distinct pairs.

    0 where there is no pair: a label that is absent, or on the diagonal a label with a single point.
    """
    is_label = torch.nn.functional.one_hot(labels, num_classes).double()
    sums = is_label.new_zeros(num_classes, num_classes)
    for start, distances in _distance_rows(embeddings):
        sums += is_label[start : start + len(distances)].T @ (distances @ is_label)
    counts = is_label.sum(dim=0)
    num_pairs = torch.outer(counts, counts) - counts.diag()
    return sums / num_pairs.clamp_min(1)


def separation(distances: Float[Tensor, "classes classes"]) -> float:
    """Mean of `label_distances` off its diagonal over the mean on it: the larger, the better labels stand apart.

    0 where the diagonal is zero, so that collapsed embeddings never look like good ones, and for a single label.
    """
    num_classes = len(distances)
    within = distances.diagonal().mean().item()
    if within == 0.0 or num_classes == 1:
        return 0.0
    between = (distances.sum() - distances.diagonal().sum()).item() / (num_classes * (num_classes - 1))
    return between / within


def _mean(points: Float[Tensor, "points dim"]) -> Float[Tensor, " dim"]:
    """The mean, taken around the first point: a constant feature has exactly its constant as mean."""
    first = points[0].double()
    return first + (points.double() - first).mean(dim=0)


def _centre(points: Float[Tensor, "points dim"]) -> Float[Tensor, "points dim"]:
    """The points less their mean."""
    return points.double() - _mean(points)


def moments(points: Float[Tensor, "points dim"]) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    """Mean and deviation of every feature; 1 in place of no deviation."""
    deviation = _centre(points).square().mean(dim=0).sqrt()
    return _mean(points), torch.where(deviation > 0, deviation, 1.0)


def standardise(
    points: Float[Tensor, "points dim"], mean: Float[Tensor, " dim"], deviation: Float[Tensor, " dim"]
) -> Float[Tensor, "points dim"]:
    """The points less `mean`, divided by `deviation`."""
    return (points.double() - mean) / deviation


def _standardised(
    train: Float[Tensor, "train dim"], test: Float[Tensor, "test dim"]
) -> tuple[Float[Tensor, "train dim"], Float[Tensor, "test dim"]]:
    """Both sets, by the moments of the training set."""
    found = moments(train)
    return standardise(train, *found), standardise(test, *found)


def _with_bias(features: Float[Tensor, "*sets points dim"]) -> Float[Tensor, "*sets dim+1 points"]:
    """Features by points, with a last row of ones: sums over a few classes are fastest down the columns."""
    return torch.cat([features.mT, torch.ones_like(features[..., :1]).mT], dim=-2)


def _whitening(matrix: Float[Tensor, "*sets size size"]) -> Float[Tensor, "*sets size size"]:
    """`B` with `B matrix B^T = 1`, for a positive matrix that may be singular up to rounding."""
    largest = matrix.diagonal(dim1=-2, dim2=-1).amax(dim=-1)[..., None, None]
    jitter = 1e-9 * largest * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse: Tensor = torch.linalg.inv(torch.linalg.cholesky(matrix + jitter))
    return inverse


def _cross_entropy(
    weights: Float[Tensor, "*sets classes features"],
    design: Float[Tensor, "*sets features points"],
    labels: Int[Tensor, "*sets points"],
) -> tuple[Float[Tensor, ""], Float[Tensor, "*sets classes features"]]:
    """Mean softmax cross-entropy (summed over sets) and its gradient, by hand: twice as fast as replayed."""
    own = labels.unsqueeze(-2)
    log_probabilities = (weights @ design).log_softmax(dim=-2)
    loss = -log_probabilities.gather(-2, own).mean() * (labels.numel() // labels.shape[-1])
    residual = log_probabilities.exp_()
    residual.scatter_add_(-2, own, -torch.ones_like(residual[..., :1, :]))
    return loss, residual @ design.mT / design.shape[-1]


def _hits(
    features: Float[Tensor, "points dim"],
    labels: Int[Tensor, " points"],
    weights: Float[Tensor, "*sets classes dim+1"],
) -> Bool[Tensor, "*sets points"]:
    """Whether the label of a point has the largest logit."""
    found: Tensor = (weights @ _with_bias(features)).argmax(dim=-2) == labels
    return found


def _share(hits: Bool[Tensor, " points"]) -> float:
    return hits.double().mean().item()


def _distance_rows(embeddings: Float[Tensor, "points dim"]) -> Iterator[tuple[int, Float[Tensor, "rows points"]]]:
    """The matrix of Euclidean distances a few rows at a time, each part with the index of its first row."""
    embeddings = embeddings.double()
    for start in range(0, len(embeddings), _ROWS_AT_ONCE):
        rows = embeddings[start : start + _ROWS_AT_ONCE]
        # from differences, not from a matrix product: equal points are at distance zero
        yield start, torch.cdist(rows, embeddings, compute_mode="donot_use_mm_for_euclid_dist")


def _overlap(first: Float[Tensor, "points dim1"], second: Float[Tensor, "points dim2"]) -> float:
    """`|A^T B|` in the Frobenius norm, squared."""
    return (first.T @ second).square().sum().item()


def _cka(overlap: float, first_norm: float, second_norm: float) -> float:
    scale = math.sqrt(first_norm) * math.sqrt(second_norm)
    return overlap / scale if scale > 0 else 0.0
