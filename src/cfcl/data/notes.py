"""Notes to the user that do not stop anything."""

import sys

from cfcl.shown import visible

_said: set[tuple[str, ...]] = set()


def note(text: str, *more: str) -> None:
    """Print `text`, and `more` lines under it, on standard error, once in the life of the process."""
    if (text, *more) not in _said:
        _said.add((text, *more))
        print(f"note: {visible(text)}", *(f"  {visible(line)}" for line in more), sep="\n", file=sys.stderr, flush=True)
