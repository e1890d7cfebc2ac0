"""Which vectors lie nearest to which: exact, in bounded memory, and the same on every machine up to rounding."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfcl.errors import CfclError
from cfcl.use.embedding import Space, Values

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

QUERIES, GALLERY = 64, 8192
"""Vectors of a block on either side; their product takes 2 MB."""
BOUND = 1e9
"""Of numbers whose squares do not overflow; encoders that are any good stay far below."""
LARGEST = float(np.finfo(np.float32).max)


class Found(NamedTuple):
    """The nearest vectors to each of several, one row each, nearest first."""

    positions: Positions
    distances: Floats


def comparable(values: Values, space: Space) -> Values:
    """Vectors whose Euclidean distances mean something: features scaled to length one, embeddings as they are.

    Training measures distances between embeddings as they come, on the unit sphere unless a run says otherwise. Nothing
    bounds the length of features, which follows an image's contrast more than what it shows.
    """
    if not bool((np.abs(values) <= BOUND).all()):  # nor where it is no number
        raise CfclError(
            f"some {space} values are not within ±{BOUND:,.0f}: train the encoder again, or use another one"
        )
    if space == "embedding":
        return values
    lengths = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
    scaled: Values = (values / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return scaled


def nearest(queries: Values, gallery: Values, number: int, *, itself: bool = True, block: int = GALLERY) -> Found:
    """The `number` vectors of `gallery` nearest to each query, or all if there are fewer; ties by their position.

    Unless `itself`, query i is vector i of the gallery and does not count as its own neighbour.
    """
    number = min(number, len(gallery) - (not itself))
    if number == 0:
        return Found(np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0)))
    parts = [
        _of_some(queries[start : start + QUERIES], gallery, number, None if itself else start, block)
        for start in range(0, len(queries), QUERIES)
    ]
    return Found(np.concatenate([part.positions for part in parts]), np.concatenate([part.distances for part in parts]))


def _of_some(queries: Values, gallery: Values, number: int, first: int | None, block: int) -> Found:
    """For a block of queries; `first` is where it begins, if queries are vectors of the gallery."""
    best = [_Best(np.empty(0, np.int64), np.empty(0))] * len(queries)
    for start in range(0, len(gallery), block):
        part = gallery[start : start + block]
        squared, slack = _squared(queries, part)
        if first is not None:
            rows = np.arange(max(first, start), min(first + len(queries), start + len(part)))
            squared[rows - first, rows - start] = np.inf
        limits = np.array([item.squared[-1] if len(item.squared) == number else np.inf for item in best])
        if len(part) > number and np.isinf(limits).any():
            limits = np.minimum(limits, np.partition(squared, number - 1)[:, number - 1] + slack)
        for row, near in enumerate(squared <= np.minimum(limits + slack, LARGEST)[:, None]):
            if (chosen := np.flatnonzero(near)).size:
                best[row] = _better(best[row], chosen, queries[row], part, start, number)
    return Found(np.array([item.positions for item in best]), np.sqrt([item.squared for item in best]))


class _Best(NamedTuple):
    """The best so far for one query."""

    positions: Positions
    squared: Floats
    """Distances, exactly."""


def _squared(queries: Values, gallery: Values) -> tuple[Values, Floats]:
    """Squared distances by one product of matrices, and by how much they may be wrong for each query."""
    lengths = (gallery * gallery).sum(axis=1)
    own = (queries * queries).sum(axis=1)
    squared: Values = (-2 * queries) @ gallery.T
    squared += lengths
    squared += own[:, None]
    # A sum of n products is wrong by at most n roundings of what it adds up, in whatever order.
    slack = (queries.shape[1] + 4) * float(np.finfo(np.float32).eps) * (own.astype(np.float64) + lengths.max())
    return squared, 2 * slack


def _better(best: _Best, chosen: Positions, query: Values, part: Values, start: int, number: int) -> _Best:
    """The best so far, or out of the `chosen` of one more block, which are measured again without a product.

    A product rounds equal distances differently, so that ties would fall as the machine likes, and images equal to the
    query would not be at distance zero.
    """
    exact = ((part[chosen].astype(np.float64) - query) ** 2).sum(axis=1)
    positions = np.concatenate([best.positions, chosen + start])
    squared = np.concatenate([best.squared, exact])
    order = np.argsort(squared, kind="stable")[:number]  # ties stay in order of their positions
    return _Best(positions[order], squared[order])
