"""Signals that ask a run to stop: it does so after the step at hand, when all of it can be saved."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def caught() -> Iterator[Callable[[], int]]:
    """What gives the number of the signal that has come, or 0; the same signal again acts as it always does.

    Signals reach the main thread alone, so in others nothing is caught.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    came = [0]

    def note(number: int, frame: FrameType | None) -> None:
        came[0] = number
        signal.signal(number, before[number])

    found = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}
    before = {int(number): handler for number, handler in found.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: came[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
