"""What all commands share: where they print, and how they complain."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from cfcl.errors import CfclError, Interrupted
from cfcl.shown import Terminal

console = Terminal()
complaints = Terminal(stderr=True, soft_wrap=True)


def note(text: str) -> None:
    """Print a line on stderr that stops nothing."""
    complaints.print(f"note: {text}")


@contextmanager
def user_errors(interrupted: str = "interrupted") -> Iterator[None]:
    """Turn what a user can fix into one line on stderr and its exit code; SIGTERM is an interruption too."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except CfclError as error:
        complaints.print("; ".join([f"error: {error}", *getattr(error, "__notes__", ())]))
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt as error:
        complaints.print("; ".join([interrupted, *getattr(error, "__notes__", ())]))
        raise typer.Exit(128 + getattr(error, "number", signal.SIGINT)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
