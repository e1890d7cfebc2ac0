"""What many vectors are like: a plane that keeps neighbours together, which are alike, and which stand alone."""

from typing import NamedTuple

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from cfcl.use.embedding import Values
from cfcl.use.search import Floats, Found

NEIGHBOURS = 10
"""Nearest neighbours that say how alone an image is."""
USUAL = 5
"""The neighbour whose distance is the usual one: images come with up to four copies before it is one of these."""
SHARE = 0.15
"""Of the usual distance, below which two images are near-duplicates."""
ROUNDING = 1e-6
"""Distance at which two vectors are equal but for rounding."""
PERPLEXITY, FEWEST, DIMENSIONS = 30.0, 5, 50
"""Of t-SNE: about how many neighbours count, how many points it needs, and of how many numbers at most."""


class Pair(NamedTuple):
    """Two images that are almost the same."""

    first: int
    second: int
    distance: float


class Outlier(NamedTuple):
    """An image with no others near it."""

    position: int
    distance: float
    """Mean over its nearest neighbours."""


def limit(found: Found) -> float:
    """The distance up to which two images are near-duplicates: a share of the usual one.

    The usual distance is the median, over all images, of that to their fifth neighbour.
    """
    usual = float(np.median(found.distances[:, min(USUAL, found.distances.shape[1]) - 1]))
    return max(SHARE * usual, ROUNDING)


def near_duplicates(found: Found) -> list[Pair]:
    """Pairs of neighbours within the limit, nearest first."""
    if found.distances.shape[1] == 0:
        return []
    rows, columns = np.nonzero(found.distances <= limit(found))
    pairs = {
        (min(row, other), max(row, other)): float(found.distances[row, column])
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        for other in [int(found.positions[row, column])]
    }
    return sorted((Pair(*pair, away) for pair, away in pairs.items()), key=lambda pair: (pair.distance, *pair[:2]))


def outliers(found: Found, most: int) -> list[Outlier]:
    """The images with the largest mean distance to their neighbours, at most a tenth of all; farthest first."""
    if found.distances.shape[1] == 0:
        return []
    means = found.distances.mean(axis=1)
    order = np.lexsort((np.arange(len(means)), -means))[: min(most, -(-len(means) // 10))]
    return [Outlier(position, float(means[position])) for position in order.tolist()]


def spread(values: Values, number: int, first: list[int]) -> list[int]:
    """So many positions in order: those in `first`, then always the one that is farthest from all that are chosen."""
    if number >= len(values):
        return list(range(len(values)))
    chosen = list(dict.fromkeys(first))[:number] or [0]
    points = principal(values, DIMENSIONS)
    away = np.full(len(points), np.inf)
    for position in chosen:
        away = np.minimum(away, _squared(points, position))
    while len(chosen) < number:
        away[chosen[-1]] = -1.0  # not a second time, even where all the others are equal to it
        chosen.append(int(away.argmax()))
        away = np.minimum(away, _squared(points, chosen[-1]))
    return sorted(chosen)


def plane(values: Values) -> Floats:
    """A point in the unit square for each vector, so that near neighbours stay near: t-SNE, or components of few."""
    # One thread: the number of threads is then no part of the result, nor do they wait for each other on busy cores.
    with threadpool_limits(1):
        start = principal(values, 2)
        if len(values) < FEWEST or not np.ptp(start[:, 0]) > ROUNDING:
            return _unit_square(start)
        perplexity = min(PERPLEXITY, (len(values) - 1) / 3)
        place = TSNE(
            2, perplexity=perplexity, init=(start / start[:, 0].std() * 1e-4).astype(np.float32), random_state=0
        )
        return _unit_square(place.fit_transform(principal(values, DIMENSIONS).astype(np.float32)))


def principal(values: Values, number: int) -> Floats:
    """The first principal components; zeros where there are fewer. Signs are such that each reaches farther up."""
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    found: Floats = centred @ directions[:, ::-1][:, :number]
    found *= np.where(found.max(axis=0) >= -found.min(axis=0), 1.0, -1.0)
    return found if found.shape[1] >= min(number, 2) else np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def _squared(points: Floats, position: int) -> Floats:
    squared: Floats = ((points - points[position]) ** 2).sum(axis=1)
    return squared


def _unit_square(points: Floats) -> Floats:
    """The points, moved and scaled as one into the middle of it; if all are one, side by side."""
    points = points.astype(np.float64)
    size = np.ptp(points, axis=0).max()
    if not size > ROUNDING:
        return np.stack([(np.arange(len(points)) + 0.5) / len(points), np.full(len(points), 0.5)], axis=1)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    scaled: Floats = (points - middle) / size + 0.5
    return scaled
