"""The exact search of `cfcl neighbours` against indices: `pip install hnswlib faiss-cpu` first, or one of them.

python benchmarks/search.py

One call of the command asks one set of queries, so an index pays for being built. Vectors are random, in 100 clusters
on the unit sphere. Medians, taken in turns; the ratio is that of the index to the exact search, above one it is slower.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from timing import alternate

from cfcl.use import search

Vectors = NDArray[np.float32]
SIZE, NUMBER, ROUNDS = 100_000, 10, 3


def made(size: int, dim: int, seed: int) -> Vectors:
    centres = np.random.default_rng(0).normal(size=(100, dim))
    draws = np.random.default_rng(seed)
    found = centres[draws.integers(0, 100, size)] + 0.5 * draws.normal(size=(size, dim))
    unit: Vectors = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return unit


def with_hnswlib(queries: Vectors, gallery: Vectors) -> NDArray[np.int64]:
    index = import_module("hnswlib").Index(space="l2", dim=gallery.shape[1])
    index.init_index(max_elements=len(gallery), M=16, ef_construction=100, random_seed=0)
    index.add_items(gallery)
    index.set_ef(100)
    found: NDArray[np.int64] = index.knn_query(queries, k=NUMBER)[0]
    return found


def with_faiss(queries: Vectors, gallery: Vectors, kind: str) -> NDArray[np.int64]:
    faiss = import_module("faiss")
    index = faiss.index_factory(gallery.shape[1], kind)
    index.train(gallery)
    index.add(gallery)
    if kind.startswith("IVF"):
        index.nprobe = 16
    found: NDArray[np.int64] = index.search(queries, NUMBER)[1]
    return found


def indices() -> dict[str, Callable[[Vectors, Vectors], NDArray[np.int64]]]:
    found: dict[str, Callable[[Vectors, Vectors], NDArray[np.int64]]] = {}
    if find_spec("faiss"):
        kinds = {"faiss, exact": "Flat", "faiss, inverted lists": "IVF256,Flat"}
        found |= {name: partial(with_faiss, kind=kind) for name, kind in kinds.items()}
    if find_spec("hnswlib"):
        found["hnswlib"] = with_hnswlib
    return found


def main() -> None:
    others = indices()
    for name in ("faiss", "hnswlib"):
        if not find_spec(name):
            print(f"{name} is not installed and left out")
    print(f"{SIZE:,} vectors, {NUMBER} neighbours, index built and asked once, medians of {ROUNDS} taken in turns")
    for dim in (32, 512):
        gallery = made(SIZE, dim, seed=1)
        for size in (1, 50):
            queries = made(size, dim, seed=2)
            exact = search.nearest(queries, gallery, NUMBER).positions
            for name, other in others.items():
                ours, theirs = alternate(
                    partial(search.nearest, queries, gallery, NUMBER), partial(other, queries, gallery), ROUNDS
                )
                hits = np.mean(
                    [len(set(a) & set(b)) / NUMBER for a, b in zip(exact, other(queries, gallery), strict=True)]
                )
                print(
                    f"{dim} numbers, {size} queries, {name}: exact {ours:.2f} s, index {theirs:.2f} s, ratio "
                    f"{theirs / ours:.1f}, {100 * hits:.0f} % of the neighbours found"
                )


if __name__ == "__main__":
    main()
