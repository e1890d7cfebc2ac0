"""The tables and figures of docs/results/encoder: what an encoder is worth, by objective, by layer and by rival.

    python benchmarks/tables.py                    # what is missing of all tables, two runs at a time, then draw
    python benchmarks/tables.py dial objectives    # of these
    python benchmarks/tables.py svhn --rows fedavg,uniform-explicit
    python benchmarks/tables.py --plan             # how many runs each table lacks, and no run
    python benchmarks/tables.py --draw             # draw what is there

Every run that ends is written down at once, and one that does not end is gone on with from its newest checkpoint, so
the command may be stopped, and given again. Datasets are searched where `cfcl` searches them.
"""

import argparse
import csv
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfcl import config as configs
from cfcl.config import Config

HERE = Path(__file__).parents[1] / "docs" / "results" / "encoder"
RUNS = HERE / "runs.csv"
UNDER_WAY = Path(__file__).parents[1] / "runs" / "tables"
"""Folders of runs that have not ended."""
FIELDS = (
    "digest", "table", "row", "method", "seed", "steps", "seconds", "item_bytes", "bytes_d2d", "bytes_up",
    "evaluations",
)  # fmt: skip
USPS = (190, 191, 192, 193, 194)
LARGE = (190, 191, 192)
"""Seeds on which nothing was chosen."""
OBJECTIVES = ("triplet", "infonce", "dcl", "vicreg", "byol")
LAYER = "block2"
"""The one between the ends."""
TRIPLET = ("train.margin=1.0",)


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


def _objectives(preset: str, objectives: Iterable[str], modes: Iterable[str]) -> list[Row]:
    found = []
    for objective in objectives:
        more = (f"train.objective={objective}", *(TRIPLET if objective == "triplet" else ()))
        found += _methods(preset, ("fedavg",), *more, named=f"{objective}, ")
        for mode in modes:
            size = "exchange.num_pulled=10" if mode == "activations" else "exchange.num_pulled=2"
            names = [f"{policy}-{mode}" for policy in ("uniform", "cfcl")]
            found += _methods(preset, names, *more, size, f"exchange.layer={LAYER}", named=f"{objective}, ")
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
    "rivals": (_rivals(), LARGE),
    "fashion-mnist": (_explicit("fashion-mnist", 2000, 20), LARGE),
    "svhn": (_explicit("svhn", 3000, 30), LARGE),
}


def missing(names: Iterable[str], known: Mapping[str, Any], only: Sequence[str] = ()) -> Iterator[tuple[str, Row, int]]:
    """The runs that tables lack, seed by seed; of all rows, or of `only` some."""
    seen = set(known)
    for name in names:
        rows, seeds = TABLES[name]
        for seed in seeds:
            for row in rows:
                digest = row.config(seed).digest
                if digest not in seen and (not only or row.name in only):
                    seen.add(digest)
                    yield name, row, seed


def read() -> dict[str, dict[str, Any]]:
    """The finished runs, by digest."""
    if not RUNS.exists():
        return {}
    with RUNS.open(encoding="utf-8", newline="") as file:
        return {row["digest"]: {**row, "evaluations": json.loads(row["evaluations"])} for row in csv.DictReader(file)}


def one(table: str, name: str, seed: int) -> dict[str, Any]:
    """Run one, in this process."""
    import cfcl
    from cfcl.exchange import cost
    from cfcl.sim import world

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
    assert result.folder is not None
    shutil.rmtree(result.folder)
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


def run(names: Sequence[str], jobs: int, only: Sequence[str] = ()) -> None:
    """Do what is missing, `jobs` runs at a time."""
    todo = list(missing(names, read(), only))
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
        figures = Figures.of(json.loads(found["evaluations"]))
        print(f"{table}: {row.name}, seed {seed}: {figures.shown}, {found['seconds']} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(do, todo))


@dataclass(frozen=True)
class Figures:
    """What one run came to, in percent: the mean of the last fifth of its evaluations, with all labels and with ten."""

    embedding: tuple[float, float]
    features: tuple[float, float]
    untrained: tuple[float, float]
    untrained_features: tuple[float, float]
    fall: float
    """Points by which ten-label accuracy of the embedding ends below the mean of its best fifth."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> "Figures":
        pairs = [((row[1], row[2]["10"]), (row[3], row[4]["10"])) for row in rows]
        size = max(1, len(rows) // 5)
        best = sorted(pair[0][1] for pair in pairs)[-size:]

        def end(space: int) -> tuple[float, float]:
            last = [pair[space] for pair in pairs[-size:]]
            return 100 * statistics.fmean(all_ for all_, _ in last), 100 * statistics.fmean(ten for _, ten in last)

        return cls(
            embedding=end(0),
            features=end(1),
            untrained=(100 * pairs[0][0][0], 100 * pairs[0][0][1]),
            untrained_features=(100 * pairs[0][1][0], 100 * pairs[0][1][1]),
            fall=100 * statistics.fmean(best) - end(0)[1],
        )

    @property
    def shown(self) -> str:
        """In short."""
        (one, ten), (also, few) = self.embedding, self.features
        return f"{one:.1f} / {ten:.1f}, features {also:.1f} / {few:.1f}"


def interval(values: Sequence[float]) -> str:
    """Mean and half of the 95 % interval of the mean over seeds."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.1f}"
    quantile = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}[len(values)]
    return f"{mean:.1f} ± {quantile * statistics.stdev(values) / math.sqrt(len(values)):.1f}"


def table(name: str, known: Mapping[str, Any]) -> str:
    """One table as Markdown."""
    rows, seeds = TABLES[name]
    head = ("", "embedding, all labels", "ten per class", "over FedAvg", "features, all labels", "ten per class",
            "falls by", "bytes per item", "seeds")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    reference: dict[int, float] = {}
    for row in rows:
        found = {seed: known[digest] for seed in seeds if (digest := row.config(seed).digest) in known}
        if not found:
            continue
        figures = {seed: Figures.of(run["evaluations"]) for seed, run in found.items()}
        ten = {seed: one.embedding[1] for seed, one in figures.items()}
        if row.method == "fedavg":
            reference = ten
        both = [ten[seed] - reference[seed] for seed in ten if seed in reference]
        moves = row.method not in ("fedavg", "centralised")
        cells = (
            row.name,
            interval([one.embedding[0] for one in figures.values()]),
            interval(list(ten.values())),
            interval(both) if both and moves else "",
            interval([one.features[0] for one in figures.values()]),
            interval([one.features[1] for one in figures.values()]),
            f"{statistics.fmean(one.fall for one in figures.values()):.1f}",
            f"{int(next(iter(found.values()))['item_bytes']):,}" if moves else "",
            str(len(found)),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(names: Iterable[str]) -> None:
    """Write the tables as Markdown, and the figure of the dial."""
    known = read()
    parts = [
        "# What an encoder is worth",
        "Test split. Means over seeds with the half-width of their 95 % interval; each run counts by the mean of the\n"
        "last fifth of its evaluations. *Over FedAvg*: paired differences of ten-label accuracy. *Falls by*: points\n"
        "from the mean of the best fifth of a run's evaluations to that of its last fifth. Records: `runs.csv`. By\n"
        "`python benchmarks/tables.py`. The last column counts the seeds that are done: 190 to 194 in the end,\n"
        "190 to 192 for rivals, Fashion-MNIST and SVHN.",
    ]
    for name in names:
        if any(row.config(seed).digest in known for row in TABLES[name][0] for seed in TABLES[name][1]):
            parts += [f"## {name}", table(name, known)]
    (HERE / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    _draw_dial(known)


def _draw_dial(known: Mapping[str, Any]) -> None:
    """Ten-label accuracy over bytes per item, from nothing to the image."""
    from cfcl.runs import style

    rows, seeds = TABLES["dial"]
    points: dict[str, tuple[float, list[float]]] = {}
    for row in rows:
        found = [known[digest] for seed in seeds if (digest := row.config(seed).digest) in known]
        if found:
            values = [Figures.of(run["evaluations"]).embedding[1] for run in found]
            points[row.name] = float(found[0]["item_bytes"]), values
    if "fedavg" not in points or len(points) < 3:
        return
    from matplotlib.figure import Figure

    with style.settings():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        _, nothing = points.pop("fedavg")
        axes.axhline(statistics.fmean(nothing), color=style.GREY, linewidth=1.0)
        here = ("axes fraction", "data")
        axes.annotate("FedAvg", (0.99, statistics.fmean(nothing)), xycoords=here, ha="right", va="bottom")
        for name, (size, values) in points.items():
            eight, colour = name.endswith("-8bit"), style.BLUE
            if name.endswith("plicit"):
                colour = style.VERMILLION
            mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
            axes.errorbar(
                [size], [mean], yerr=[spread], color=colour, marker="v" if eight else "o", markersize=5, capsize=2,
                markerfacecolor="white" if eight else colour,
            )  # fmt: skip
            label = {"uniform-explicit": "image", "uniform-implicit": "embedding"}.get(
                name, name.removeprefix("uniform-").replace("-8bit", ", 8 bits")
            )
            axes.annotate(label, (size, mean), xytext=(6, 3), textcoords="offset points", fontsize=8)
        axes.set(xscale="log", xlabel="bytes per item", ylabel="accuracy with ten labels per class (%)")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.savefig(HERE / "dial.png", dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--rows", default="", help="only these rows, with commas between; their names are in the tables"
    )
    parser.add_argument("--plan", action="store_true")
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
    if not options.draw:
        run(names, options.jobs, [row.strip() for row in options.rows.split(",") if row.strip()])
    draw(list(TABLES))


if __name__ == "__main__":
    main()
