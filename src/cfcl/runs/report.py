"""One self-contained page out of run folders."""

import os
import shlex
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path

from matplotlib.figure import Figure

from cfcl import __version__, methods
from cfcl import config as configs
from cfcl.errors import CfclError
from cfcl.runs import network, page, plots, style, suites
from cfcl.runs.folders import Run
from cfcl.runs.page import Html, tag
from cfcl.runs.plots import HEALTH, PULLS, TRAINING, Quantity
from cfcl.runs.progress import number, size
from cfcl.runs.series import (
    Row,
    base_of,
    by_name,
    d2d_bytes,
    differences,
    final,
    selection_seconds,
    series,
    settings,
    show,
    usual,
)

_LAST = ("Settings", "Versions", "Commands")

READING = {
    "effective_candidates": "How many candidates the draw really chose among (the exponential of its entropy). At the "
    "number of candidates it is a uniform draw; the lower it is, the more the method prefers some of them.",
    "held_labels": "Of the items pulled, the share whose label the receiver holds already: lower brings more that is "
    "new. A uniform draw shows what the split alone gives. Labels are used for this plot only, never by a device.",
    "centroid_distance": "How far pulled items lie from the nearest cluster centre of the receiver's own data, under "
    "the global model. Higher is farther from what it knows; compare methods at the same step, as the scale moves "
    "with the model.",
    "alignment": "Lower means that augmentation moves an embedding less. Zero is not the goal: a collapsed encoder "
    "has it too, so read it together with uniformity.",
    "uniformity": "Lower means that embeddings use more of the sphere; 0 is a collapsed encoder.",
    "effective_rank": "How many directions the embeddings really use, at most their length.",
    "cka": "How alike the devices' models are just before they are averaged: 1 is alike up to rotation and scale.",
    "triplet": "Eq. (1), mean over devices. Methods train on different triplets, so a lower curve is not a better "
    "encoder.",
    "regulariser": "Second term of Eq. (23), before its weight; only methods that pull embeddings have it.",
    "weight": "Eq. (25): highest just after an aggregation, fading until the next.",
    "margin": "Eq. (24), mean over devices: how far from the pulled embeddings an anchor should stay.",
    "active": "Triplets that still teach something. Near zero, the margin is too small or the task too easy.",
    "pulled_share": "How much of a batch comes from neighbours: near zero, no way of selecting can matter.",
}


class _Figures:
    """Turns figures into markup, each under ids of its own."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def show(self, drawn: Figure | None, title: str, caption: str) -> list[Html]:
        if drawn is None:
            return []
        return [page.figure(style.to_svg(drawn, f"f{next(self._numbers)}"), title, caption)]


def write(runs: Sequence[Run], out: Path, *, force: bool = False) -> Path:
    """Write the page about `runs` to `out`, whole or not at all."""
    if not runs:
        raise CfclError("a report needs at least one run, and none was given: give folders that `cfcl run` wrote")
    for run in runs:
        _check_whole(run)
    _check_free(out, force)
    text = render(runs)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _replace(out, text)
    except OSError as error:
        raise CfclError(f"cannot write {str(out)!r}: {error.strerror}; choose another --out") from None
    return out


def render(runs: Sequence[Run]) -> str:
    """The page as text: the same records give the same page."""
    groups = by_name(runs)
    title = f"cfcl report: {', '.join(groups)}"
    figures = _Figures()
    anchors = [*((name, f"run-{name}") for name in groups), *((name, name.lower()) for name in _LAST)]
    nav = tag("nav", *(tag("a", name, href=f"#{anchor}") for name, anchor in anchors))
    leads = [_lead(group, name if len(groups) > 1 else "") for name, group in groups.items()]
    sections = [_group(name, group, figures) for name, group in groups.items()]
    return page.document(
        title, tag("h1", title), *leads, nav, *sections, _settings(runs), _versions(runs), _commands(runs)
    )


def headline(runs: Sequence[Run]) -> str:
    """What the records say in a sentence or two, and how little that may be."""
    rows = [row for row in summary(runs) if row["probe"] is not None]
    ranked = [row for row in rows if not methods.parse(row["method"]).yardstick]
    if not ranked:
        return "There are no labels, so there is no accuracy: the page shows costs and label-free health only."
    best = max(ranked, key=lambda row: row["probe"])
    found = f"{best['label']} with {best['probe']:.4f}"
    doubt = _doubt(min(row["seeds"] for row in ranked))
    if len(ranked) == 1:
        return f"Final probe accuracy: {found}. {doubt}"
    level = [row["label"] for row in ranked if row is not best and f"{row['probe']:.4f}" == f"{best['probe']:.4f}"]
    ties = f", level with {' and '.join(level)}" if level else ""
    return f"Best of {len(ranked)} by final probe accuracy: {found}{_against(best)}{ties}. {doubt}"


def summary(runs: Sequence[Run]) -> list[Row]:
    """The rows of `suites.summarise`, one per curve, with paired gains, selection time and energy."""
    rows = []
    for label, group in series(runs).items():
        base = base_of(group[0], runs)
        found = suites.summarise([*base, *group])
        row = next(row for row in found if row["method"] == group[0].config.method)
        selection = statistics.fmean(selection_seconds(run, final(run)["step"]) for run in group)
        joules = statistics.fmean(final(run)["joules"] for run in group)
        rows.append({**row, "label": label, "gains": _gains(group, base), "selection": selection, "joules": joules})
    return rows


def _replace(out: Path, text: str) -> None:
    """Write beside `out`, then put it in its place."""
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)


def _check_whole(run: Run) -> None:
    if not run.of("setup") or not run.of("eval"):
        raise CfclError(f"{str(run.folder)!r} holds no evaluation, so the run did not end: run it again")


def _check_free(out: Path, force: bool) -> None:
    if out.is_dir():
        raise CfclError(f"{str(out)!r} is a folder, but a page is a file: give --out a file, such as report.html")
    if out.exists() and not force:
        raise CfclError(f"{str(out)!r} exists and would be replaced: give --force, or another --out")


def _gains(group: Iterable[Run], base: Iterable[Run]) -> list[float]:
    """Final accuracy over FedAvg, seed by seed."""
    if any(run.config.method == "fedavg" for run in group):
        return []
    found = {run.config.seed: final(run) for run in base}
    pairs = [(final(run), found[run.config.seed]) for run in group if run.config.seed in found]
    return [mine["probe"] - theirs["probe"] for mine, theirs in pairs if "probe" in mine and "probe" in theirs]


def _against(best: Row) -> str:
    gains = best["gains"]
    if best["method"] == "fedavg":
        return " (no exchange raised it)"
    if not gains:
        return " (no FedAvg run with the same settings to compare it with)"
    if len(gains) == 1:
        return f", {gains[0]:+.4f} against FedAvg in the same seed"
    above = sum(gain > 0 for gain in gains)
    return (
        f", {statistics.fmean(gains):+.4f} against FedAvg on average over {len(gains)} paired seeds "
        f"({min(gains):+.4f} to {max(gains):+.4f}; above it in {above} of {len(gains)})"
    )


def _doubt(num_seeds: int) -> str:
    if num_seeds == 1:
        return "One seed proves nothing: any difference may be chance."
    if num_seeds < 5:
        return f"With {num_seeds} seeds only, a small difference may still be chance."
    return f"Figures are means over {num_seeds} seeds."


def _lead(runs: Sequence[Run], name: str) -> Html:
    return tag("p", *([tag("strong", f"{name}: ")] if name else []), headline(runs), class_="lead")


def _group(name: str, runs: Sequence[Run], figures: _Figures) -> Html:
    parts: list[tuple[str, list[Html]]] = [
        ("Summary", [_summary_table(runs)]),
        ("Learning curves", _grid(_learning(runs, figures))),
        ("Costs", _grid(_costs(runs, figures))),
        ("The network, and who holds what", _network(runs, figures)),
        ("Distances between labels", _grid(figures.show(plots.label_distances(runs), "Label distances", _DISTANCES))),
        ("What was pulled", _grid(_quantities(runs, PULLS, figures))),
        ("Health of the embeddings", _grid(_quantities(runs, HEALTH, figures))),
        ("Training", _grid(_quantities(runs, TRAINING, figures))),
    ]
    shown = [tag("h3", heading) + page.join(content) for heading, content in parts if content]
    return tag("section", tag("h2", name), *map(Html, shown), id=f"run-{name}")


def _grid(items: Sequence[Html]) -> list[Html]:
    return [tag("div", *items, class_="figures")] if items else []


_DISTANCES = (
    "Mean distance between the embeddings of test images with these labels, mean over seeds. A good encoder is dark "
    "on the diagonal and bright elsewhere; separation is the mean off the diagonal over the mean on it."
)


def _summary_table(runs: Sequence[Run]) -> Html:
    rows = summary(runs)
    columns: dict[str, Callable[[Row], str]] = {
        "Method": lambda row: row["label"],
        "Seeds": lambda row: str(row["seeds"]),
        "Probe accuracy": _probe_cell,
        "Over FedAvg": lambda row: number(row["over_fedavg"], "+.4f"),
        "kNN": lambda row: number(row["knn"], ".4f"),
        "CKA": lambda row: number(row["cka"], ".3f"),
        "Pushed": lambda row: size(row["push_bytes"]),
        "Pulled": lambda row: size(row["pull_bytes"]),
        "Uplink": lambda row: size(row["uplink_bytes"]),
        "Delay": lambda row: f"{row['seconds'] + row['selection']:.2f} s",
        "of which selection": lambda row: f"{row['selection']:.2f} s",
    }
    if any(row["joules"] > 0 for row in rows):
        columns["Energy"] = lambda row: f"{row['joules']:.2f} J"
    left_out = len(runs) - sum(row["seeds"] for row in rows)
    notes = ["Final model, mean over seeds; ± is the standard deviation over seeds."]
    if common := [f"{key}={show(value)}" for key, value in usual(runs).items()]:
        notes.append(f"Where a name says nothing else: {', '.join(common)}.")
    if left_out:
        notes.append(f"Left out, as they repeat the settings and seed of others: {left_out}.")
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    return page.join([page.table(list(columns), cells), tag("p", " ".join(notes))])


def _probe_cell(row: Row) -> str:
    spread = "" if row["probe_spread"] is None else f" ± {row['probe_spread']:.4f}"
    return number(row["probe"], ".4f") + spread


def _learning(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    steps = "Solid with markers: linear probe; thin and dashed: nearest neighbours. Bands span the seeds."
    traffic = "How much accuracy a byte between devices buys. A method that sends none is a dotted level line."
    delay = "The same accuracies over the time that communication takes; local training is not charged by default."
    return [
        *figures.show(plots.accuracy(runs), "Accuracy over steps", steps),
        *figures.show(plots.accuracy_by_bytes(runs), "Accuracy against bytes between devices", traffic),
        *figures.show(plots.accuracy_by_seconds(runs), "Accuracy against delay", delay),
    ]


def _costs(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    traffic = "Mean over seeds. A pixel value counts one byte, an entry of an embedding or a parameter four."
    delay = (
        "Mean over seeds. The model adds up the slowest device of every exchange and aggregation, at the rates of the "
        "settings; the time for selecting items was measured, so it depends on the machine."
    )
    return [
        *figures.show(plots.traffic(runs), "Bytes per method", traffic),
        *figures.show(plots.delay(runs), "Seconds per method", delay),
    ]


def _quantities(runs: Sequence[Run], quantities: Iterable[Quantity], figures: _Figures) -> list[Html]:
    return [
        item
        for quantity in quantities
        for item in figures.show(plots.curves(runs, quantity), quantity.title, READING[quantity.key])
    ]


def _network(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    """The graph of one run: of the first seed, with traffic if there is any."""
    seed = runs[0].config.seed
    run = next((run for run in runs if run.config.seed == seed and d2d_bytes(final(run)) > 0), runs[0])
    caption = (
        f"Seed {run.config.seed}, {run.config.method}; other seeds draw another network. Numbers in circles are "
        "devices, small ones the labels they hold; an edge is as wide as the bytes it carried."
    )
    return [
        tag(
            "div",
            *figures.show(network.graph(run), "The device-to-device graph", caption),
            _device_table(run),
            class_="figures",
        )
    ]


def _device_table(run: Run) -> Html:
    setup = run.of("setup")[0]
    neighbours: list[list[int]] = [[] for _ in setup["points"]]
    for one, other in setup["edges"]:
        neighbours[one].append(other)
        neighbours[other].append(one)
    rows = [
        [str(device), f"{points:,}", _labels(setup["labels"], device), ", ".join(map(str, sorted(neighbours[device])))]
        for device, points in enumerate(setup["points"])
    ]
    found = page.table(["Device", "Points", "Labels", "Neighbours"], rows, words=True)
    return found if len(rows) <= 20 else tag("details", tag("summary", f"All {len(rows)} devices"), found)


def _labels(labels: list[list[int]] | None, device: int) -> str:
    return "–" if labels is None else ", ".join(map(str, labels[device]))


def _settings(runs: Sequence[Run]) -> Html:
    tables = [settings(run.config) for run in runs]
    keys = differences(tables)
    rows = [[run.folder.name, *(show(given[key]) for key in keys)] for run, given in zip(runs, tables, strict=True)]
    contrast = page.table(["Run", *keys], rows, words=True) if keys else tag("p", "All runs have the same settings.")
    full = [
        tag(
            "details",
            tag("summary", f"All settings of {group[0].folder.name}"),
            tag("pre", configs.to_toml(group[0].config)),
        )
        for group in by_name(runs).values()
    ]
    intro = tag("p", "Where the runs differ; all else is the same.") if keys else Html()
    return tag("section", tag("h2", "Settings"), intro, contrast, *full, id="settings")


def _versions(runs: Sequence[Run]) -> Html:
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for run in runs:
        key = tuple((name, show(value)) for name, value in run.environment.items())
        found[key] = found.get(key, 0) + 1
    names = list(dict.fromkeys(name for environment in found for name, _ in environment))
    rows = [[str(runs_in_it), *(dict(key).get(name, "–") for name in names)] for key, runs_in_it in found.items()]
    made = tag("p", f"This page was made by cfcl {__version__}.")
    return tag("section", tag("h2", "Versions"), page.table(["Runs", *names], rows, words=True), made, id="versions")


def _commands(runs: Sequence[Run]) -> Html:
    lines = [_command(run) for run in runs]
    intro = tag("p", "Each line repeats one run, to the same records on the same versions:")
    return tag("section", tag("h2", "Commands"), intro, tag("pre", "\n".join(lines)), id="commands")


def _command(run: Run) -> str:
    where = run.environment.get("device", "cpu")
    device = [] if where == "cpu" else ["--device", str(where)]
    return shlex.join(["cfcl", "run", str(run.folder / "config.toml"), *device])
