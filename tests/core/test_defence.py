import pytest
import torch

from cfcl.core import defence


def test_items_that_are_too_long_are_shortened_and_others_left_alone() -> None:
    items = torch.tensor([[3.0, 4.0], [0.6, -0.8], [0.0, 0.0], [-30.0, 40.0]])
    assert defence.lengths(items).tolist() == pytest.approx([5.0, 1.0, 0.0, 50.0])
    found = defence.shortened(items, 2.5)
    # 2.5 / 5 of the first, 2.5 / 50 of the last
    torch.testing.assert_close(found, torch.tensor([[1.5, 2.0], [0.6, -0.8], [0.0, 0.0], [-1.5, 2.0]]))
    assert torch.equal(defence.shortened(items, 50.0), items)
    assert found.dtype == torch.float32


def test_the_length_of_an_item_is_that_of_all_its_values() -> None:
    items = torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 3.0], [0.0, 0.0]]])
    # 1 + 4 + 4 + 16 = 25
    assert defence.lengths(items).tolist() == [5.0, 3.0]
    assert defence.shortened(items, 4.0)[0].flatten().tolist() == pytest.approx([0.8, 1.6, 1.6, 3.2])
    assert defence.shortened(items[:0], 4.0).shape == (0, 2, 2)


def test_very_long_items_stay_finite() -> None:
    found = defence.shortened(torch.tensor([[3e30, -4e30]]), 10.0)
    torch.testing.assert_close(found, torch.tensor([[6.0, -8.0]]))


def test_traits_by_hand() -> None:
    image = torch.tensor([[[[0, 4], [4, 8]]], [[[7, 7], [7, 7]]]], dtype=torch.uint8)
    # mean 16 / 4; squares of -4 0 0 4 are 32, / 4 = 8; steps 4 and 4 along the rows. A flat one has neither.
    torch.testing.assert_close(
        defence.traits(image), torch.tensor([[4.0, 8.0**0.5, 4.0], [7.0, 0.0, 0.0]], dtype=torch.float64)
    )
    # 1, -1, 3: mean 1, deviations 0 -2 2: 8 / 3; steps 2 and 4
    found = defence.traits(torch.tensor([[1.0, -1.0, 3.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, (8 / 3) ** 0.5, 3.0]], dtype=torch.float64))


def test_items_of_one_value_have_no_roughness_and_no_items_no_traits() -> None:
    own, found = torch.tensor([[2.0], [4.0]]), torch.tensor([[3.0], [5.0]])
    assert defence.traits(own).tolist() == [[2.0, 0.0, 0.0], [4.0, 0.0, 0.0]]
    # 2 to 4, widened by a quarter of 2
    assert defence.within(defence.traits(found), defence.traits(own), slack=0.25).tolist() == [True, False]
    # maps of a grid of one: two channels of one value, mean 2 and deviation 1
    assert defence.traits(torch.tensor([[[[1.0]], [[3.0]]]])).tolist() == [[2.0, 1.0, 0.0]]
    assert defence.traits(torch.zeros(0, 1, 8, 8)).shape == (0, 3)


@pytest.mark.parametrize(
    ("slack", "expected"),
    [
        # own: 2 to 6 and -1 to 1
        (0.0, [True, False, False, False]),
        (0.25, [True, True, False, False]),  # 1 to 7 and -1.5 to 1.5
        (0.75, [True, True, True, False]),  # -1 to 9 and -2.5 to 2.5
    ],
)
def test_every_trait_must_be_in_the_widened_range(slack: float, expected: list[bool]) -> None:
    own = torch.tensor([[2.0, 1.0], [6.0, -1.0], [3.0, 0.0]])
    found = torch.tensor([[2.0, -1.0], [7.0, 0.0], [3.0, -2.0], [-2.0, 0.0]])
    assert defence.within(found, own, slack=slack).tolist() == expected


# oldest first: 5 sent three, 2 two, 9 one
SOURCES = torch.tensor([5, 2, 5, 9, 2, 5])


@pytest.mark.parametrize(
    ("cap", "share", "expected"),
    [
        (None, None, [1, 1, 1, 1, 1, 1]),
        (3, None, [1, 1, 1, 1, 1, 1]),
        (2, None, [0, 1, 1, 1, 1, 1]),  # the oldest of 5 goes
        (1, None, [0, 0, 0, 1, 1, 1]),
        (None, 1.0, [1, 1, 1, 1, 1, 1]),
        (None, 0.5, [1, 1, 1, 1, 1, 1]),  # 3 of 6
        (None, 0.45, [0, 1, 1, 1, 1, 1]),  # 3 of 6 is more; 2 of 5 is not
        (None, 0.35, [0, 0, 0, 1, 1, 1]),  # nor is 1 of 3
        (None, 0.1, [0, 0, 0, 1, 1, 1]),  # three neighbours cannot have a tenth each: equal parts
        (1, 0.5, [0, 0, 0, 1, 1, 1]),
    ],
)
def test_the_newest_of_each_neighbour_stay(cap: int | None, share: float | None, expected: list[int]) -> None:
    assert defence.fair(SOURCES, cap=cap, share=share).tolist() == [bool(stays) for stays in expected]


def test_a_share_that_floats_put_below_a_whole_number_is_kept() -> None:
    # 0.29 * 100 is 28.999999999999996, and 29 of 100 are no more than that
    sources = torch.tensor([0] * 29 + [1] * 29 + [2] * 29 + [3] * 13)
    assert bool(defence.fair(sources, cap=None, share=0.29).all())


def test_one_of_few_neighbours_that_sends_little_makes_the_equal_parts_small() -> None:
    # A quarter of all for each of four neighbours are equal parts, and one has sent a single item.
    sources = torch.tensor([0] * 10 + [1] * 10 + [2] * 10 + [3])
    assert int(defence.fair(sources, cap=None, share=0.25).sum()) == 4
    # With three tenths for each: 3 of 10 are no more than that, and 4 of 13 are.
    assert int(defence.fair(sources, cap=None, share=0.3).sum()) == 10


def test_nobody_has_sent_anything() -> None:
    assert defence.fair(SOURCES[:0], cap=2, share=0.3).tolist() == []
