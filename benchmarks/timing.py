"""Two things side by side on one thread, taken in turns so that noise hits both alike."""

import statistics
import time
from collections.abc import Callable


def alternate(first: Callable[[], object], second: Callable[[], object], rounds: int = 15) -> tuple[float, float]:
    """Median seconds of both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, taken in zip((first, second), times, strict=True):
            begun = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begun)
    return statistics.median(times[0]), statistics.median(times[1])


def repeat(function: Callable[[], object], times: int) -> Callable[[], None]:
    """`function` many times, for what is too quick to time once."""

    def many() -> None:
        for _ in range(times):
            function()

    return many
