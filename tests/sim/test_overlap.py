from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cfcl.config import ExchangeConfig
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.sim import overlap
from tests.conftest import small

# Images of one shade, on three devices in a line: dark ones; as many dark and bright ones; grey ones.
SHADES = [
    [0, 2, 4, 6, 8, 10, 12, 14],
    [1, 5, 9, 13, 200, 204, 208, 212],
    [110, 112, 114, 116, 118, 120, 122, 124],
]
LABELS = [[0] * 8, [0, 0, 0, 0, 0, 0, 1, 2], [1, 1, 1, 1, 1, 1, 3, 3]]
OVERRIDES = (
    "partition.kind=given",
    "partition.num_devices=3",
    "graph.kind=line",
    "exchange.num_reserve=2",
    "exchange.num_candidates=8",
    "exchange.cover_edge=4",
    "exchange.cover_neighbours=1",
)


def shades(labels: list[list[int]] | None = LABELS) -> Dataset:
    images = torch.tensor(SHADES, dtype=torch.uint8).flatten().reshape(-1, 1, 1, 1).expand(-1, 1, 4, 4).contiguous()
    known = None if labels is None else torch.tensor(labels).flatten()
    return Dataset("shades", images, known, images, known, train_devices=torch.arange(3).repeat_interleave(8))


def test_what_is_new_on_every_link_by_hand() -> None:
    found = overlap.measure(small(*OVERRIDES), dataset=shades())

    assert found.dataset == "shades"
    new = {(link.transmitter, link.receiver): link.new for link in found.links}
    # The bright half of 1 is new to 0, and nothing of 0 is new to 1; all is new between 1 and 2; 0 and 2 have no link.
    assert list(new) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert list(new.values()) == pytest.approx([0.0, 0.5, 1.0, 1.0], abs=1e-6)
    assert found.own == pytest.approx((0.0, 0.0, 0.0), abs=1e-6)
    # 0 has the label 0, 1 has 0, 1 and 2, 2 has 1 and 3: 0 lacks two of 1's eight, 2 all but one of them, 1 lacks two.
    assert [link.lacked for link in found.links] == [0.0, 0.25, 0.875, 0.25]
    # Over each of four links two images of 16 pixels and two radii of four bytes.
    assert found.bytes_push == 4 * (2 * 16 + 2 * 4)


def test_without_labels_there_is_the_estimate_alone() -> None:
    known, blind = (overlap.measure(small(*OVERRIDES), dataset=shades(labels)) for labels in (LABELS, None))
    assert blind == replace(known, links=tuple(replace(link, lacked=None) for link in known.links))
    assert blind.correlation is None


@pytest.mark.parametrize(
    "override",
    [
        "exchange.method=fedavg",
        "exchange.method=oracle",
        "exchange.mode=implicit",
        "train.steps=3",
        "model.embedding_dim=7",
    ],
)
def test_method_mode_model_and_training_do_not_matter(override: str) -> None:
    config = small("partition.kind=dirichlet", "partition.min_points=30")
    assert overlap.measure(small("partition.kind=dirichlet", "partition.min_points=30", override)) == (
        overlap.measure(config)
    )


def test_devices_look_at_draws_as_large_as_those_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    real = policies.cover_scores

    def scores(points: Tensor, reserve: Tensor, radii: Tensor, config: ExchangeConfig) -> tuple[Tensor, Tensor]:
        seen.append(points)
        return real(points, reserve, radii, config)

    monkeypatch.setattr(policies, "cover_scores", scores)
    # About 360 points on each of four devices: ten draws of 8, for itself and for both neighbours.
    overlap.measure(small("partition.kind=iid"))
    assert [len(points) for points in seen] == [8] * (10 * 3 * 4)
    seen.clear()
    # Draws of 140 leave none of 360 points out: two halves of them.
    overlap.measure(small("partition.kind=iid", "exchange.num_candidates=140"))
    assert {len(points) for points in seen} == {179, 180}
    assert sum(map(len, seen)) == 3 * 1438


def test_links_over_which_nothing_is_pulled_are_left_out(tmp_path: Path) -> None:
    table = tmp_path / "budgets.csv"
    table.write_text("transmitter,receiver,num_pulled,num_reserve\n1,0,0,2\n1,2,2,3\n")
    found = overlap.measure(small(*OVERRIDES, f"exchange.budgets_file={table}"), dataset=shades())
    assert [(link.transmitter, link.receiver) for link in found.links] == [(0, 1), (1, 2), (2, 1)]
    # 0 pushes nothing, so of its own reserve nothing is known; 2 pushes three points, and 1 two to each neighbour.
    assert found.own[0] is None
    assert found.bytes_push == (3 + 2 + 2) * (16 + 4)
    assert found.floor == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("partition.num_devices=1", "partition.num_devices=1 leaves no neighbours to compare: set it to 2 or more"),
        ("exchange.num_pulled=0", "exchange.num_pulled=0 pulls nothing over any link, .* raise it"),
        ("exchange.num_reserve=2000", "exchange.num_reserve=2000 exceeds the .* points of device 0: lower"),
    ],
)
def test_what_has_no_overlap_is_refused(override: str, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        overlap.measure(small("partition.kind=iid", override))
