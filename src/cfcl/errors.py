"""The exceptions a user sees, and how the end of a process is told."""

import signal

LONGEST = 800
"""Characters of a complaint; a longer one loses its middle, so that value and remedy stay."""


class CfclError(Exception):
    """Something the user can fix: one line that names the value, the rule and the remedy."""

    exit_code = 2

    def __str__(self) -> str:
        """One line that a terminal can show, whatever values, names and paths are in it."""
        text = super().__str__()
        if not text.isprintable():
            text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
        half = LONGEST // 2
        return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


class WorkerLost(CfclError):  # noqa: N818
    """A process of a running simulation ended before its time; what had been measured stays on disk."""

    exit_code = 1


class Failed(CfclError):  # noqa: N818
    """A run that had begun cannot go on; what had been measured stays on disk."""

    exit_code = 3


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop by a signal, and has done so between two steps."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


def fate(code: int) -> str:
    """How a process ended that left this exit code, as Python has it: below zero, the number of a signal."""
    if code >= 0:
        return f"ended with code {code}"
    names = {item.value: f" ({item.name})" for item in signal.Signals}
    return f"was ended by signal {-code}{names.get(-code, '')}"
