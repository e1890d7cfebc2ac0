"""Memory that is used again need not be asked for again."""

import ctypes
import platform

M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
NEVER = 2**31 - 1


def keep_memory() -> bool:
    """Have glibc keep freed memory for the next batch, where there is a glibc; says whether it does.

    By default it returns every large block to the system, which hands it out again page by page, zeroed: for batches
    of images that costs more than a tenth of a training step. This holds until the process ends and cannot be undone,
    so it is for processes that are ours: commands, workers, jobs; never for one that calls us.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(M_MMAP_MAX, 0)) and bool(libc.mallopt(M_TRIM_THRESHOLD, NEVER))
