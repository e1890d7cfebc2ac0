"""How much `defence.range` refuses, of honest items and of poisoned ones, by mode and slack: how its value was chosen.

    python benchmarks/ranges.py            # USPS, seeds 120 and 121, without the images kept for validation
    python benchmarks/ranges.py digits

Every receiver compares a hundred items of each neighbour with its own candidates, under the untrained encoder.
"""

import statistics
import sys

from torch import Tensor

from cfcl import config as configs
from cfcl import rng
from cfcl.core import defence
from cfcl.sim import attacks, world

SEEDS = (120, 121)
SLACKS = (0.0, 0.25, 0.5, 1.0)
LAYERS = ("image", "block1", "block2", "features", "embedding")
KINDS = ("honest", "items-noise", "items-negative", "items-constant")


def shares(preset: str, layer: str, seed: int) -> dict[tuple[str, float], list[float]]:
    """The share that is refused on each link, by kind of item and slack."""
    scene = world.build(configs.load(preset, [f"seed={seed}", "data.validation=0.1"]))
    encoder, images = scene.setting.encoder, scene.dataset.train_images

    def some(number: int, size: int, *names: str | int) -> Tensor:
        """Images of device `number`."""
        part = scene.parts[number]
        return images[part[rng.places(len(part), size, seed, "ranges", number, *names)]]

    def traits(found: Tensor) -> Tensor:
        return defence.traits(found if layer == "image" else encoder.activations(encoder.initial, found, layer))

    found: dict[tuple[str, float], list[float]] = {}
    for transmitter, receiver in scene.graph.links:
        own = traits(some(receiver, scene.config.exchange.num_candidates, "own"))
        theirs = some(transmitter, 100, "sent", receiver)
        for kind in KINDS:
            stream = rng.stream(seed, "ranges", kind, transmitter, receiver)
            sent = traits(theirs if kind == "honest" else attacks.spoilt(theirs, kind, stream))
            for slack in SLACKS:
                refused = ~defence.within(sent, own, slack=slack)
                found.setdefault((kind, slack), []).append(float(refused.double().mean()))
    return found


def main() -> None:
    preset = sys.argv[1] if len(sys.argv) > 1 else "usps"
    print("| layer | slack | " + " | ".join(KINDS) + " |\n|" + "---|" * (2 + len(KINDS)))
    for layer in LAYERS:
        parts = [shares(preset, layer, seed) for seed in SEEDS]
        for slack in SLACKS:
            means = [statistics.fmean(value for part in parts for value in part[kind, slack]) for kind in KINDS]
            print(f"| {layer} | {slack:g} | " + " | ".join(f"{100 * mean:.1f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main()
