"""Many images through an encoder: piece by piece, in all threads, in order."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cfcl.data import pictures
from cfcl.errors import CfclError
from cfcl.use.sources import Piece, Skipped, Source
from cfcl.use.trained import TrainedEncoder

Space = Literal["embedding", "features"]
Values = NDArray[np.float32]
Watch = Callable[[int], None]


class Part(NamedTuple):
    """What became of a few images."""

    names: list[str]
    values: Values
    """One row for each name."""
    skipped: list[Skipped]


class Vectors(NamedTuple):
    """What became of all images."""

    names: list[str]
    values: Values
    positions: list[int]
    """Where each of them stands in its source."""
    skipped: list[Skipped]


def stream(source: Source, encoder: TrainedEncoder, *, space: Space = "embedding", workers: int = 1) -> Iterator[Part]:
    """The images of `source` in order, embedded by so many threads, whose number changes no bit; memory is bounded."""
    module = encoder.module

    def work(read: Callable[[], Piece]) -> Part:
        piece = read()
        with torch.inference_mode():
            images = torch.from_numpy(piece.images)
            found = module(images) if space == "embedding" else module.features(images)
        return Part(piece.names, found.cpu().numpy(), piece.skipped)

    with _single_threaded(), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        ahead: deque[Future[Part]] = deque()
        try:
            for read in source.pieces(encoder.image_shape):
                ahead.append(pool.submit(work, read))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def collect(
    source: Source,
    encoder: TrainedEncoder,
    *,
    space: Space = "embedding",
    workers: int = 1,
    watch: Watch = lambda done: None,
) -> Vectors:
    """All of them at once; `watch` hears how many are done."""
    names: list[str] = []
    values: list[Values] = []
    skipped: list[Skipped] = []
    with pictures.quietly():
        for part in stream(source, encoder, space=space, workers=workers):
            names += part.names
            values.append(part.values)
            skipped += part.skipped
            watch(len(names) + len(skipped))
    if not names:
        raise unreadable(skipped)
    lost = {item.name for item in skipped}
    positions = [place for place, name in enumerate(source.names) if name not in lost]
    return Vectors(names, np.concatenate(values), positions, skipped)


def unreadable(skipped: list[Skipped]) -> CfclError:
    """The complaint where not one image could be read."""
    return CfclError(f"none of the {len(skipped):,} images can be read, the first because {skipped[0].why}")


@contextmanager
def _single_threaded() -> Iterator[None]:
    """While pieces are embedded: last bits depend on how torch shares out the work on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
