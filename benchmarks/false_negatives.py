"""What false negatives cost: InfoNCE as it is, and without negatives of the anchor's own label.

    python benchmarks/false_negatives.py --seeds 120,121,122

USPS, three labels per device, so that a third of a local batch has the anchor's label; with exchanged datapoints fewer
have. Validation images, seeds on which nothing is reported. Leaving them out takes labels, which nobody has who
trains: it is a diagnosis, and no method.
"""

import argparse
from collections.abc import Callable
from statistics import mean
from typing import Any

import torch
from torch import Tensor

import cfcl
from cfcl import config as configs
from cfcl.core import losses
from cfcl.data import datasets
from cfcl.device import training
from cfcl.device.batching import Batch
from cfcl.device.state import DeviceState, Setting
from cfcl.sim import allocator


class Labels:
    """The label of every image, found by its pixels; and those of the batch that a device is working on."""

    def __init__(self, config: cfcl.Config) -> None:
        found = datasets.load(config.data)
        assert found.train_labels is not None
        names = (image.numpy().tobytes() for image in found.train_images)
        self._of = dict(zip(names, found.train_labels.tolist(), strict=True))
        self.batch = torch.zeros(0)
        self.shares: list[float] = []
        """Of each batch, how many of the other points have the anchor's label."""

    def see(self, state: DeviceState, batch: Batch) -> None:
        """A device begins with a batch."""
        own = len(state.points)
        images = [(state.points[p] if p < own else state.pulled[p - own]) for p in batch.positions]
        self.batch = torch.tensor([self._of[image.cpu().numpy().tobytes()] for image in images])
        self.shares.append((float(self.alike.double().mean()) * len(images) - 1) / (len(images) - 1))

    @property
    def alike(self) -> Tensor:
        """Which points of the batch have which others' label."""
        return self.batch[:, None] == self.batch


def watch(labels: Labels, *, leave_out: bool) -> Callable[[], None]:
    """Have devices tell `labels` of their batches, and negatives of the own label left out; says how to undo it."""
    gradient, similarities = vars(training)["_gradient"], losses.view_similarities

    def watched(setting: Setting, state: DeviceState, batch: Batch, weight: float) -> Any:
        labels.see(state, batch)
        return gradient(setting, state, batch, weight)

    def masked(views: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
        positive, negatives = similarities(views, temperature=temperature)
        return positive, negatives.masked_fill(labels.alike.repeat(2, 2).to(views.device), -torch.inf)

    def undo() -> None:
        vars(training)["_gradient"], vars(losses)["view_similarities"] = gradient, similarities

    vars(training)["_gradient"] = watched
    if leave_out:
        vars(losses)["view_similarities"] = masked
    return undo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="120,121,122")
    parser.add_argument("--set", action="append", default=[], help="a setting for all runs")
    options = parser.parse_args()
    allocator.keep_memory()
    for seed in options.seeds.split(","):
        for method in ("fedavg", "uniform-explicit"):
            for leave_out in (False, True):
                settings = ["data.validation=0.1", *options.set, f"seed={seed}"]
                config = configs.with_method(configs.load("usps", settings), method)
                labels = Labels(config)
                undo = watch(labels, leave_out=leave_out)
                try:
                    rows = cfcl.run(config, workers=1).evaluations
                finally:
                    undo()
                last = [row for row in rows if row.step > 0.8 * config.train.steps]
                best = max(row.few["10"] for row in rows if row.few)
                ends = [
                    100 * mean(row.probe for row in last if row.probe),
                    100 * mean(row.few["10"] for row in last if row.few),
                ]
                features = 100 * mean(row.features_few["10"] for row in last if row.features_few)
                print(
                    f"{method}, {'without' if leave_out else 'with'} them, seed {seed}: {ends[0]:.1f} / {ends[1]:.1f}, "
                    f"best {100 * best:.1f}, features {features:.1f}; {100 * mean(labels.shares):.0f} % of negatives",
                    flush=True,
                )


if __name__ == "__main__":
    main()
