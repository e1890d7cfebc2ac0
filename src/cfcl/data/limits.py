"""How much memory data may take: a small file can claim any size, and one line comes before the memory is gone."""

from cfcl.errors import CfclError
from cfcl.reading import memory


def check_memory(num_bytes: int, what: str, remedy: str) -> None:
    """Refuse what this machine cannot hold twice, for images are copied once when they are split."""
    most = memory()
    if most is not None and 2 * num_bytes > most:
        raise CfclError(
            f"{what} would take {2 * num_bytes / 1e9:,.1f} GB while they are split, but this machine has "
            f"{most / 1e9:,.1f} GB: {remedy}"
        )
