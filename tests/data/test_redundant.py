import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cfcl.config import PartitionConfig
from cfcl.data import partition
from cfcl.errors import CfclError


def labels_of(*counts: int) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def split(labels: Tensor, seed: int = 0, **fields: object) -> tuple[Tensor, ...]:
    config = PartitionConfig.model_validate({"kind": "common", **fields})
    return partition.split(config, labels, len(labels), torch.Generator().manual_seed(seed))


def counts(labels: Tensor, share: Tensor) -> list[int]:
    return labels[share].bincount(minlength=int(labels.max()) + 1).tolist()


def test_most_of_every_device_is_of_the_commonest_label() -> None:
    labels = labels_of(30, 50, 30, 30, 30)
    shares = split(labels, num_devices=4, labels_per_device=2, points_per_device=20, main_share=0.7)
    for share in shares:
        # 0.7 × 20 = 14 of label 1, and three of each of two others
        assert len(set(share.tolist())) == 20
        assert counts(labels, share)[1] == 14
        assert sorted(counts(labels, share)) == [0, 0, 3, 3, 14]
    # Four devices with two of four own labels each: every label is on two of them, and no point is.
    own = torch.cat([share[labels[share] != 1] for share in shares])
    assert len(set(own.tolist())) == 24
    assert counts(labels, own) == [6, 0, 6, 6, 6]


def test_common_points_lie_on_about_as_many_devices_as_each_other() -> None:
    labels = labels_of(20, 9, 9, 9)
    shares = split(labels, num_devices=5, labels_per_device=1, points_per_device=15, main_share=0.8)
    # 5 × 12 = 60 of 20 points: each of them three times
    uses = torch.cat(shares).bincount(minlength=47)[:20]
    assert uses.tolist() == [3] * 20


def test_disjoint_shares_use_no_point_twice() -> None:
    labels = labels_of(60, 20, 20, 20)
    shares = split(labels, num_devices=5, labels_per_device=1, points_per_device=15, main_share=0.8, disjoint=True)
    whole = torch.cat(shares)
    assert len(set(whole.tolist())) == len(whole) == 75
    assert [counts(labels, share)[0] for share in shares] == [12] * 5


def test_without_a_size_devices_have_as_many_points_as_the_data_allow() -> None:
    labels = labels_of(40, 9, 9)
    # Two devices, each with one of two other labels: 45 points are 36 common ones and nine, 47 are 38 and nine, and 48
    # would take ten.
    shares = split(labels, num_devices=2, labels_per_device=1, main_share=0.8)
    assert [len(share) for share in shares] == [47, 47]
    # Twenty each of the common one: 25 take 20 and 5, and 26 take 21.
    shares = split(labels, num_devices=2, labels_per_device=1, main_share=0.8, disjoint=True)
    assert [len(share) for share in shares] == [25, 25]


def test_another_label_prevails_on_each_device() -> None:
    labels = labels_of(40, 40, 40, 40)
    shares = split(labels, kind="skewed", num_devices=4, labels_per_device=3, points_per_device=40, main_share=0.9)
    found = [counts(labels, share) for share in shares]
    assert [sorted(row) for row in found] == [[0, 2, 2, 36]] * 4
    assert {row.index(36) for row in found} == {0, 1, 2, 3}
    assert len(set(torch.cat(shares).tolist())) == 160


def test_one_label_alone_is_all_of_a_device() -> None:
    labels = labels_of(10, 10)
    shares = split(labels, kind="skewed", num_devices=2, labels_per_device=1, main_share=0.5)
    assert sorted(counts(labels, share) for share in shares) == [[0, 10], [10, 0]]


@given(
    sizes=st.lists(st.integers(6, 30), min_size=3, max_size=6),
    num_devices=st.integers(1, 5),
    share=st.floats(0, 1),
    kind=st.sampled_from(["common", "skewed"]),
    disjoint=st.booleans(),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_no_point_is_on_a_device_twice(
    sizes: list[int], num_devices: int, share: float, kind: str, disjoint: bool, seed: int
) -> None:
    labels = labels_of(*sizes)
    wanted = {"num_devices": num_devices, "labels_per_device": 2, "main_share": share, "disjoint": disjoint}
    try:
        shares = split(labels, seed, kind=kind, **wanted)
    except CfclError:  # too few for all devices
        return
    assert len({len(part) for part in shares}) == 1
    for part in shares:
        assert len(set(part.tolist())) == len(part)
        assert part.tolist() == sorted(part.tolist())
    if disjoint or kind == "skewed":
        assert len(set(torch.cat(shares).tolist())) == sum(map(len, shares))
    again = split(labels, seed, kind=kind, **wanted)
    assert all(torch.equal(one, other) for one, other in zip(shares, again, strict=True))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"labels_per_device": 3}, ["partition.labels_per_device=3 exceeds the 2 labels", "besides the common one"]),
        ({"kind": "skewed", "labels_per_device": 4}, ["partition.labels_per_device=4 exceeds the 3 labels"]),
        (
            {"points_per_device": 50, "labels_per_device": 1},
            ["partition.points_per_device=50 takes 40 points of label 0, but there are 30", "lower it"],
        ),
        (
            {"points_per_device": 25, "labels_per_device": 1, "disjoint": True},
            ["takes 40 points of label 0, but there are 30"],
        ),
    ],
)
def test_what_the_data_cannot_serve_is_refused_in_one_line(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(CfclError) as caught:
        split(labels_of(30, 20, 20), 0, **{"num_devices": 2, "main_share": 0.8, **fields})
    assert [word for word in words if word not in str(caught.value)] == []
    assert "\n" not in str(caught.value)
