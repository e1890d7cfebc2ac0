import torch

from cfcl.core.coverage import cover

# On a line: three points close together, two far away together, two in between.
LINE = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [6.0], [7.0]])


def test_points_are_chosen_by_how_much_they_bring_all_others_nearer() -> None:
    # 6 is the median, so it is nearest to all. The distances left are 6, 5, 4, 4, 5, 0, 1. Then 1 gains 5 + 5 + 3 = 13,
    # 0 gains 6 + 4 + 2 = 12, 2 gains 4 + 4 + 4 = 12, 10 and 11 gain 4 + 4 and 3 + 5, and 7 gains 1 + 1 + 1.
    assert cover(LINE, 2).tolist() == [5, 1]
    # Left are 1, 0, 1, 4, 5, 0, 1: 10 gains 4 + 4 = 8, and 11 gains 3 + 5 = 8; the first of a tie counts.
    assert cover(LINE, 3).tolist() == [5, 1, 3]


def test_what_is_held_is_covered_and_not_chosen() -> None:
    # Held 0 and 6: left are 0, 1, 2, 4, 5, 0, 1. 10 gains 4 + 4 = 8 (as 11 does, later). Then 1 gains 1 + 1 = 2,
    # as 2 does, later.
    assert cover(LINE, 2, torch.tensor([0, 5])).tolist() == [3, 1]


def test_no_more_are_chosen_than_there_are() -> None:
    assert sorted(cover(LINE, 9).tolist()) == [0, 1, 2, 3, 4, 5, 6]
    assert sorted(cover(LINE, 9, torch.tensor([2])).tolist()) == [0, 1, 3, 4, 5, 6]
    assert cover(LINE, 0).tolist() == []
    assert cover(LINE[:0], 3).tolist() == []


def test_points_that_coincide_are_all_chosen_once() -> None:
    assert cover(torch.zeros(3, 2), 3).tolist() == [0, 1, 2]
