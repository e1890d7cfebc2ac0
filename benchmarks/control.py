"""Controls of the rule `cover`: does it matter what it is scored against, and which candidate gets which weight?

    python benchmarks/control.py --seeds 120,121,122

USPS with 80 % common data (docs/cover.md), explicit mode, validation images, seeds on which nothing is reported.
*Another*: candidates are scored against the reserve of another neighbour. *Dealt*: the rule's weights are dealt to the
candidates at random, so that it draws as narrowly as before, and knows nothing.
"""

import argparse
from dataclasses import replace
from statistics import mean

import cfcl
from cfcl import config as configs
from cfcl.exchange import policies

SETTING = ("data.validation=0.1", "partition.kind=common", "partition.points_per_device=360")
WAYS = {
    "uniform": ("exchange.method=uniform",),
    "cover": ("exchange.method=cover",),
    "another": ("exchange.method=cover", "exchange.against=another"),
    "dealt": ("exchange.method=dealt",),
}


def choose_dealt(pull: policies.Pull) -> policies.Choice:
    """As `cover`, of candidates in another order than they are."""
    points = pull.candidates.points
    assert points is not None
    order = pull.uniforms("dealt", points.shape[1]).argsort(dim=1)
    moved = points.gather(1, order[..., None].expand_as(points))
    return policies.choose_cover(replace(pull, candidates=replace(pull.candidates, points=moved)))


def measure(way: str, seed: int) -> tuple[float, float]:
    """Accuracy with ten labels per class (mean of the last fifth), and the share of items of held labels."""
    result = cfcl.run(configs.load("usps", [*SETTING, *WAYS[way], f"seed={seed}"]), workers=1)
    rows = [row for row in result.evaluations if row.step > 0.8 * result.config.train.steps]
    held = [row["held_labels"] for row in result.of("pull")]
    return mean(row.few["10"] for row in rows if row.few), mean(held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="120,121,122")
    seeds = [int(word) for word in parser.parse_args().seeds.split(",")]
    policies.register("dealt", replace(policies.POLICIES["cover"], choose=choose_dealt))
    for way in WAYS:
        for seed in seeds:
            accuracy, held = measure(way, seed)
            print(f"{way}, seed {seed}: {100 * accuracy:.1f} %, {100 * held:.0f} % of what is sent is held", flush=True)


if __name__ == "__main__":
    main()
