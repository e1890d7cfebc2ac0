"""Which points stand for all the others."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def cover(
    points: Float[Tensor, "points dim"], number: int, held: Int[Tensor, " held"] | None = None
) -> Int[Tensor, " chosen"]:
    """Up to `number` positions, one after another, each the one that most lowers the summed distance of all points to
    the nearest that is chosen or `held`; none twice. Ties go to the first.

    With nothing held, the first is the point nearest to all. Takes memory for all pairs.
    """
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    taken = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    nearest = distances.new_full((len(points),), float(distances.max()) if len(points) else 0.0)
    if held is not None and len(held):
        taken[held] = True
        nearest = distances[held].amin(dim=0)
    chosen: list[int] = []
    for _ in range(min(number, int((~taken).sum()))):
        gains = (nearest - distances).clamp_min(0.0).sum(dim=1)
        gains[taken] = -1.0
        position = int(gains.argmax())
        chosen.append(position)
        taken[position] = True
        nearest = torch.minimum(nearest, distances[position])
    return torch.tensor(chosen, dtype=torch.int64, device=points.device)
