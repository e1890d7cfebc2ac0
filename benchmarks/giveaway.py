"""What a layer is worth against what it gives away: an audit beside the table of the dial, as a figure and a CSV file.

    python benchmarks/giveaway.py    # reads docs/results/audit/usps-explicit.csv and docs/results/encoder/runs.csv

Worth: points of ten-label accuracy over FedAvg, paired by seed. Given away: the best attack of the audit, whatever the
attacker has. Forms of an item that no run of the dial sent have no worth, and are in the CSV file alone.
"""

import csv
import math
import statistics
from pathlib import Path

import tables
import tables_drawn

HERE = Path(__file__).parents[1] / "docs" / "results" / "audit"
AUDIT = HERE / "usps-explicit.csv"
COLUMNS = ("layer", "form", "bytes", "gain", "reach", "relative", "ssim", "recognised", "matched", "runs")
ROWS = {
    ("image", "uint8"): "uniform-explicit",
    ("embedding", "float32"): "uniform-implicit",
    **{("embedding", f"noise {noise}"): f"infonce, uniform-implicit, noise {noise}" for noise in tables.NOISES},
}
"""Rows of the tables whose name is not that of a layer."""

PANELS = {
    "relative": "error of images made (% of the mean image's)",
    "recognised": "images made that are recognised by a classifier (%)",
    "matched": "images made that are matched to their original (%)",
}
"""What is given away: in the first panel less of it further right, in the others more."""
UP = {"float32": 5}
"""Points by which the name of a form stands above its place, so that names do not lie on each other."""


def gains() -> dict[str, list[float]]:
    """Points over FedAvg by row of the dial and of what has noise, seed by seed."""
    known = tables.read()
    rows, seeds = tables.TABLES["dial"]
    assert seeds == tables.TABLES["noise"][1]
    found: dict[str, dict[int, float]] = {}
    for row in [*rows, *tables.TABLES["noise"][0]]:
        runs = {seed: known[digest] for seed in seeds if (digest := row.config(seed).digest) in known}
        found[row.name] = {seed: tables_drawn.Figures.of(run["evaluations"]).embedding[1] for seed, run in runs.items()}
    base = found.pop("fedavg")
    return {name: [value - base[seed] for seed, value in by.items() if seed in base] for name, by in found.items()}


def given_away() -> dict[tuple[str, str], dict[str, float]]:
    """By layer and form what the best attack gets."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    with AUDIT.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            best = found.setdefault((row["layer"], row["form"]), {"bytes": float(row["bytes"]), "relative": math.inf})
            best["relative"] = min(best["relative"], float(row["relative"]))
            for name in ("ssim", "recognised", "matched"):
                best[name] = max(best.get(name, 0.0), float(row[name]))
    return found


def join() -> list[dict[str, float | str]]:
    """One row for each layer and form of the audit, with its worth where the dial has it."""
    worth, joined = gains(), list[dict[str, float | str]]()
    for (layer, form), best in given_away().items():
        name = ROWS.get((layer, form), f"uniform-{layer}" + ("-8bit" if form == "uint8" else ""))
        values = worth.get(name, [])
        row: dict[str, float | str] = {"layer": layer, "form": form, **best, "runs": len(values)}
        if len(values) > 1:
            spread = statistics.stdev(values) / math.sqrt(len(values))
            row |= {"gain": statistics.fmean(values), "reach": tables_drawn.QUANTILES[len(values)] * spread}
        joined.append(row)
    return joined


def write(rows: list[dict[str, float | str]]) -> None:
    with (HERE / "frontier.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{cell:.5g}" if isinstance(cell, float) else cell for key, cell in row.items()})


def draw(rows: list[dict[str, float | str]]) -> None:
    """Worth over error, over what is recognised and over what is matched; the area of a point grows with its bytes."""
    from matplotlib.figure import Figure

    from cfcl.runs import style

    known = [row for row in rows if "gain" in row]
    with style.settings():
        figure = Figure(figsize=(12.4, 4.2), layout="constrained")
        for axes, (measure, label) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items(), strict=True):
            axes.axhline(0.0, color=style.GREY, linewidth=1.0)
            for row in known:
                x, y, size = 100 * float(row[measure]), float(row["gain"]), int(row["bytes"])
                eight = row["form"] == "uint8" and row["layer"] != "image"
                colour = style.VERMILLION if row["layer"] in ("image", "embedding") else style.BLUE
                axes.errorbar([x], [y], yerr=[float(row["reach"])], color=colour, linewidth=0.8, capsize=2)
                face = "white" if eight else colour
                axes.scatter([x], [y], s=14 * math.log10(size), color=colour, facecolor=face, zorder=3)
                form = ", 8 bits" if eight else f", {row['form']}" if "noise" in str(row["form"]) else ""
                words = f"{row['layer']}{form}, {size:,} B"
                left, up = x > 70, UP.get(str(row["form"]), -11) if row["layer"] != "image" else 5
                axes.annotate(words, (x, y), xytext=(-6 if left else 6, up), textcoords="offset points",
                              ha="right" if left else "left", fontsize=7.5,
                              bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5})  # fmt: skip
            axes.set(xlabel=label, xlim=(-3, 104))
        figure.axes[0].set_ylabel("worth: points over FedAvg, ten labels per class")
        figure.savefig(HERE / "frontier.png", dpi=140)


def main() -> None:
    rows = join()
    write(rows)
    draw(rows)


if __name__ == "__main__":
    main()
