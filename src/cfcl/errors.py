"""The exceptions a user sees."""


class CfclError(Exception):
    """Something the user can fix: one line that names the value, the rule and the remedy."""

    exit_code = 2


class WorkerLost(CfclError):  # noqa: N818
    """A process of a running simulation ended before its time; what had been measured stays on disk."""

    exit_code = 1
