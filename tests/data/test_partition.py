from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cfcl.config import PartitionConfig
from cfcl.data import partition
from cfcl.errors import CfclError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labels_of(*counts: int) -> Tensor:
    """Shuffled labels: `counts[k]` times label k."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=generator(99))]


def assert_disjoint_and_sorted(shares: tuple[Tensor, ...], num_points: int, *, all_used: bool) -> None:
    lists = [share.tolist() for share in shares]
    flat = sorted(point for points in lists for point in points)
    assert all(share.dtype == torch.int64 for share in shares)
    assert all(points == sorted(points) for points in lists)
    assert all(len(points) >= 2 for points in lists)
    assert len(set(flat)) == len(flat)
    assert set(flat) <= set(range(num_points))
    assert not all_used or flat == list(range(num_points))


@given(num_points=st.integers(2, 200), num_devices=st.integers(1, 100), seed=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_iid_uses_every_point_once_in_even_shares(num_points: int, num_devices: int, seed: int) -> None:
    num_devices = min(num_devices, num_points // 2)

    shares = partition.iid(num_points, num_devices=num_devices, generator=generator(seed))

    assert len(shares) == num_devices
    assert_disjoint_and_sorted(shares, num_points, all_used=True)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_iid_shuffles() -> None:
    first = partition.iid(100, num_devices=2, generator=generator())[0]

    assert first.tolist() != list(range(50))
    assert 10 < (first < 50).sum() < 40


@given(
    num_classes=st.integers(1, 8),
    num_devices=st.integers(1, 12),
    labels_per_device=st.integers(1, 8),
    per_class=st.integers(24, 40),
    cap=st.none() | st.integers(2, 5),
    seed=st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_by_labels_is_balanced_and_disjoint(
    num_classes: int, num_devices: int, labels_per_device: int, per_class: int, cap: int | None, seed: int
) -> None:
    labels_per_device = min(labels_per_device, num_classes)
    # label k has k points more than label 0, so that remainders occur
    labels = labels_of(*(per_class + label for label in range(num_classes)))

    shares = partition.by_labels(
        labels,
        num_devices=num_devices,
        labels_per_device=labels_per_device,
        max_per_label=cap,
        generator=generator(seed),
    )

    held = [Counter(labels[share].tolist()) for share in shares]
    every_label_held = num_devices * labels_per_device >= num_classes
    assert_disjoint_and_sorted(shares, len(labels), all_used=every_label_held and cap is None)
    assert [len(counter) for counter in held] == [labels_per_device] * num_devices
    holders = [sum(label in counter for counter in held) for label in range(num_classes)]
    assert max(holders) - min(holders) <= 1
    for label in range(num_classes):
        sizes = [counter[label] for counter in held if label in counter]
        assert not sizes or max(sizes) - min(sizes) <= 1
        assert cap is None or not sizes or max(sizes) <= cap


def test_by_labels_of_the_digits_setting_by_hand() -> None:
    # 10 devices with 3 of 10 labels: each label on 3 devices; 20 points of a label are split 7, 7, 6.
    labels = labels_of(*[20] * 10)

    shares = partition.by_labels(labels, num_devices=10, labels_per_device=3, generator=generator())

    for label in range(10):
        sizes = sorted(int((labels[share] == label).sum()) for share in shares)
        assert sizes == [0, 0, 0, 0, 0, 0, 0, 6, 7, 7]


def test_by_labels_cap_is_per_device_and_label() -> None:
    labels = labels_of(10, 3)

    shares = partition.by_labels(labels, num_devices=1, labels_per_device=2, max_per_label=4, generator=generator())

    assert labels[shares[0]].bincount().tolist() == [4, 3]


def test_by_labels_leaves_out_labels_without_a_holder() -> None:
    labels = labels_of(5, 5, 5, 5)

    shares = partition.by_labels(labels, num_devices=2, labels_per_device=1, generator=generator())

    assert [len(share) for share in shares] == [5, 5]
    assert len({int(label) for share in shares for label in labels[share]}) == 2


def test_by_labels_takes_labels_that_are_not_consecutive() -> None:
    labels = torch.tensor([7, 7, 7, 7, 30, 30])

    shares = partition.by_labels(labels, num_devices=2, labels_per_device=1, generator=generator())

    assert sorted(share.tolist() for share in shares) == [[0, 1, 2, 3], [4, 5]]


def test_by_labels_and_dirichlet_shuffle_the_points_of_a_label() -> None:
    labels = torch.zeros(100, dtype=torch.int64)

    halves = partition.by_labels(labels, num_devices=2, labels_per_device=1, generator=generator())
    even = partition.dirichlet(labels, num_devices=2, alpha=1e6, min_points=2, generator=generator())

    for shares in (halves, even):
        # unshuffled, all of the first 50 points would be on device 0
        assert 10 < (shares[0] < 50).sum() < 40


def test_by_labels_assignment_is_random() -> None:
    labels = labels_of(*[20] * 10)

    def first_labels(seed: int) -> set[int]:
        shares = partition.by_labels(labels, num_devices=10, labels_per_device=3, generator=generator(seed))
        return set(labels[shares[0]].tolist())

    assert len({frozenset(first_labels(seed)) for seed in range(10)}) > 5


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(lambda counts: sum(counts) >= 2),
    num_devices=st.integers(1, 40),
    alpha=st.sampled_from([1e-310, 1e-6, 0.05, 0.5, 10.0, 1e6]),
    min_points=st.integers(2, 6),
    seed=st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_dirichlet_uses_every_point_once_and_respects_the_minimum(
    counts: list[int], num_devices: int, alpha: float, min_points: int, seed: int
) -> None:
    labels = labels_of(*counts)
    min_points = min(min_points, len(labels))
    num_devices = min(num_devices, len(labels) // min_points)

    shares = partition.dirichlet(
        labels, num_devices=num_devices, alpha=alpha, min_points=min_points, generator=generator(seed)
    )

    assert len(shares) == num_devices
    assert_disjoint_and_sorted(shares, len(labels), all_used=True)
    assert min(len(share) for share in shares) >= min_points


def test_dirichlet_alpha_sets_the_skew() -> None:
    labels = labels_of(*[1000] * 4)

    def largest_share(alpha: float) -> float:
        shares = partition.dirichlet(labels, num_devices=10, alpha=alpha, min_points=2, generator=generator())
        table = torch.stack([labels[share].bincount(minlength=4) for share in shares])
        return float(table.amax(dim=0).float().mean()) / 1000

    assert largest_share(0.01) > 0.8  # nearly all of a label on one device
    assert 0.2 < largest_share(0.5) < 0.75
    assert largest_share(1e5) < 0.11  # nearly a tenth each


def test_dirichlet_shares_have_the_moments_of_the_distribution() -> None:
    # Dirichlet(0.5) over 4: mean 1/4, variance (1/4)(3/4)/(4 * 0.5 + 1) = 1/16.
    source = generator()
    shares = torch.stack([partition._dirichlet_shares(4, 0.5, source) for _ in range(1500)])

    torch.testing.assert_close(shares.sum(dim=1), torch.ones(1500, dtype=torch.float64))
    torch.testing.assert_close(shares.mean(dim=0), torch.full((4,), 0.25, dtype=torch.float64), atol=0.03, rtol=0)
    torch.testing.assert_close(shares.var(dim=0), torch.full((4,), 0.0625, dtype=torch.float64), atol=0.01, rtol=0)


def test_fill_up_takes_from_the_richest_by_hand() -> None:
    held = [[0, 1, 2, 3, 4, 5, 6], [], [7, 8, 9, 10, 11], [12]]

    partition._fill_up(held, 3, generator())

    # sizes 7 0 5 1 -> 5 2 5 1 (two from device 0) -> 4 3 5 1 (a tie: the lower number) -> 4 3 4 2 -> 3 3 4 3
    assert [len(points) for points in held] == [3, 3, 4, 3]
    assert set(held[1]) < {0, 1, 2, 3, 4, 5, 6}
    assert sorted(point for points in held for point in points) == list(range(13))


@pytest.mark.parametrize("kind", ["labels", "dirichlet", "iid"])
def test_split_is_decided_by_the_seed(kind: str) -> None:
    config = PartitionConfig.model_validate({"kind": kind, "num_devices": 4})
    labels = labels_of(30, 30, 30, 30)

    first, again, other = (partition.split(config, labels, 120, generator(seed)) for seed in (5, 5, 6))

    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_split_hands_every_field_on() -> None:
    labels = labels_of(30, 30, 30, 30)

    def split(**fields: object) -> tuple[Tensor, ...]:
        return partition.split(PartitionConfig.model_validate(fields), labels, 120, generator())

    by_labels = split(kind="labels", num_devices=2, labels_per_device=2, max_points_per_label=4)
    assert [labels[share].bincount().sort().values[-2:].tolist() for share in by_labels] == [[4, 4], [4, 4]]
    dirichlet = split(kind="dirichlet", num_devices=8, alpha=0.01, min_points=14)
    assert min(len(share) for share in dirichlet) == 14
    assert [len(share) for share in split(kind="iid", num_devices=7)] == [18, 17, 17, 17, 17, 17, 17]


def test_split_of_unlabelled_points_may_be_iid() -> None:
    shares = partition.split(PartitionConfig(kind="iid", num_devices=3), None, 9, generator())

    assert [len(share) for share in shares] == [3, 3, 3]


@pytest.mark.parametrize(
    ("fields", "counts", "words"),
    [
        ({"kind": "labels"}, None, ["partition.kind='labels'", "data have none", "set partition.kind='iid'"]),
        ({"kind": "dirichlet"}, None, ["partition.kind='dirichlet'", "data have none", "set partition.kind='iid'"]),
        (
            {"kind": "labels", "labels_per_device": 4},
            (30, 30, 30),
            ["partition.labels_per_device=4", "exceeds the 3 labels", "lower partition.labels_per_device"],
        ),
        (
            {"kind": "labels", "num_devices": 50, "labels_per_device": 1},
            (40, 40),
            ["partition.num_devices=50", "needs 100", "at least 2", "there are 80", "lower partition.num_devices"],
        ),
        (
            {"kind": "labels", "num_devices": 4, "labels_per_device": 2},
            (30, 3),
            ["label 1 has 3 points for 4 devices", "needs one", "lower partition.num_devices"],
        ),
        (
            {"kind": "labels", "num_devices": 4, "labels_per_device": 1},
            (30, 3),
            ["would hold 1 point", "at least 2", "lower partition.num_devices", "raise partition.labels_per_device"],
        ),
        (
            {"kind": "labels", "num_devices": 2, "labels_per_device": 1, "max_points_per_label": 1},
            (30, 30),
            ["would hold 1 point", "max_points_per_label=1", "at least 2", "raise partition.max_points_per_label"],
        ),
        (
            {"kind": "dirichlet", "num_devices": 10, "min_points": 7},
            (30, 30),
            ["partition.num_devices=10", "needs 70", "at least 7", "there are 60", "or partition.min_points"],
        ),
        (
            {"kind": "iid", "num_devices": 10},
            (19,),
            ["partition.num_devices=10", "needs 20", "at least 2", "there are 19", "lower partition.num_devices"],
        ),
    ],
)
def test_impossible_wishes_are_refused(
    fields: dict[str, object], counts: tuple[int, ...] | None, words: list[str]
) -> None:
    labels = None if counts is None else labels_of(*counts)

    with pytest.raises(CfclError) as caught:
        partition.split(PartitionConfig.model_validate(fields), labels, sum(counts or (100,)), generator())

    assert [word for word in words if word not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


def test_given_devices_keep_their_points_in_order_of_their_numbers() -> None:
    config = PartitionConfig(kind="given", num_devices=3)
    devices = torch.tensor([7, 2, 7, 5, 2, 5, 7])

    shares = partition.split(config, None, 7, generator(), devices=devices)

    assert [share.tolist() for share in shares] == [[1, 4], [3, 5], [0, 2, 6]]


@pytest.mark.parametrize(
    ("devices", "complaint"),
    [
        (None, r"name none: set data.layout='devices', add `devices` to the .npz file"),
        (torch.tensor([0, 0, 1, 1]), r"num_devices=3 differs from the 2 devices in the data: set .*num_devices=2"),
        (torch.tensor([0, 0, 9, 1, 1]), r"device 9 holds 1 training image, but a device needs at least 2: give it"),
    ],
)
def test_given_devices_that_cannot_be_get_one_line(devices: torch.Tensor | None, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        partition.split(PartitionConfig(kind="given", num_devices=3), None, 5, generator(), devices=devices)


def test_data_without_labels_but_with_devices_point_to_them() -> None:
    with pytest.raises(CfclError, match=r"set partition\.kind='given'"):
        partition.split(PartitionConfig(num_devices=2), None, 4, generator(), devices=torch.tensor([0, 0, 1, 1]))


def test_overlapping_shares_serve_more_devices_than_there_are_points() -> None:
    labels = torch.arange(10).repeat_interleave(12)
    shares = partition.overlapping(
        labels, num_devices=500, labels_per_device=3, max_per_label=5, generator=torch.Generator().manual_seed(0)
    )
    assert len(shares) == 500
    holders = torch.zeros(10, dtype=torch.int64)
    for share in shares:
        assert len(torch.unique(share)) == len(share) == 15
        counts = labels[share].bincount(minlength=10)
        assert sorted(counts.tolist()) == [0] * 7 + [5] * 3
        holders += counts > 0
    assert holders.tolist() == [150] * 10
    # devices of one label draw their own points of it
    assert len({tuple(share.tolist()) for share in shares}) == 500
