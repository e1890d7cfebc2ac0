"""Notes to the user that do not stop anything."""

import sys

from cfcl.shown import visible

_said: set[str] = set()


def note(text: str) -> None:
    """Print `text` on standard error, once in the life of the process."""
    if text not in _said:
        _said.add(text)
        print(f"note: {visible(text)}", file=sys.stderr, flush=True)
