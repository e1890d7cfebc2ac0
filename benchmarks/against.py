"""How far an embedding lies above what one would use instead, image by image.

    python benchmarks/against.py digits                       # uniform exchange of datapoints, seeds 190 to 194
    python benchmarks/against.py usps --method cfcl-explicit --seeds 190 191 192

Both sides are judged on the same test images and the same draws of labels, so that differences are paired: the interval
is a bootstrap over seeds, test images and draws. The encoder is the last one of a run.
"""

import argparse
from collections.abc import Mapping

import torch
from torch import Tensor

import cfcl
from cfcl import config as configs
from cfcl.sim import allocator, baselines, evaluation, world

ROUNDS = 4000
LABELS = ("all", "10")


def sides(config: cfcl.Config) -> dict[str, Mapping[str, Tensor]]:
    """By space and by labels per class, [draws, images]: which test images a probe gets right."""
    result = cfcl.run(config, workers=1)
    dataset = world.data_of(config)
    views: dict[str, baselines.View] = {
        "embedding": lambda some: torch.as_tensor(result.encoder.embed(some)),
        "features": lambda some: torch.as_tensor(result.encoder.features(some)),
        **dict(baselines.views(config, dataset)),
    }
    return {
        name: baselines.hits(config, dataset, evaluation.standardised(baselines.seen(config, dataset, view)[0]))
        for name, view in views.items()
    }


def interval(differences: list[Tensor]) -> tuple[float, float, float]:
    """Mean in points, and the ends of its 95 % interval; one tensor [draws, images] a seed."""
    stream = torch.Generator().manual_seed(0)
    seeds, (draws, images) = len(differences), differences[0].shape
    found = []
    for _ in range(ROUNDS):
        weights = torch.randint(images, (images,), generator=stream).bincount(minlength=images).double() / images
        some = [differences[place] for place in torch.randint(seeds, (seeds,), generator=stream).tolist()]
        taken = [part[torch.randint(draws, (draws,), generator=stream)] @ weights for part in some]
        found.append(float(torch.cat(taken).mean()))
    low, high = torch.tensor(found).quantile(torch.tensor([0.025, 0.975])).tolist()
    mean = float(torch.stack(differences).mean())
    return 100 * mean, 100 * low, 100 * high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--method", default="uniform-explicit")
    parser.add_argument("--seeds", type=int, nargs="+", default=[190, 191, 192, 193, 194])
    options = parser.parse_args()
    allocator.keep_memory()
    found = []
    for seed in options.seeds:
        found.append(sides(configs.with_method(configs.load(options.preset, [f"seed={seed}"]), options.method)))
        print(f"seed {seed} done", flush=True)
    for mine in ("embedding", "features"):
        for labels in LABELS:
            level = 100 * sum(float(side[mine][labels].double().mean()) for side in found) / len(found)
            print(f"{mine}, {labels} labels: {level:.1f} %")
            for other in found[0]:
                if other not in ("embedding", "features"):
                    pairs = [side[mine][labels].double() - side[other][labels].double() for side in found]
                    print("  over {}: {:+.1f} ({:+.1f} to {:+.1f})".format(other, *interval(pairs)))


if __name__ == "__main__":
    main()
