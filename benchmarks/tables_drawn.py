"""What `tables.py` has measured, as tables and pictures."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tables
from tables import HERE, SETS, TABLES

QUANTILES = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""Of Student's distribution, by the number of seeds."""


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


def reach(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean over seeds; 0 of one seed."""
    size = len(values)
    return QUANTILES[size] * statistics.stdev(values) / math.sqrt(size) if size > 1 else 0.0


def interval(values: Sequence[float]) -> str:
    """Mean and half of the 95 % interval of the mean over seeds."""
    mean = statistics.fmean(values)
    return f"{mean:.1f} ± {reach(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def table(name: str, known: Mapping[str, Any]) -> str:
    """One table as Markdown."""
    rows, seeds = TABLES[name]
    head = ("", "embedding, all labels", "ten per class", "over FedAvg", "features, all labels", "ten per class",
            "falls by", "bytes per item", "seeds")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    reference: dict[int, float] = {}
    for row in rows:
        found = {seed: known[digest] for seed in seeds if (digest := row.config(seed).digest) in known}
        if row.method == "fedavg":
            reference = {}  # what follows is not compared with the one before, if this one is not there
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


OURS = "uniform-explicit"
"""The row that is held against what one would use instead."""
WHOLE = "centralised"
"""The row that nobody can have whose data may not leave their devices."""
SPACES = ("embedding", "features")


LABELS = ("1", "10", "100", "all")
"""Per class."""


def levels(rows: Sequence[Sequence[Any]], space: str) -> dict[str, float]:
    """What one run came to, in percent: the mean of the last fifth of its evaluations, by labels per class."""
    last = rows[-max(1, len(rows) // 5) :]
    place = {"embedding": 1, "features": 3}[space]
    few = {labels: statistics.fmean(row[place + 1][labels] for row in last) for labels in last[0][place + 1]}
    found = {**few, "all": statistics.fmean(row[place] for row in last)}
    return {labels: 100 * share for labels, share in found.items()}


def instead(name: str, known: Mapping[str, Any]) -> list[str]:
    """What one would use instead, and by how much the encoder is better, as Markdown; nothing if it is not measured."""
    seeds = _seeds(name, known)
    sticks: dict[str, tuple[str, dict[int, dict[str, float]]]] = {}
    for row in tables.read_yardsticks():
        if row["set"] == name and int(row["seed"]) in seeds:
            _, by = sticks.setdefault(row["name"], (row["dim"], {}))
            by[int(row["seed"])] = {labels: 100 * float(row[labels]) for labels in LABELS}
    if not sticks:
        return []
    whole = {seed: run for seed, run in _seeds(name, known, WHOLE).items() if seed in seeds}
    for space in SPACES if whole else ():
        sticks[f"all data in one place, {space}"] = "", {seed: levels(run, space) for seed, run in whole.items()}
    head = ("instead", "dim", "1 label per class", "10", "100", "all", f"embedding of {OURS}, over it: ten", "all",
            "its features, over it: ten", "all")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for space in SPACES:
        found = [levels(run, space) for run in seeds.values()]
        cells = [f"{statistics.fmean(one[labels] for one in found):.1f}" for labels in LABELS]
        lines.append("| " + " | ".join([f"*{OURS}, {space}*", "", *cells, *[""] * 4]) + " |")
    for stick, (dim, by) in sticks.items():
        cells = [stick, dim]
        cells += [f"{statistics.fmean(one[labels] for one in by.values()):.1f}" for labels in LABELS]
        for space in SPACES:
            for labels in ("10", "all"):
                pairs = [(levels(seeds[seed], space)[labels], one[labels]) for seed, one in by.items()]
                cells.append(_paired(name, space, labels, stick, len(seeds)) or over(pairs, SETS[name]))
        lines.append("| " + " | ".join(cells) + " |")
    return ["\n".join(lines), *_stages(name)]


def _stages(name: str) -> list[str]:
    """What other stages of the trained encoder gain with ten labels and with all, as far as they were compared."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in tables.read_paired():
        if (row["set"], row["row"]) == (name, OURS) and row["space"] not in ("embedding", "features"):
            cell = f"{float(row['gain']):+.1f} ± {float(row['reach']):.1f}"
            found.setdefault(row["space"], {}).setdefault(row["other"], {})[row["labels"]] = cell
    return [
        f"*{OURS}, {stage}* after training, over, with ten labels and with all: "
        + "; ".join(f"{other} **{cells['10']}** and **{cells['all']}**" for other, cells in others.items())
        + "."
        for stage, others in found.items()
    ]


def _paired(name: str, space: str, labels: str, other: str, seeds: int) -> str:
    """The difference as it is image by image, where that is known of as many seeds."""
    for row in tables.read_paired():
        key = (row["set"], row["row"], row["space"], row["labels"], row["other"])
        if key == (name, OURS, space, labels, other) and int(row["seeds"]) >= seeds:
            return f"**{float(row['gain']):+.1f} ± {float(row['reach']):.1f}**"
    return ""


def _seeds(name: str, known: Mapping[str, Any], row_name: str = OURS) -> dict[int, Sequence[Sequence[Any]]]:
    """The evaluations of each seed in a row: in the one that is held against others, or in another."""
    rows, seeds = TABLES[name]
    row = next((row for row in rows if row.name == row_name), None)
    if row is None or name not in SETS:
        return {}
    found = {seed: known.get(row.config(seed).digest) for seed in seeds}
    return {seed: run["evaluations"] for seed, run in found.items() if run is not None}


def over(pairs: Sequence[tuple[float, float]], num_images: int) -> str:
    """Mean difference of pairs in percent, with half of a 95 % interval that counts seeds and test images.

    Both sides see the same images, and their errors are taken as independent: the interval is too wide, not too narrow.
    Of one seed it counts images alone.
    """
    gains = [ours - other for ours, other in pairs]
    shares = [statistics.fmean(side) / 100 for side in zip(*pairs, strict=True)]
    images = 196 * math.sqrt(sum(share * (1 - share) for share in shares) / num_images)
    return f"{statistics.fmean(gains):+.1f} ± {math.hypot(reach(gains), images):.1f}"


BEGINNINGS = (
    f"Runs have {tables.SHORT} updates. InfoNCE without exchange and with a uniform choice are the beginnings of the\n"
    "whole runs above: neither asks how long a run is."
)
"""What has no runs of its own."""
FEWEST = 10
"""Evaluations of which two are a fifth."""


def _seldom(known: Mapping[str, Any]) -> str:
    """Which objectives were evaluated so seldom that a fifth is one evaluation; as Markdown."""
    rows, seeds = TABLES["objectives"]
    found: dict[str, int] = {}
    for row in rows:
        runs = [known[digest] for seed in seeds if (digest := row.config(seed).digest) in known]
        numbers = [len(run["evaluations"]) for run in runs if len(run["evaluations"]) < FEWEST]
        if numbers:
            objective = row.name.partition(",")[0]
            found[objective] = min(*numbers, found.get(objective, FEWEST))
    if not found:
        return ""
    names = ", ".join(f"`{objective}`: {number}" for objective, number in found.items())
    return (
        f"Some runs were evaluated seldom ({names} evaluations, the untrained network counted).\n"
        "Of so few, a fifth is one: *falls by* is from the best to the last, and says nothing of the time between."
    )


PAGE = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- instead -->", "<!-- /instead -->"
"""The place of the short table in it."""


def summary(known: Mapping[str, Any]) -> str:
    """What one would use instead on USPS, and what devices make of it, in a few rows of Markdown."""
    rows, seeds = TABLES["usps"]
    lines = ["| 1, 10, 100 or all labels per class: accuracy, % | 1 | 10 | 100 | all |", "|---|---|---|---|---|"]

    def add(name: str, found: Sequence[Mapping[str, float]]) -> None:
        cells = [f"{statistics.fmean(one[labels] for one in found):.1f}" for labels in LABELS]
        lines.append("| " + " | ".join([name, *cells]) + " |")

    sticks: dict[str, list[dict[str, float]]] = {}
    for line in tables.read_yardsticks():
        if line["set"] == "usps":
            sticks.setdefault(line["name"], []).append({labels: 100 * float(line[labels]) for labels in LABELS})
    best = max(
        (stick for stick in sticks if stick.startswith("untrained")),
        key=lambda stick: statistics.fmean(one["10"] for one in sticks[stick]),
    )
    for stick in sticks:
        if stick in (best, "untrained, embedding") or not stick.startswith("untrained"):
            add(f"{stick} (the best of its layers)" if stick == best else stick, sticks[stick])
    for row, name, space in (
        ("fedavg", "no exchange (FedAvg)", "embedding"),
        (OURS, "exchange of datapoints, uniform choice", "embedding"),
        (OURS, "the same", "features"),
        ("centralised", "all data in one place", "embedding"),
        ("centralised", "the same", "features"),
    ):
        wanted = next(one for one in rows if one.name == row)
        runs = [known[digest] for seed in seeds if (digest := wanted.config(seed).digest) in known]
        if runs:
            add(f"{name}, {space}", [levels(run["evaluations"], space) for run in runs])
    return "\n".join(lines)


def _effort() -> str:
    """How many runs there are, and what they took."""
    seconds = [float(row["seconds"]) for row in tables.read_runs()]
    return f"The {len(seconds)} runs took {sum(seconds) / 3600:.0f} hours of one core."


def draw(names: Iterable[str]) -> None:
    """Write the tables as Markdown with their pictures, and the short one into the README."""
    known = tables.read()
    parts = [
        "# What an encoder is worth",
        "Test split. Means over seeds with the half-width of their 95 % interval; each run counts by the mean of the\n"
        "last fifth of its evaluations. *Over FedAvg*: paired differences of ten-label accuracy. *Falls by*: points\n"
        "from the mean of the best fifth of a run's evaluations to that of its last fifth. Records: `runs.csv`. By\n"
        "`python benchmarks/tables.py`. The last column counts the seeds that are done: 190 to 194 in the end,\n"
        f"190 to 192 for rivals, Fashion-MNIST and SVHN. {_effort()}",
        "*Instead*: what one would use without training, and last what one network would make of all data in one\n"
        "place. Differences from it are paired by seed, and their intervals also count the test images (of one seed\n"
        "nothing else). Bold ones are of the last encoder of each run, paired image by image (`paired.csv`, by\n"
        "`python benchmarks/against.py`). The others take the errors of both sides as independent: their intervals\n"
        "are too wide rather than too narrow.",
    ]
    if _draw_worth(known):
        parts.append("![Accuracy with ten labels per class, beside what one would use instead](worth.png)")
    pictures = {"dial": _draw_dial, "objectives": _draw_seconds}
    notes = {"objectives": _seldom(known), "svhn-objectives": BEGINNINGS}
    for name in names:
        if any(row.config(seed).digest in known for row in TABLES[name][0] for seed in TABLES[name][1]):
            parts += [f"## {name}", table(name, known), *instead(name, known)]
            if name in pictures and (caption := pictures[name](known)):
                parts.append(caption)
            if notes.get(name):
                parts.append(notes[name])
    (HERE / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    if HERE == tables.HERE:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{summary(known)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


SHOWN = {
    "raw pixels": "raw pixels",
    "principal": "principal components",
    "untrained, embedding": "untrained network",
    "fedavg": "no exchange (FedAvg)",
    "uniform-explicit": "exchange, uniform choice",
    "cfcl-explicit": "exchange, CF-CL's choice",
    "centralised": "all data in one place",
}
"""Rows of the picture of what an encoder is worth, from top to bottom."""


def _ten(name: str, known: Mapping[str, Any]) -> dict[str, list[float]]:
    """Ten-label accuracies of the embedding, and of what one would use instead, seed by seed, by row of the picture."""
    found: dict[str, list[float]] = {}
    for stick in tables.read_yardsticks():
        kind = "principal" if "principal" in stick["name"] else stick["name"]
        if stick["set"] == name and kind in SHOWN:
            found.setdefault(kind, []).append(100 * float(stick["10"]))
    rows, seeds = TABLES[name]
    for row in rows:
        runs = [known[digest] for seed in seeds if (digest := row.config(seed).digest) in known]
        if row.name in SHOWN and runs:
            found[row.name] = [Figures.of(run["evaluations"]).embedding[1] for run in runs]
    return found


def _draw_worth(known: Mapping[str, Any]) -> bool:
    """Accuracy with ten labels per class, beside what one would use instead; whether there was anything to draw."""
    from cfcl.runs import style

    sets = {name: found for name in SETS if {"raw pixels", OURS, "fedavg"} <= (found := _ten(name, known)).keys()}
    if not sets:
        return False
    from matplotlib.figure import Figure

    with style.settings():
        rows = math.ceil(len(sets) / 2)
        figure = Figure(figsize=(8.2, 2.8 * rows), layout="constrained")
        places = figure.subplots(rows, 2, sharey=True, squeeze=False).flatten()
        for axes in places[len(sets) :]:
            axes.remove()
        for axes, (name, found) in zip(places, sets.items(), strict=False):
            for place, row in enumerate(SHOWN):
                if row not in found:
                    continue
                mean, ours = statistics.fmean(found[row]), "explicit" in row
                colour = style.VERMILLION if ours else style.BLUE if row == "fedavg" else style.GREY
                axes.errorbar(
                    [mean], [place], xerr=[reach(found[row])], color=colour, marker="o", markersize=5, capsize=2
                )
                axes.annotate(
                    f"{mean:.1f}", (mean, place), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
                )
            axes.set(title={"usps": "USPS", "svhn": "SVHN", "fashion-mnist": "Fashion-MNIST"}.get(name, name))
            axes.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
            axes.set_ylim(len(SHOWN) - 0.5, -0.8)
            axes.set_xlabel("ten-label accuracy (%)")
        figure.savefig(HERE / "worth.png", dpi=160)
    return True


def _draw_dial(known: Mapping[str, Any]) -> str:
    """What an item is worth over its bytes: paired gains over FedAvg, from the embedding to the image; as Markdown."""
    from cfcl.runs import style

    rows, seeds = TABLES["dial"]
    points: dict[str, tuple[float, dict[int, float]]] = {}
    for row in rows:
        found = {seed: known[digest] for seed in seeds if (digest := row.config(seed).digest) in known}
        values = {seed: Figures.of(run["evaluations"]).embedding[1] for seed, run in found.items()}
        if found:
            points[row.name] = float(next(iter(found.values()))["item_bytes"]), values
    if "fedavg" not in points:
        return ""
    _, nothing = points.pop("fedavg")
    gains = {
        name: (size, [value - nothing[seed] for seed, value in values.items() if seed in nothing])
        for name, (size, values) in points.items()
    }
    gains = {name: (size, both) for name, (size, both) in gains.items() if both}
    if len(gains) < 2:
        return ""
    from matplotlib.figure import Figure

    with style.settings():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("log")  # before anything is drawn: the limits of a linear axis may be negative
        axes.set_xlim(80, 40_000)
        axes.axhline(0, color=style.GREY, linewidth=1.0)
        axes.annotate("FedAvg", (0.99, 0), xycoords=("axes fraction", "data"), ha="right", va="bottom")
        for name, (size, both) in gains.items():
            eight, colour = name.endswith("-8bit"), style.BLUE
            if name.endswith("plicit"):
                colour = style.VERMILLION
            mean = statistics.fmean(both)
            axes.errorbar(
                [size], [mean], yerr=[reach(both)], color=colour, marker="v" if eight else "o", markersize=5,
                capsize=2, markerfacecolor="white" if eight else colour,
            )  # fmt: skip
            label = {"uniform-explicit": "image", "uniform-implicit": "embedding"}.get(
                name, name.removeprefix("uniform-").replace("-8bit", ", 8 bits")
            )
            below = -12 if label == "embedding" else 3  # where it would lie on the line of FedAvg
            axes.annotate(
                label, (size, mean), xytext=(-6 if eight else 6, below), textcoords="offset points", fontsize=8,
                ha="right" if eight else "left",
            )  # fmt: skip
        axes.set(xlabel="bytes per item", ylabel="gain with ten labels per class (points)")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.savefig(HERE / "dial.png", dpi=160)
    return "![Gain over FedAvg with ten labels per class against bytes per item](dial.png)"


DEVICES = 10


def seconds_per_step() -> dict[str, float]:
    """Of all devices, by objective, on two cores: measured one after another on a quiet machine, by `peak.py`."""
    newest = max((Path(__file__).parent / "results").glob("*-peak.json"))
    found = json.loads(newest.read_text(encoding="utf-8"))["found"]
    return {objective: DEVICES * found[f"usps, {objective}"]["per_update_ms"] / 1000 for objective in tables.OBJECTIVES}


def curves(known: Mapping[str, Any]) -> dict[str, dict[int, list[float]]]:
    """Ten-label accuracy of the embedding, in percent, by objective and step, one for each seed."""
    rows, seeds = TABLES["objectives"]
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        objective, _, method = row.name.partition(", ")
        runs = [known[digest] for seed in seeds if (digest := row.config(seed).digest) in known]
        if method != OURS or not runs:
            continue
        # Runs that stand in two tables have more evaluations than others: only what all seeds have is drawn.
        steps = set.intersection(*({line[0] for line in run["evaluations"]} for run in runs))
        found[objective] = {
            step: [100 * line[2]["10"] for run in runs for line in run["evaluations"] if line[0] == step]
            for step in sorted(steps)
        }
    return found


def _draw_seconds(known: Mapping[str, Any]) -> str:
    """Ten-label accuracy over seconds of training, by objective; as Markdown."""
    from cfcl.runs import style
    from cfcl.study import layout

    found, costs = curves(known), seconds_per_step()
    if len(found) < 2:
        return ""
    from matplotlib.figure import Figure

    colours = dict(
        zip(tables.OBJECTIVES, (style.GREY, style.VERMILLION, style.ORANGE, style.GREEN, style.BLUE), strict=True)
    )
    names = {"triplet": "triplet", "infonce": "InfoNCE", "dcl": "DCL", "vicreg": "VICReg", "byol": "BYOL"}
    with style.settings():
        figure = Figure(figsize=(6.4, 4.0))
        axes, ends = figure.subplots(), []
        for objective, points in found.items():
            means = [statistics.fmean(values) for values in points.values()]
            seconds = [step * costs[objective] for step in points]
            axes.errorbar(
                seconds, means, yerr=[reach(values) for values in points.values()], color=colours[objective],
                marker="o", markersize=3.5, capsize=2, elinewidth=0.8,
            )  # fmt: skip
            number = len(next(iter(points.values())))
            seeds = f"{number} seed{'s' if number > 1 else ''}"
            ends.append((f"{names[objective]}, {seeds}", seconds[-1], means[-1], colours[objective]))
        axes.set_xlim(left=-1)
        axes.set(xlabel="seconds of training on two cores", ylabel="accuracy with ten labels per class (%)")
        layout.ends(axes, ends)
        figure.savefig(HERE / "seconds.png", dpi=160, bbox_inches="tight")
    return """![Accuracy with ten labels per class against seconds of training, by objective](seconds.png)

Uniform exchange of datapoints; bars are 95 % intervals over seeds. Seconds are updates times what an update costs on
two cores of a quiet machine, evaluations apart. That was measured for each objective in turn, over its first hundred
updates ([engine](../../engine.md#measured)). The seconds in `runs.csv` are of a machine that did other things, too."""
