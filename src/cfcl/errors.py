"""The exceptions a user sees, and how the end of a process is told."""

import signal


class CfclError(Exception):
    """Something the user can fix: one line that names the value, the rule and the remedy."""

    exit_code = 2


class WorkerLost(CfclError):  # noqa: N818
    """A process of a running simulation ended before its time; what had been measured stays on disk."""

    exit_code = 1


def fate(code: int) -> str:
    """How a process ended that left this exit code, as Python has it: below zero, the number of a signal."""
    if code >= 0:
        return f"ended with code {code}"
    names = {item.value: f" ({item.name})" for item in signal.Signals}
    return f"was ended by signal {-code}{names.get(-code, '')}"
