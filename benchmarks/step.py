"""What a device's update and an exchange cost, as ratios to plain code run side by side on one thread.

python benchmarks/step.py
"""

import numpy as np
import torch
from sklearn.cluster import KMeans
from timing import alternate
from torch.nn import functional

from cfcl import config, device
from cfcl.core.clustering import kmeans
from cfcl.models.networks import SmallCnn
from cfcl.sim.simulation import Simulation


def update_against_bare_arithmetic() -> None:
    """A device's whole update against forward, backward and Adam alone on a ready batch."""
    simulation = Simulation(config.load("digits"))
    setting, state = simulation.world.setting, simulation.run.devices[0]
    module = SmallCnn((1, 8, 8), 16, torch.Generator())
    optimiser = torch.optim.Adam(module.parameters())
    batch = torch.rand(96, 1, 8, 8)

    def ours() -> None:
        current = state
        for step in range(20):
            current, _ = device.local_step(setting, current, step)

    def bare() -> None:
        for _ in range(20):
            anchor, positive, negative = functional.normalize(module(batch), dim=-1).chunk(3)
            near, far = (anchor - positive).square().sum(-1), (anchor - negative).square().sum(-1)
            optimiser.zero_grad()
            torch.autograd.backward((near - far + 0.5).clamp_min(0).mean())
            optimiser.step()

    one, two = alternate(ours, bare)
    print(
        f"update (sampling, augmentation, report included): {one / 20 * 1e3:.2f} ms, {one / two:.2f} × bare arithmetic"
    )


def clustering_against_scikit_learn() -> None:
    """Seventy links' K-means at once against scikit-learn's, one after another."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(70, 120, 16, generator=generator)
    uniforms = torch.rand(70, 20, generator=generator)
    arrays = [np.asarray(problem) for problem in points]

    def ours() -> None:
        kmeans(points, 20, uniforms)

    def theirs() -> None:
        for problem in arrays:
            KMeans(20, n_init=1, algorithm="lloyd", random_state=0).fit(problem)

    one, two = alternate(ours, theirs, rounds=5)
    print(f"70 K-means problems: {one * 1e3:.0f} ms, {one / two:.2f} × scikit-learn one by one")


if __name__ == "__main__":
    torch.set_num_threads(1)
    update_against_bare_arithmetic()
    clustering_against_scikit_learn()
