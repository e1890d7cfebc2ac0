"""Labels chosen by what they cover, against labels at random: the figure of docs/results/labels.

    python benchmarks/labelling.py            # train an encoder on digits and on USPS, ten draws each, then draw
    python benchmarks/labelling.py --draw     # draw what is there

A draw is 1,000 training images whose labels nobody knows. A rule names some of them, their labels are looked up, and a
linear probe on the features is tested on the test split. All rules of a draw see the same images.
"""

import argparse
import csv
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import cfcl
from cfcl import config as configs
from cfcl.core import metrics
from cfcl.data import datasets
from cfcl.sim.evaluation import FEW_RIDGE
from cfcl.use import TrainedEncoder, classifier
from cfcl.use.labels import Labels

HERE = Path(__file__).parents[1] / "docs" / "results" / "labels"
TABLE = HERE / "labels.csv"
SETS = ("digits", "usps")
SEED = 190
"""On which nothing was chosen."""
DRAWS = 10
POOL = 1000
NUMBERS = (10, 20, 30, 50, 70, 100, 150, 200)
RULES = ("chosen", "random", "random, as many of each class")
FIELDS = ("dataset", "draw", "rule", "labels", "accuracy", "confidence", "calibrated", "raw")


class Points(NamedTuple):
    """Vectors and their labels."""

    vectors: Tensor
    labels: Tensor


def order(rule: str, pool: Points, draw: int) -> list[int]:
    """The images in the order in which a rule has them labelled."""
    most, shuffled = max(NUMBERS), torch.randperm(POOL, generator=torch.Generator().manual_seed(draw)).tolist()
    if rule == "chosen":
        return classifier.next_to_label(pool.vectors, (), most)
    if rule == "random":
        return shuffled[:most]
    ranks: dict[int, int] = {}
    counted = []
    for place in shuffled:
        label = int(pool.labels[place])
        ranks[label] = ranks.get(label, 0) + 1
        counted.append((ranks[label], place))
    return [place for _, place in sorted(counted, key=lambda pair: pair[0])][:most]


def measure(name: str, encoder: TrainedEncoder) -> Iterator[dict[str, object]]:
    """Every draw, rule and number of labels on one dataset."""
    dataset = datasets.load(configs.load(name, []).data)
    assert dataset.train_labels is not None
    assert dataset.test_labels is not None
    test = Points(encoder.features(dataset.test_images), dataset.test_labels)
    for draw in range(DRAWS):
        some = torch.randperm(len(dataset.train_images), generator=torch.Generator().manual_seed(draw))[:POOL]
        pool = Points(encoder.features(dataset.train_images[some]), dataset.train_labels[some])
        moments = metrics.moments(pool.vectors)
        points, judged = (metrics.standardise(part.vectors, *moments).float() for part in (pool, test))
        for rule in RULES:
            chosen = order(rule, pool, draw)
            for number in NUMBERS:
                known = torch.tensor(chosen[:number])
                weights = metrics.few_label_weights(points[known], pool.labels[known], num_classes=10, ridge=FEW_RIDGE)
                logits = judged @ weights[:, :-1].mT + weights[:, -1]
                hits = (logits.argmax(dim=1) == test.labels).double()
                yield {
                    "dataset": name, "draw": draw, "rule": rule, "labels": number,
                    "accuracy": f"{float(hits.mean()):.4f}", **_trust(points, pool, known),
                }  # fmt: skip


def _trust(points: Tensor, pool: Points, known: Tensor) -> dict[str, str]:
    """Mean confidence in the images without a label, and how far it is from the truth, calibrated and raw."""
    counts = torch.bincount(pool.labels[known], minlength=10)
    if int(counts.min()) < 2:
        return {"confidence": "", "calibrated": "", "raw": ""}
    given = Labels(tuple(known.tolist()), tuple(pool.labels[known].tolist()), tuple("0123456789"))
    fitted = classifier.fit(points, given)
    rest = torch.ones(len(points), dtype=torch.bool)
    rest[known] = False
    raw = (fitted.probabilities.log() * fitted.temperature).softmax(dim=1)
    found = {"calibrated": error(fitted.probabilities[rest], pool.labels[rest])}
    found["raw"] = error(raw[rest], pool.labels[rest])
    found["confidence"] = float(fitted.probabilities[rest].amax(dim=1).mean())
    return {key: f"{value:.4f}" for key, value in found.items()}


def error(probabilities: Tensor, labels: Tensor) -> float:
    """Expected calibration error in ten bins of confidence."""
    sure, guess = probabilities.max(dim=1)
    hits = (guess == labels).double()
    bins = (sure * 10).long().clamp_max(9)
    return sum(abs(float((hits - sure)[bins == number].sum())) for number in range(10)) / len(labels)


def run() -> None:
    HERE.mkdir(parents=True, exist_ok=True)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for name in SETS:
            config = configs.with_method(configs.load(name, [f"seed={SEED}"]), "uniform-explicit")
            for row in measure(name, cfcl.run(config, workers=1).encoder):
                writer.writerow(row)
                file.flush()


def draw() -> None:
    """The table and the figure."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    def values(name: str, rule: str, number: int, key: str = "accuracy") -> list[float]:
        found = [row for row in rows if (row["dataset"], row["rule"], int(row["labels"])) == (name, rule, number)]
        return [100 * float(row[key]) for row in found if row[key]]

    parts = [_HEAD]
    for name in SETS:
        parts += [f"## {name}", _table(name, values)]
    (HERE / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    _figure(values)


_HEAD = """# Which images to label

Test accuracy in percent of a linear probe on the features of one encoder (`uniform-explicit`, seed 190), against the
number of labels among 1,000 training images. *chosen*: what `cfcl classify` names as next to label, beginning with
none. *random, as many of each class* cannot be had in practice: one would have to know the labels. Means over ten
draws; *over random* is the mean paired difference with the half-width of its 95 % interval. *Calibration error*: mean
distance of confidence and truth over ten bins, on the images without a label, with the chosen labels; *raw* is that of
the probe before `cfcl classify` calibrates it. By `python benchmarks/labelling.py`.

![Accuracy against number of labels](labels.png)"""


def _table(name: str, values: Callable[..., list[float]]) -> str:
    head = ("labels", *RULES, "over random", "over as many of each class", "calibration error", "raw")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for number in NUMBERS:
        chosen, *others = (values(name, rule, number) for rule in RULES)
        trust = [values(name, "chosen", number, key) for key in ("calibrated", "raw")]
        cells = [str(number), *(f"{statistics.fmean(some):.1f}" for some in (chosen, *others))]
        cells += [_over(chosen, other) for other in others]
        cells += [f"{statistics.fmean(some):.1f}" if len(some) == DRAWS else "" for some in trust]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _over(ours: list[float], other: list[float]) -> str:
    gains = [a - b for a, b in zip(ours, other, strict=True)]
    return f"{statistics.fmean(gains):+.1f} ± {2.262 * statistics.stdev(gains) / len(gains) ** 0.5:.1f}"


def _figure(values: Callable[..., list[float]]) -> None:
    from matplotlib.figure import Figure

    from cfcl.runs import style

    colours = (style.VERMILLION, style.BLUE, style.GREY)
    with style.settings():
        figure = Figure(figsize=(8.0, 3.6), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(SETS), sharey=True), SETS, strict=True):
            for rule, colour in zip(RULES, colours, strict=True):
                means = [statistics.fmean(values(name, rule, number)) for number in NUMBERS]
                spread = [statistics.stdev(values(name, rule, number)) for number in NUMBERS]
                axes.errorbar(
                    NUMBERS, means, yerr=spread, color=colour, marker="o", markersize=3, capsize=2, label=rule
                )
            axes.set(xscale="log", xlabel="labels", title=name)
            axes.set_xticks(NUMBERS, [str(number) for number in NUMBERS])
            axes.minorticks_off()
        figure.axes[0].set_ylabel("test accuracy (%)")
        figure.axes[-1].legend(loc="lower right", frameon=False)
        figure.savefig(HERE / "labels.png", dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    if not parser.parse_args().draw:
        run()
    draw()


if __name__ == "__main__":
    main()
