"""What checkpoints cost: runs with them and without, one after the other, in turns.

    python benchmarks/checkpoints.py                       # Fashion-MNIST, 400 updates, five pairs
    python benchmarks/checkpoints.py digits --pairs 9

Prints the time of each pair, and the ratio of the medians. Leave the machine alone meanwhile.
"""

import argparse
import statistics
import tempfile
import time

import cfcl
from cfcl import config as configs
from cfcl.config import Config


def seconds(config: Config, every: int) -> float:
    """How long a run takes that is saved `every` so many updates; 0 is never."""
    with tempfile.TemporaryDirectory() as place:
        begun = time.perf_counter()
        cfcl.run(configs.override(config, [f"checkpoint.every={every}"]), out=place, workers=2)
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="fashion-mnist")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    config = configs.load(options.preset, [f"train.steps={options.steps}", "evaluation.every=1000"])
    every, found = config.checkpoint.every, list[tuple[float, float]]()
    for pair in range(options.pairs):
        order = (every, 0) if pair % 2 else (0, every)
        times = {some: seconds(config, some) for some in order}
        found.append((times[every], times[0]))
        print(f"every {every} updates {times[every]:.2f} s, never {times[0]:.2f} s", flush=True)
    ratios = [one / other for one, other in found]
    print(f"ratio of the pairs: median {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}")


if __name__ == "__main__":
    main()
