import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfcl.core.shares import split


@pytest.mark.parametrize(
    ("total", "counts", "expected"),
    [
        # 10 * 5/20 = 2.5, 10 * 12/20 = 6, 10 * 3/20 = 1.5: one is left, and of equal remainders the first gets it
        (10, [5, 12, 3], [3, 6, 1]),
        # 7 * 1/10 = 0.7, 7 * 3/10 = 2.1, 7 * 6/10 = 4.2: one is left, for the 0.7
        (7, [1, 3, 6], [1, 2, 4]),
        # 4/3 each: one is left, for the first
        (4, [9, 9, 9], [2, 1, 1]),
        # 4 * 8/9 = 3.6 and 4 * 1/9 = 0.4
        (4, [0, 8, 0, 1], [0, 4, 0, 0]),
        # no more than there is: 3 of 4
        (4, [0, 3], [0, 3]),
        (6, [2, 4], [2, 4]),
        (4, [0, 0], [0, 0]),
        (0, [3, 1], [0, 0]),
        (0, [], []),
    ],
)
def test_parts_by_hand(total: int, counts: list[int], expected: list[int]) -> None:
    assert split(total, counts) == expected


@given(st.integers(0, 500), st.lists(st.integers(0, 200), max_size=12))
def test_parts_add_up_and_none_is_above_its_count_or_far_from_its_share(total: int, counts: list[int]) -> None:
    parts, whole = split(total, counts), sum(counts)
    assert sum(parts) == min(total, whole)
    for part, count in zip(parts, counts, strict=True):
        assert 0 <= part <= count
        # within one of the exact share, in whole numbers: |part - total * count / whole| < 1
        assert whole <= total or abs(part * whole - total * count) < whole
