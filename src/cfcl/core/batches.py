"""Which points meet in a triplet."""

from typing import Literal

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
