import math

import torch

from cfcl.core.coverage import blurred, cover, newness, outside, radii

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


def test_radii_by_hand() -> None:
    # 0 stands for 0, 1, 2 (squared 0, 1, 4: the 0.9 quantile is 1 + 0.8 * 3), 20 for itself and 24 (0, 16: 14.4).
    own = torch.tensor([[0.0], [1.0], [2.0], [20.0], [24.0]])
    reaches = torch.tensor([3.4, 14.4])
    expected = (reaches * 8.9).sqrt()
    torch.testing.assert_close(radii(own, torch.tensor([[0.0], [20.0]])), expected)


def test_a_reserve_point_that_stands_for_itself_alone_reaches_as_far_as_the_median() -> None:
    # 50 stands for itself. Distances to the nearest: 0, 1, 4, 9, 0; the median is 1, and 0 has the quantile 7.5.
    own = torch.tensor([[0.0], [1.0], [2.0], [3.0], [50.0]])
    expected = (torch.tensor([7.5, 1.0]) * 4.25).sqrt()
    torch.testing.assert_close(radii(own, torch.tensor([[0.0], [50.0]])), expected)


def test_points_that_coincide_reach_nowhere_and_give_numbers() -> None:
    found = radii(torch.ones(4, 2), torch.ones(2, 2))
    assert found.tolist() == [0.0, 0.0]
    assert outside(torch.tensor([[0.0, 0.0], [3.0, 3.0]], dtype=torch.float64), found.double()).tolist() == [0.0, 5.0]


def test_a_candidate_is_as_far_outside_as_outside_the_ball_it_is_nearest_to() -> None:
    distances = torch.tensor([[4.0, 4.0], [1.0, 8.0], [0.0, 9.0], [1e9, 1e9]], dtype=torch.float64)
    found = outside(distances, torch.tensor([1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([math.log(2.0), 0.0, -5.0, 5.0], dtype=torch.float64))


def test_values_are_blurred_over_the_nearest_and_the_point_itself() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    distances = (points - points.T).square()
    values = torch.tensor([4.0, 2.0, 0.0, 8.0])
    assert blurred(values, distances, 2).tolist() == [3.0, 3.0, 1.0, 4.0]
    assert blurred(values, distances, 1).tolist() == values.tolist()
    assert blurred(values, distances, 9).tolist() == [3.5] * 4


def test_newness_is_a_half_at_the_edge_and_decided_with_the_nearest() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    edge = math.log(4.0)
    values = torch.tensor([edge + 1.0, edge - 1.0, edge - 2.0, edge], dtype=torch.float64)
    distances = (points - points.T).square()
    found = newness(values, distances, neighbours=2, edge=4.0, sharpness=2.0)
    # With the nearest (1 and 0 are one pair, 3 goes with 1, 10 with 3) they lie 0, 0, -1.5 and -1 from the edge.
    expected = torch.tensor([0.5, 0.5, 0.047425873, 0.119202922], dtype=torch.float64)
    torch.testing.assert_close(found.exp(), expected)
    # Alone they lie 1, -1, -2 and 0 from it: 1/(1 + e^-2), 1/(1 + e^2), 1/(1 + e^4), a half.
    alone = newness(values, distances, neighbours=1, edge=4.0, sharpness=2.0).exp()
    torch.testing.assert_close(alone, torch.tensor([0.880797078, 0.119202922, 0.017986210, 0.5], dtype=torch.float64))
