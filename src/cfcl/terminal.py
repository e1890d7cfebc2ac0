"""What all commands share: where they print, and how they complain."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from cfcl.errors import CfclError
from cfcl.shown import Terminal

console = Terminal()
complaints = Terminal(stderr=True, soft_wrap=True)


def note(text: str) -> None:
    """Print a line on stderr that stops nothing."""
    complaints.print(f"note: {text}")


@contextmanager
def user_errors(interrupted: str = "interrupted") -> Iterator[None]:
    """Turn what a user can fix into one line on stderr and its exit code."""
    try:
        yield
    except CfclError as error:
        complaints.print(f"error: {error}")
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        complaints.print(interrupted)
        raise typer.Exit(130) from None
