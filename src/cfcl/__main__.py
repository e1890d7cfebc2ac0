"""The `cfcl` command, also as `python -m cfcl`."""

import signal
import sys
from types import FrameType

MOMENT = 0.05
"""Seconds after which an interruption that came at a bad time is tried again."""


def main() -> None:
    """Entry point; an interruption is one line, also while libraries load."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started us wants none
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)
    try:
        from cfcl import cli
        from cfcl.sim import allocator

        allocator.keep_memory()
        cli.main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Python's own answer to an interruption, but later if an import is under way.

    There the exception could come out as another one, end the process in a library that is half loaded, or get lost.
    """
    place = frame
    while place is not None:
        if place.f_code.co_filename == "<frozen importlib._bootstrap>":
            signal.setitimer(signal.ITIMER_REAL, MOMENT)
            return
        place = place.f_back
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    main()
