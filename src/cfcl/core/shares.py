"""One budget for several neighbours."""

from collections.abc import Sequence


def split(total: int, counts: Sequence[int]) -> list[int]:
    """Whole parts of `total` in proportion to `counts`, none above its count; all counts where they are not more.

    What rounding leaves goes one by one to the largest remainders; of equal ones, to the first.
    """
    whole = sum(counts)
    if whole <= total:
        return list(counts)
    found = [total * count // whole for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda place: -(total * counts[place] % whole))
    for place in by_remainder[: total - sum(found)]:
        found[place] += 1
    return found
