"""How far an encoder lies above what one would use instead, image by image.

    python benchmarks/against.py digits                      # uniform exchange of datapoints, all seeds of the table
    python benchmarks/against.py fashion-mnist --seeds 191,192
    python benchmarks/against.py svhn --row fedavg

Both sides are judged on the same test images and the same draws of labels, so differences are paired. An interval
counts the spread over seeds, as in all tables, and that over images. The encoder is the last one of a run of
`tables.py`, which keeps it in `runs/encoders`; where it is not there, the run is made again. What comes out goes to
`docs/results/encoder/paired.csv`, from where `tables.py --draw` takes it.
"""

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from functools import partial

import tables
import torch
from tables import SETS, TABLES
from tables_drawn import OURS, reach
from torch import Tensor

import cfcl
from cfcl import config as configs
from cfcl.sim import allocator, baselines, evaluation, world
from cfcl.use import TrainedEncoder

LABELS = ("all", "10")
SPACES = ("embedding", "features")
STAGES = {"fashion-mnist": ("block2",)}
"""Further stages of trained encoders, by set: on validation images more was to be had there (docs/experiments.md)."""


def encoder_of(config: cfcl.Config) -> TrainedEncoder:
    """The last encoder of a run."""
    file = tables.ENCODERS / f"{config.digest}.safetensors"
    if not file.exists():
        tables.keep(cfcl.run(config, workers=1, out=tables.UNDER_WAY, plotted=False), config)
    return cfcl.load_encoder(file)


def sides(config: cfcl.Config, stages: Sequence[str] = ()) -> dict[str, Mapping[str, Tensor]]:
    """By space, stage or what one would use instead, and labels per class, [draws, images]: what a probe gets right."""
    encoder, dataset = encoder_of(config), world.data_of(config)
    judged = configs.override(config, ["evaluation.labels_per_class=[10]"])  # more would only take more time
    views: dict[str, baselines.View] = {
        "embedding": lambda some: torch.as_tensor(encoder.embed(some)),
        "features": lambda some: torch.as_tensor(encoder.features(some)),
        **{stage: partial(encoder.activations, stage=stage) for stage in stages},
        **dict(baselines.views(judged, dataset)),
    }
    found: dict[str, Mapping[str, Tensor]] = {}
    with world.single_thread():
        for name, view in views.items():
            data, _ = baselines.seen(judged, dataset, view)
            found[name] = baselines.hits(judged, dataset, evaluation.standardised(data))
    return found


def gain(ours: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, float]:
    """Mean difference in points and half of its 95 % interval, from one [draws, images] of hits for each seed.

    Seeds draw labels and weights anew, so Student's law for them counts both; all of them share the images.
    """
    pairs = zip(ours, other, strict=True)
    found = 100 * torch.stack([(one.double() - two.double()).mean(dim=0) for one, two in pairs])
    images = 1.96 * float(found.mean(dim=0).std()) / math.sqrt(found.shape[1])
    return float(found.mean()), math.hypot(reach(found.mean(dim=1).tolist()), images)


Line = tuple[str, str, str, int, float, float]
"""Space or stage, labels per class, what it is compared with, seeds, mean difference in points, half its interval."""


def compare(found: Sequence[Mapping[str, Mapping[str, Tensor]]], spaces: Sequence[str]) -> list[Line]:
    """These spaces and stages against all else, from the sides of each seed."""
    return [
        (
            space,
            labels,
            other,
            len(found),
            *gain([side[space][labels] for side in found], [side[other][labels] for side in found]),
        )
        for space in spaces
        for labels in LABELS
        for other in found[0]
        if other not in spaces
    ]


def write(name: str, row: str, lines: Sequence[Line]) -> None:
    """Put `lines` in the place of those that the file has for this row."""
    others = [line for line in tables.read_paired() if (line["set"], line["row"]) != (name, row)]
    with tables.PAIRED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(tables.PAIRED_FIELDS)
        writer.writerows(line.values() for line in others)
        writer.writerows((name, row, *keys, f"{mean:.4f}", f"{half:.4f}") for *keys, mean, half in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(SETS))
    parser.add_argument("--row", default=OURS)
    parser.add_argument("--seeds", default="", help="with commas between; default: all of the table")
    options = parser.parse_args()
    rows, seeds = TABLES[options.name]
    row = next((row for row in rows if row.name == options.row), None)
    if row is None:
        parser.error(f"--row {options.row}: choose one of {', '.join(row.name for row in rows)}")
    allocator.keep_memory()
    stages = STAGES.get(options.name, ())
    found = []
    for seed in [int(word) for word in options.seeds.split(",") if word] or seeds:
        found.append(sides(row.config(seed), stages))
        print(f"seed {seed} done", flush=True)
    lines = compare(found, (*SPACES, *stages))
    for space, labels, other, _, mean, half in lines:
        print(f"{space}, {labels} labels, over {other}: {mean:+.1f} ± {half:.1f}")
    write(options.name, options.row, lines)


if __name__ == "__main__":
    main()
