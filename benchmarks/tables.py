"""The tables and figures of docs/results/encoder: what an encoder is worth, by objective, by layer and by rival.

    python benchmarks/tables.py                    # what is missing of all tables, two runs at a time, then draw
    python benchmarks/tables.py dial objectives    # of these
    python benchmarks/tables.py svhn --rows fedavg,uniform-explicit --seeds 190
    python benchmarks/tables.py --plan             # how many runs each table lacks, and no run
    python benchmarks/tables.py --yardsticks       # what one would use instead, for every set and seed that lacks it
    python benchmarks/tables.py --draw             # draw what is there

Every run that ends is written down at once, and one that does not end is gone on with from its newest checkpoint, so
the command may be stopped, and given again. Datasets are searched where `cfcl` searches them.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cfcl
from cfcl import config as configs
from cfcl.config import Config

HERE = Path(__file__).parents[1] / "docs" / "results" / "encoder"
RUNS = HERE / "runs.csv"
YARDSTICKS = HERE / "yardsticks.csv"
UNDER_WAY = Path(__file__).parents[1] / "runs" / "tables"
"""Folders of runs that have not ended."""
ENCODERS = UNDER_WAY.parent / "encoders"
"""The last encoder of every run, by digest: what `against.py` compares image by image. Less than a megabyte each."""
FIELDS = (
    "digest", "table", "row", "method", "seed", "steps", "seconds", "item_bytes", "bytes_d2d", "bytes_up",
    "evaluations",
)  # fmt: skip
PAIRED = HERE / "paired.csv"
PAIRED_FIELDS = ("set", "row", "space", "labels", "other", "seeds", "gain", "reach")
"""Of what `against.py` finds."""
USPS = (190, 191, 192, 193, 194)
LARGE = (190, 191, 192)
"""Seeds on which nothing was chosen."""
OBJECTIVES = ("triplet", "infonce", "dcl", "vicreg", "byol")
LAYER = "block2"
"""The one between the ends."""
TRIPLET = ("train.margin=1.0",)
NOISES = (0.1, 0.5)
"""Those of the audit."""
SHORT = 900
"""Updates where SVHN is run with several objectives: three tenths of the preset's."""


@dataclass(frozen=True)
class Row:
    """A line of a table: a way to train, run with every seed."""

    name: str
    preset: str
    method: str
    overrides: tuple[str, ...] = ()

    def config(self, seed: int) -> Config:
        """One of its runs."""
        return configs.with_method(configs.load(self.preset, [*self.overrides, f"seed={seed}"]), self.method)


def _methods(preset: str, methods: Iterable[str], *overrides: str, named: str = "") -> list[Row]:
    return [Row(f"{named}{method}", preset, method, overrides) for method in methods]


def _dial() -> list[Row]:
    ends = _methods("usps", ("fedavg", "uniform-implicit", "uniform-explicit"), "exchange.num_pulled=2")
    layers = [
        Row(f"uniform-{layer}{'' if precision == 'float32' else '-8bit'}", "usps", "uniform-activations",
            ("exchange.num_pulled=10", f"exchange.layer={layer}", f"exchange.precision={precision}"))
        for precision in ("float32", "uint8")
        for layer in ("features", "block2", "block1")  # only averages stand between block3 and features
    ]  # fmt: skip
    return [*ends, *layers]


def _objectives(preset: str, objectives: Iterable[str], modes: Iterable[str], *overrides: str) -> list[Row]:
    found = []
    for objective in objectives:
        more = (f"train.objective={objective}", *(TRIPLET if objective == "triplet" else ()))
        if preset == "usps" and objective not in ("infonce", "byol"):  # those are runs of other tables, too
            more += ("evaluation.every=30", "evaluation.labels_per_class=[10]")
        more += overrides
        found += _methods(preset, ("fedavg",), *more, named=f"{objective}, ")
        for mode in modes:
            size = "exchange.num_pulled=10" if mode == "activations" else "exchange.num_pulled=2"
            names = [f"{policy}-{mode}" for policy in ("uniform", "cfcl")]
            layer = () if mode == "explicit" and preset != "usps" else (f"exchange.layer={LAYER}",)
            found += _methods(preset, names, *more, size, *layer, named=f"{objective}, ")
    return found


def _noised() -> list[Row]:
    """Embeddings with noise of a share of their length on every entry, under triplets and under the preset's loss."""
    found = []
    for objective in ("triplet", "infonce"):
        alone, plain, _ = _objectives("usps", (objective,), ("implicit",))
        found += [alone, plain]
        for noise in NOISES:
            blurred = (*plain.overrides, "privacy.clip=1.0", f"privacy.noise={noise}")
            found.append(replace(plain, name=f"{plain.name}, noise {noise}", overrides=blurred))
    return found


def _rivals() -> list[Row]:
    byol = ("train.objective=byol",)
    fedema = (*byol, "aggregation.adopt=fedema", "aggregation.target=local")
    methods = ("fedavg", "uniform-explicit", "cfcl-explicit")
    return [
        *_methods("usps", methods, named="InfoNCE, "),
        *_methods("usps", methods, *byol, named="FedBYOL, "),
        *_methods("usps", methods, *fedema, named="FedEMA, "),
    ]


def _explicit(preset: str, steps: int, every: int) -> list[Row]:
    """Datapoints exchanged or not, and one model on all data that makes as many updates as ten devices together."""
    whole = (f"train.steps={10 * steps}", f"evaluation.every={10 * every}")
    methods = ("fedavg", "uniform-explicit", "cfcl-explicit")
    return [*_methods(preset, methods), Row("centralised", preset, "centralised", whole)]


TABLES: dict[str, tuple[list[Row], Sequence[int]]] = {
    "usps": (_explicit("usps", 600, 6), USPS),
    "digits": (_explicit("digits", 600, 6), USPS),
    "dial": (_dial(), USPS),
    "objectives": (_objectives("usps", OBJECTIVES, ("explicit", "activations", "implicit")), USPS),
    "noise": (_noised(), USPS),
    "rivals": (_rivals(), LARGE),
    "fashion-mnist": (_explicit("fashion-mnist", 2000, 20), LARGE),
    "svhn": (_explicit("svhn", 3000, 30), LARGE),
    "svhn-objectives": (
        _objectives("svhn", ("triplet", "infonce"), ("explicit",), f"train.steps={SHORT}"),
        LARGE[:1],
    ),
}


SETS = {"usps": 2007, "digits": 359, "fashion-mnist": 10_000, "svhn": 26_032}
"""Tables of one set of images each, with the number of test images."""


def missing(
    names: Iterable[str], known: Mapping[str, Any], only: Sequence[str] = (), seeds: Sequence[int] = ()
) -> Iterator[tuple[str, Row, int]]:
    """The runs that tables lack, seed by seed; of all rows and seeds, or of `only` some rows and of these `seeds`."""
    seen = set(known)
    for name in names:
        rows, own = TABLES[name]
        for seed in own:
            for row in rows:
                digest = row.config(seed).digest
                if digest not in seen and (not only or row.name in only) and (not seeds or seed in seeds):
                    seen.add(digest)
                    yield name, row, seed


def read_runs() -> list[dict[str, str]]:
    """The finished runs, as they were written down."""
    return _rows(RUNS)


def read() -> dict[str, dict[str, Any]]:
    """The finished runs, by digest, and what shorter runs would have been."""
    rows = [{**row, "evaluations": json.loads(row["evaluations"])} for row in read_runs()]
    return {row["digest"]: row for row in [*rows, *_beginnings(rows)]}


def _beginnings(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What whole runs of SVHN had measured half way: shorter runs of methods that do not ask how long a run is."""
    for row in rows:
        if row["table"] == "svhn" and row["method"] in ("fedavg", "uniform-explicit"):
            short = Row("", "svhn", row["method"], (f"train.steps={SHORT}",)).config(int(row["seed"]))
            yield {**row, "digest": short.digest, "evaluations": [e for e in row["evaluations"] if e[0] <= SHORT]}


def one(table: str, name: str, seed: int) -> dict[str, Any]:
    """Run one, in this process."""
    from cfcl.exchange import cost
    from cfcl.sim import allocator, world

    allocator.keep_memory()

    row = next(row for row in TABLES[table][0] if row.name == name)
    config = row.config(seed)
    begun = time.perf_counter()
    result = cfcl.run(config, workers=1, out=UNDER_WAY, plotted=False)
    encoder = world.build(config).setting.encoder
    rows = [
        [row.step, row.probe, row.few, row.features_probe, row.features_few, row.effective_rank]
        for row in result.evaluations
    ]
    last = result.evaluations[-1]
    keep(result, config)
    return {
        "digest": config.digest,
        "table": table,
        "row": name,
        "method": config.method,
        "seed": seed,
        "steps": config.train.steps,
        "seconds": round(time.perf_counter() - begun, 1),
        "item_bytes": cost.item_size(config.exchange, encoder.image_shape, encoder.shapes),
        "bytes_d2d": last.bytes_d2d,
        "bytes_up": last.bytes_up,
        "evaluations": json.dumps(rows, separators=(",", ":")),
    }


def keep(result: "cfcl.Result", config: Config) -> None:
    """What stays of a run that has ended: its encoder, and no folder."""
    ENCODERS.mkdir(parents=True, exist_ok=True)
    result.encoder.save(ENCODERS / f"{config.digest}.safetensors")
    assert result.folder is not None
    shutil.rmtree(result.folder)


def read_yardsticks() -> list[dict[str, str]]:
    """What one would use instead, by set and seed."""
    return _rows(YARDSTICKS)


def read_paired() -> list[dict[str, str]]:
    """How far encoders lie above it, image by image, as far as `against.py` has been asked."""
    return _rows(PAIRED)


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def measure_yardsticks(names: Iterable[str]) -> None:
    """The yardsticks of those sets whose seeds lack them."""
    from cfcl.runs import baselines

    labels = ("1", "10", "100", "all")
    for name in names:
        rows, seeds = TABLES[name]
        if name not in SETS:
            continue
        for seed in set(seeds) - {int(row["seed"]) for row in read_yardsticks() if row["set"] == name}:
            found = baselines.measure(rows[0].config(seed))
            new = not YARDSTICKS.exists()
            with YARDSTICKS.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if new:
                    writer.writerow(("set", "seed", "name", "dim", *labels))
                writer.writerows(
                    (name, seed, item.name, item.dim, *(f"{item.accuracies[key].mean:.5f}" for key in labels))
                    for item in found
                )
            print(f"{name}, seed {seed}: {len(found)} yardsticks", flush=True)


def run(names: Sequence[str], jobs: int, only: Sequence[str], seeds: Sequence[int]) -> None:
    """Do what is missing, `jobs` runs at a time."""
    todo = list(missing(names, read(), only, seeds))
    print(f"{len(todo)} runs to do", flush=True)
    HERE.mkdir(parents=True, exist_ok=True)

    def do(job: tuple[str, Row, int]) -> None:
        table, row, seed = job
        words = [sys.executable, __file__, "--one", json.dumps([table, row.name, seed])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{table}: {row.name}, seed {seed} failed: {done.stderr.strip()[-300:]}", flush=True)
            return
        found = json.loads(done.stdout.splitlines()[-1])
        new = not RUNS.exists()
        with RUNS.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if new:
                writer.writeheader()
            writer.writerow(found)
        last = json.loads(found["evaluations"])[-1]
        ends = " / ".join(f"{100 * share:.1f}" for share in (last[1], last[2]["10"]))
        print(f"{table}: {row.name}, seed {seed}: ends at {ends}, {found['seconds']} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(do, todo))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--rows", default="", help="only these rows, with commas between; their names are in the tables"
    )
    parser.add_argument("--seeds", default="", help="only these seeds, with commas between")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--yardsticks", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*json.loads(options.one))))
        return
    names = options.names or list(TABLES)
    if options.plan:
        for name in names:
            lacking, whole = len(list(missing([name], read()))), len(TABLES[name][0]) * len(TABLES[name][1])
            print(f"{name}: {lacking} of {whole} runs missing")
        return
    if options.yardsticks:
        measure_yardsticks(names)
    elif not options.draw:
        rows = [row.strip() for row in options.rows.split(",") if row.strip()]
        run(names, options.jobs, rows, [int(seed) for seed in options.seeds.split(",") if seed.strip()])
    import tables_drawn

    tables_drawn.draw(list(TABLES))


if __name__ == "__main__":
    main()
