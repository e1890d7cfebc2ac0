"""Files that a command leaves behind: of the right kind, and whole or not at all."""

from pathlib import Path

from cfcl.errors import CfclError
from cfcl.files import write_atomically


def check_suffix(out: Path, option: str, suffix: str) -> None:
    """Refuse a name that says another kind of file."""
    if out.suffix.lower() != suffix:
        raise CfclError(f"{option} {str(out)!r} does not end in {suffix}, the kind of file it becomes: rename it")


def write(out: Path, content: bytes) -> None:
    """Put a file with `content` at `out`, and make the folders it needs."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, content)
    except OSError as error:
        raise CfclError(f"cannot write {str(out)!r}: {error.strerror or error}; choose another --out") from None
