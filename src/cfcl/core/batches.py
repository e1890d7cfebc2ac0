"""Which points meet in a triplet, or in a batch of views."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor


def pick(uniforms: Float[Tensor, " batch"], size: int) -> Int[Tensor, " batch"]:
    """Uniform positions below `size`."""
    return (uniforms * size).long().clamp_max(size - 1)


def compose(
    uniforms: Float[Tensor, "4 batch"],
    *,
    num_local: int,
    num_pulled: int,
    composition: Literal["cross", "union", "negatives_only"],
    remote_fraction: float,
) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """Positions of anchors and of negatives, never the same point twice in a triplet; pulled points follow local ones.

    Without pulled points every composition gives the same batch, so that all methods of a seed share it.
    """
    pool = num_local + num_pulled if composition == "union" else num_local
    anchor = pick(uniforms[0], pool)
    negative = (anchor + 1 + pick(uniforms[1], pool - 1)) % pool
    if num_pulled == 0 or composition == "union":
        return anchor, negative
    # Paper: trains on the union, where pulled points are about one in a hundred and hardly act.
    num_remote = round(remote_fraction * uniforms.shape[1])
    num_negatives = num_remote if composition == "negatives_only" else (num_remote + 1) // 2
    negative[:num_negatives] = num_local + pick(uniforms[2, :num_negatives], num_pulled)
    anchor[num_negatives:num_remote] = num_local + pick(uniforms[3, num_negatives:num_remote], num_pulled)
    return anchor, negative


def compose_within(
    local: Int[Tensor, " batch"],
    uniforms: Float[Tensor, " batch"],
    *,
    num_local: int,
    num_pulled: int,
    remote_fraction: float,
) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """Positions of anchors, and for each the row of another anchor that is its negative.

    `local` are distinct local positions. The share of cross pairs is that of `compose` with composition `cross`.
    """
    anchor, size = local.clone(), len(local)
    num_remote = round(remote_fraction * size) if num_pulled else 0
    num_local_anchors = (num_remote + 1) // 2
    num_remote_anchors = num_remote - num_local_anchors
    if num_remote_anchors == 0:
        return anchor, torch.arange(1, size + 1) % size
    rows = torch.arange(size)
    anchor[num_local_anchors:num_remote] = num_local + pick(uniforms[num_local_anchors:num_remote], num_pulled)
    rest = size - num_remote
    negative = torch.cat(
        [
            num_local_anchors + rows[:num_local_anchors] % num_remote_anchors,
            rows[:num_remote_anchors] % num_local_anchors,
            num_remote + (rows[:rest] + 1) % rest if rest > 1 else rows[:rest],
        ]
    )
    return anchor, negative


def compose_views(
    local: Int[Tensor, " batch"], pulled: Int[Tensor, " pulled"], *, num_local: int, remote_fraction: float
) -> Int[Tensor, " batch"]:
    """Positions of distinct points, local ones first and then a share of pulled ones, as far as there are any.

    `local` and `pulled` are distinct positions among the local and among the pulled points, in random order.
    """
    num_remote = min(round(remote_fraction * len(local)), len(pulled))
    return torch.cat([local[: len(local) - num_remote], num_local + pulled[:num_remote]])
