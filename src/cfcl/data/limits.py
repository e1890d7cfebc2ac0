"""How much memory data may take: a small file can claim any size, and one line comes before the memory is gone."""

import os

from cfcl.errors import CfclError


def check_memory(num_bytes: int, what: str, remedy: str) -> None:
    """Refuse what this machine cannot hold twice, for images are copied once when they are split."""
    memory = _memory()
    if memory is not None and 2 * num_bytes > memory:
        raise CfclError(
            f"{what} would take {2 * num_bytes / 1e9:,.1f} GB while they are split, but this machine has "
            f"{memory / 1e9:,.1f} GB: {remedy}"
        )


def _memory() -> int | None:
    """Bytes of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
