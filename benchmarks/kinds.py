"""What rules would send before any training: how much that the receiver holds already, and how much of what is new.

    python benchmarks/kinds.py

USPS, validation images left out, seeds 100 and 101, on which nothing is reported. Every device has a reserve; each
link of the graph draws 100 candidates and gets a law over them from the rule. *Held*: the chance that an item is of a
label that the receiver has. *Reach*: of the candidates that are new, the share that the law really draws among (the
exponential of its entropy). A good rule has little of the first and much of the second. Labels are asked here only.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from cfcl import config as configs
from cfcl.core import clustering, coverage, importance
from cfcl.sim import world
from cfcl.sim.world import World

SETTINGS = {
    "own kinds": (),
    "80 % common": ("partition.kind=common", "partition.points_per_device=360"),
}
SEEDS = (100, 101)
CANDIDATES = 100
SIZES = (5, 10, 20, 30)
EDGE, SHARPNESS, LIKE = 0.9, 16.0, 6
"""The settings of method `cover`."""


class Link(NamedTuple):
    """One problem, in one space."""

    candidates: Tensor
    reserve: Tensor
    own: Tensor
    """All points of the receiver."""


Rule = Callable[[Link], Tensor]
"""Weights of the candidates, not normalised."""


def balls(link: Link, *, like: int = LIKE, edge: float = EDGE, radius: str = "both") -> Tensor:
    """Chance to lie outside; radii of each point, of all, or the geometric mean of both."""
    both = coverage.radii(link.own, link.reserve)
    nearest = clustering.squared_distances(link.own, link.reserve).min(dim=1)
    single = torch.stack(
        [
            part.quantile(0.9) if len(part := nearest.values[nearest.indices == place]) > 1 else nearest.values.median()
            for place in range(len(link.reserve))
        ]
    )
    radii = {"both": both, "each": single, "one": single.mean().expand_as(single)}[radius]
    far = coverage.outside(clustering.squared_distances(link.candidates, link.reserve).double(), radii.double())
    near = clustering.squared_distances(link.candidates, link.candidates)
    return torch.sigmoid(SHARPNESS * (coverage.blurred(far, near, like) - math.log(edge)))


def classifier(link: Link) -> Tensor:
    """Logistic regression between candidates and reserve, with a ridge; its odds to the fourth power."""
    both = torch.cat([link.reserve, link.candidates])
    rows = (both - both.mean(0)) / (both.std(0) + 1e-3) / math.sqrt(both.shape[1])
    size = len(link.reserve)
    wanted = torch.cat([torch.zeros(size), torch.ones(len(link.candidates))])
    weight = torch.where(wanted == 0, 1 / size, 1 / len(link.candidates))
    slope, level = torch.zeros(rows.shape[1], requires_grad=True), torch.zeros(1, requires_grad=True)
    solver = torch.optim.LBFGS([slope, level], max_iter=40)

    def loss() -> Tensor:
        solver.zero_grad()
        each = functional.binary_cross_entropy_with_logits(rows @ slope + level, wanted, reduction="none")
        total = (weight * each).sum() + 1e-3 * slope.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    solver.step(loss)  # type: ignore[no-untyped-call]
    return torch.sigmoid(4 * (rows[size:] @ slope + level)).detach()


RULES: dict[str, tuple[str, int, Rule]] = {
    "uniform": ("pixels", 10, lambda link: torch.ones(len(link.candidates))),
    **{f"balls, reserve of {size}": ("pixels", size, balls) for size in SIZES},
    "balls, each candidate alone": ("pixels", 10, lambda link: balls(link, like=1)),
    "the same, edge 1.5": ("pixels", 10, lambda link: balls(link, like=1, edge=1.5)),
    "balls, a radius for each point": ("pixels", 10, lambda link: balls(link, radius="each")),
    "balls, one radius for all": ("pixels", 10, lambda link: balls(link, radius="one")),
    **{f"balls, untrained {space}": (space, 10, balls) for space in ("block1", "features", "embedding")},
    "a classifier": ("pixels", 10, classifier),
    "a classifier, untrained embedding": ("embedding", 10, classifier),
}


def spaces(scene: World) -> dict[str, list[Tensor]]:
    """The points of every device, in every space."""
    encoder, images = scene.setting.encoder, scene.dataset.train_images
    parts = [images[part] for part in scene.parts]
    return {
        "pixels": [part.flatten(1).float() / 255 for part in parts],
        **{
            stage: [encoder.activations(encoder.initial, part, stage).flatten(1) for part in parts]
            for stage in ("block1", "features", "embedding")
        },
    }


def links(scene: World, seed: int) -> Iterator[dict[str, tuple[float, float]]]:
    """For every link, held and reach of every rule."""
    stream = torch.Generator().manual_seed(seed)
    found, labels = spaces(scene), scene.dataset.train_labels
    assert labels is not None
    reserves = {
        size: [importance.reserve_by_kmeans(own, torch.rand(size, generator=stream)) for own in found["pixels"]]
        for size in SIZES
    }
    for sender, receiver in scene.graph.links:
        drawn = torch.randperm(len(found["pixels"][sender]), generator=stream)[:CANDIDATES]
        held = torch.isin(labels[scene.parts[sender][drawn]], labels[scene.parts[receiver]])
        if bool(held.all()):
            continue
        measured = {}
        for name, (space, size, rule) in RULES.items():
            own = found[space][receiver]
            law = rule(Link(found[space][sender][drawn], own[reserves[size][receiver]], own)).double() + 1e-9
            law = law / law.sum()
            new = law[~held] / law[~held].sum()
            measured[name] = float(law[held].sum()), float((-(new * new.log()).sum()).exp() / len(new))
        yield measured


def main() -> None:
    totals: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for setting, changes in SETTINGS.items():
        for seed in SEEDS:
            config = configs.load("usps", ["data.validation=0.1", f"seed={seed}", *changes])
            for measured in links(world.build(config), seed):
                for name, pair in measured.items():
                    totals.setdefault((name, setting), []).append(pair)
    print("| rule | " + " | ".join(f"{setting}: held | reach" for setting in SETTINGS) + " |")
    print("|" + "---|" * (1 + 2 * len(SETTINGS)))
    for name in RULES:
        cells = [
            f"{100 * sum(pair[place] for pair in some) / len(some):.0f}"
            for setting in SETTINGS
            for some in [totals[name, setting]]
            for place in (0, 1)
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
