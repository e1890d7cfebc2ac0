"""One self-contained page out of run folders."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path

from matplotlib.figure import Figure

from cfcl import __version__, methods, page, reading
from cfcl import config as configs
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.page import Html, tag
from cfcl.runs import faults, labels, network, plots, privacy, style, yardsticks
from cfcl.runs.folders import Run
from cfcl.runs.overview import Entry
from cfcl.runs.plots import FAULTS, HEALTH, PULLS, TRAINING, Quantity
from cfcl.runs.progress import number, percent, size
from cfcl.runs.series import by_name, differences, final, settings, show, usual
from cfcl.runs.summary import Summary, by_curve
from cfcl.shown import command

_LAST = ("Settings", "Versions", "Commands")

READING = {
    "effective_candidates": "The number of candidates that the draw effectively chose from: the exponential of its "
    "entropy. A uniform draw reaches the full number. A lower value means that the method prefers some candidates.",
    "held_labels": "The share of pulled items whose label the receiver already has. A lower share means more that is "
    "new. A uniform draw shows what the partition alone gives. Labels are used for this plot only, never by a device.",
    "centroid_distance": "The distance from pulled items to the nearest cluster centre of the receiver's own data, "
    "under the global model. A larger distance is farther from what the receiver knows. Compare methods at the same "
    "step, because the scale changes with the model.",
    "alignment": "A lower value means that augmentation moves an embedding less. Zero is not the goal, because a "
    "collapsed encoder reaches it too. Read it together with uniformity.",
    "uniformity": "A lower value means that embeddings use more of the sphere. A collapsed encoder has 0.",
    "effective_rank": "The number of directions that the embeddings effectively use, at most their dimension.",
    "features_alignment": "The same as for embeddings, of features scaled to length one.",
    "features_uniformity": "The same as for embeddings, of features scaled to length one.",
    "features_effective_rank": "The same as for embeddings, of features scaled to length one.",
    "few": "A linear probe that gets so few labels of each class: the mean over five draws of them. Methods of a seed "
    "share the draws. The user of an encoder has few labels, and here good encoders differ most.",
    "features_few": "The same probe on the features, which the head turns into embeddings.",
    "features_probe": "A linear probe with all labels on the features, which the head turns into embeddings.",
    "cka": "The similarity of the devices' models just before they are averaged. 1 is equal up to rotation and scale.",
    "triplet": "Eq. (1), mean over devices. Methods train on different triplets, so a lower curve does not mean a "
    "better encoder.",
    "regulariser": "The second term of Eq. (23), before its weight. Only methods that pull embeddings have it.",
    "weight": "Eq. (25): highest just after an aggregation, then lower until the next one.",
    "margin": "Eq. (24), mean over devices: the distance that an anchor should keep from the pulled embeddings.",
    "active": "The share of triplets that still change the model. Near zero, the margin is too small or the task too "
    "easy.",
    "online": "The share of devices that were not offline at an evaluation.",
    "used": "The share of all messages since the start that reached their receiver in time and were used.",
    "pulled_share": "The share of a batch that comes from neighbours. Near zero, the selection of items cannot matter.",
}


class _Figures:
    """Turns figures into markup, each under ids of its own."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def show(self, drawn: Figure | None, title: str, caption: str) -> list[Html]:
        if drawn is None:
            return []
        return [page.figure(style.to_svg(drawn, f"f{next(self._numbers)}"), title, caption)]


def write(runs: Sequence[Run], out: Path, *, unfinished: Sequence[Entry] = (), force: bool = False) -> Path:
    """Write the page about `runs`, and those `unfinished`, to `out`, whole or not at all."""
    if not runs and not unfinished:
        raise CfclError("a report needs at least one run, and none was given: give folders that `cfcl run` wrote")
    _check_free(out, force)
    text = render(runs, unfinished)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode())
    except OSError as error:
        raise CfclError(f"cannot write {str(out)!r}: {error.strerror}; choose another --out") from None
    return out


def render(runs: Sequence[Run], unfinished: Sequence[Entry] = ()) -> str:
    """The page as text: the same records give the same page."""
    groups = by_name(runs)
    title = f"cfcl report: {', '.join(groups) or 'unfinished runs'}"
    if any(run.setup.split == "validation" for run in runs):
        title += ", validation accuracy"
    figures = _Figures()
    last = _LAST if runs else ()
    anchors = [*((name, f"run-{name}") for name in groups), *((name, name.lower()) for name in last)]
    nav = tag("nav", *(tag("a", name, href=f"#{anchor}") for name, anchor in anchors))
    rows = {name: by_curve(group) for name, group in groups.items()}
    leads = [_lead(found, name if len(groups) > 1 else "") for name, found in rows.items()]
    sections = [_group(name, group, rows[name], figures) for name, group in groups.items()]
    rest = [_settings(runs), _versions(runs), _commands(runs)] if runs else []
    return page.document(
        title, tag("h1", title), *leads, *(_unfinished(unfinished) if unfinished else ()), nav, *sections, *rest
    )


def headline(rows: Sequence[Summary]) -> str:
    """What the rows of a summary say in a sentence or two, in their own numbers, and how little that may be."""
    ranked = [row for row in rows if row.probe is not None and not methods.parse(row.method).yardstick]
    if not ranked:
        return "There are no labels, so there is no accuracy. The page shows costs and label-free measures only."
    doubt = _doubt(min(row.seeds for row in ranked))
    if len({(row.seed_numbers, row.split) for row in ranked}) > 1:
        return f"Not all rows have the same seeds and images, so their means are not ranked. {_largest(ranked)} {doubt}"
    kind = "validation accuracy of the probe" if ranked[0].split != "test" else "probe accuracy"
    best = max(ranked, key=lambda row: row.probe or 0.0)
    top = percent(best.probe, ".1f")
    if len(ranked) == 1:
        return f"Final {kind}: {best.label} with {top} %. {doubt}"
    level = [row.label for row in ranked if row is not best and percent(row.probe, ".1f") == top]
    ties = f", equal to {' and '.join(level)}" if level else ""
    apart = " (yardsticks apart)" if len(ranked) < len(rows) else ""
    return f"Highest final {kind} of {len(ranked)}{apart}: {best.label} with {top} %{ties}. {_against(best)} {doubt}"


def _unfinished(entries: Sequence[Entry]) -> list[Html]:
    rows = [
        [entry.folder.name, entry.state, f"{entry.step} of {entry.num_steps}", entry.reason, entry.command]
        for entry in entries
    ]
    intro = "These runs are not finished, so no figure on this page counts them."
    return [
        tag("h2", "Unfinished runs"),
        tag("p", intro),
        page.table(["Run", "State", "Saved at step", "Why", "To go on"], rows, words=True, stacked=True),
    ]


def _check_free(out: Path, force: bool) -> None:
    if reading.is_folder(out):
        raise CfclError(f"{str(out)!r} is a folder, but a page is a file: give --out a file, such as report.html")
    if reading.exists(out) and not force:
        raise CfclError(f"{str(out)!r} exists and would be replaced: give --force, or another --out")


def _against(best: Summary) -> str:
    if best.method == "fedavg":
        return "No exchange exceeded it."
    if not best.gains:
        return "There is no FedAvg run with the same settings to compare it with."
    return f"Gain over FedAvg{_gain(best)}."


def _largest(rows: Sequence[Summary]) -> str:
    """The same where rows cannot be ranked: the largest gain within seeds."""
    best = max(rows, key=lambda row: -math.inf if row.over_fedavg is None else row.over_fedavg)
    return (
        f"Largest gain over FedAvg, of {best.label}{_gain(best)}." if best.gains else "None has a FedAvg run beside it."
    )


def _gain(row: Summary) -> str:
    mean, low, high = (percent(gain, "+z.1f") for gain in (row.over_fedavg, min(row.gains), max(row.gains)))
    if len(row.gains) == 1:
        return f" in the same seed: {mean} points"
    positive = sum(gain > 0 for gain in row.gains)
    return (
        f": {mean} points on average over {len(row.gains)} paired seeds (from {low} to {high}; positive in {positive} "
        f"of {len(row.gains)})"
    )


def _doubt(num_seeds: int) -> str:
    if num_seeds == 1:
        return "One seed proves nothing: any difference may be chance."
    if num_seeds < 5:
        return f"With only {num_seeds} seeds, a small difference may still be chance."
    return f"All numbers are means over {num_seeds} seeds."


def _lead(rows: Sequence[Summary], name: str) -> Html:
    return tag("p", *([tag("strong", f"{name}: ")] if name else []), headline(rows), class_="lead")


def _group(name: str, runs: Sequence[Run], rows: Sequence[Summary], figures: _Figures) -> Html:
    parts: list[tuple[str, list[Html]]] = [
        ("Summary", [_summary_table(rows, runs)]),
        *_by_labels(rows, runs),
        ("Privacy", _privacy(runs)),
        ("Learning curves", _grid(_learning(runs, figures))),
        ("Costs", _grid(_costs(runs, figures))),
        ("Network and data per device", _network(runs, figures)),
        ("Distances between labels", _grid(figures.show(plots.label_distances(runs), "Label distances", _DISTANCES))),
        ("Faults", _faults(runs, figures)),
        ("Pulled items", _grid(_quantities(runs, PULLS, figures))),
        ("Health of the embeddings", _grid(_quantities(runs, HEALTH, figures))),
        ("Training", _grid(_quantities(runs, TRAINING, figures))),
    ]
    shown = [tag("h3", heading) + page.join(content) for heading, content in parts if content]
    return tag("section", tag("h2", name), *map(Html, shown), id=f"run-{name}")


def _grid(items: Sequence[Html]) -> list[Html]:
    return [tag("div", *items, class_="figures")] if items else []


_DISTANCES = (
    "Mean distance between the embeddings of test images with these labels, mean over seeds. A good encoder is dark "
    "on the diagonal and bright elsewhere. Separation is the mean off the diagonal divided by the mean on it."
)


def _summary_table(rows: Sequence[Summary], runs: Sequence[Run]) -> Html:
    columns: dict[str, Callable[[Summary], str]] = {
        "Method": lambda row: row.label,
        "Seeds": lambda row: str(row.seeds),
        "Probe accuracy (%)": _probe_cell,
        "Gain over FedAvg (points)": lambda row: percent(row.over_fedavg, "+z.1f"),
        "kNN (%)": lambda row: percent(row.knn, ".1f"),
        "CKA": lambda row: number(row.cka, ".3f"),
        "Pushed": lambda row: size(row.bytes_push),
        "Pulled": lambda row: size(row.bytes_pull),
        "Uplink": lambda row: size(row.bytes_up),
        "Delay": lambda row: f"{row.seconds + row.selection:.2f} s",
        "of which selection": lambda row: f"{row.selection:.2f} s",
    }
    if any(row.joules > 0 for row in rows):
        columns["Energy"] = lambda row: f"{row.joules:.2f} J"
    left_out = len(runs) - sum(row.seeds for row in rows)
    doubt = (
        "half of the 95 % interval, over seeds and images"
        if rows[0].accuracies
        else "the standard deviation over seeds"
    )
    notes = [f"Final model, mean over seeds; ± is {doubt}."]
    if splits := [row.label for row in rows if row.split != "test"]:
        notes.append(f"Accuracies are of validation images, not of test images: {', '.join(splits)}.")
    if common := [f"{key}={show(value)}" for key, value in usual(runs).items()]:
        notes.append(f"Settings that a name does not mention: {', '.join(common)}.")
    if left_out:
        notes.append(f"Runs left out because they repeat the settings and seed of another run: {left_out}.")
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    return page.join([page.table(list(columns), cells, stacked=True), tag("p", " ".join(notes))])


def _probe_cell(row: Summary) -> str:
    spread = "" if row.probe_doubt is None else f" ±{percent(row.probe_doubt, '.1f')}"
    return percent(row.probe, ".1f") + spread


def _by_labels(summaries: Sequence[Summary], runs: Sequence[Run]) -> list[tuple[str, list[Html]]]:
    """Accuracies by number of labels, with what one would use instead; nothing where neither is known."""
    folders = dict.fromkeys(run.folder.parent for run in runs)
    instead = [row for folder in folders for row in labels.of_yardsticks(yardsticks.find(folder)[1])]
    rows = [*labels.of_summaries(summaries), *instead]
    if not rows:
        return []
    heads = labels.columns(row.accuracies for row in rows)
    cells = [[row.name, row.dim, *(labels.cell(row.accuracies.get(head)) for head in heads)] for row in rows]
    intro = (
        "Accuracy of a linear probe in percent, ± half of its 95 % interval: over images and seeds, and for what you "
        "would use instead over images and draws of labels."
    )
    table = page.table(["", "Numbers per image", *map(labels.title, heads)], cells, stacked=True)
    return [(labels.INSTEAD if instead else "Accuracy by labels per class", [tag("p", intro), table])]


def _privacy(runs: Sequence[Run]) -> list[Html]:
    """What noise has bought, once for all runs that say the same."""
    told = dict.fromkeys(sentence for run in runs for sentence in privacy.sentences(run))
    return [tag("p", sentence) for sentence in told]


def _learning(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    steps = "Solid lines with markers: linear probe. Thin dashed lines: nearest neighbours. Bands span the seeds."
    traffic = (
        "Accuracy against the bytes that devices sent to each other. A method that sends none is a dotted level line."
    )
    delay = "Accuracy against the time that communication takes. Local training is not charged by default."
    return [
        *figures.show(plots.accuracy(runs), "Accuracy over steps", steps),
        *figures.show(plots.accuracy_by_bytes(runs), "Accuracy against bytes between devices", traffic),
        *figures.show(plots.accuracy_by_seconds(runs), "Accuracy against delay", delay),
        *_quantities(runs, plots.few_labels(runs), figures),
    ]


def _costs(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    traffic = (
        "Mean over seeds. A pixel value counts as one byte; an entry of an embedding or a parameter counts as four."
    )
    delay = (
        "Mean over seeds. The model adds the time of the slowest device in every exchange and aggregation, at the "
        "rates of the settings. The time for selecting items was measured, so it depends on the machine."
    )
    return [
        *figures.show(plots.traffic(runs), "Bytes per method", traffic),
        *figures.show(plots.delay(runs), "Seconds per method", delay),
    ]


def _quantities(runs: Sequence[Run], quantities: Iterable[Quantity], figures: _Figures) -> list[Html]:
    return [
        item
        for quantity in quantities
        for item in figures.show(plots.curves(runs, quantity), quantity.title, READING[quantity.key.partition(".")[0]])
    ]


def _faults(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    """What became of messages, method by method; nothing where nothing goes wrong."""
    rows = faults.rows(runs)
    if not rows:
        return []
    intro = (
        "What became of the messages that devices and server wanted to send, in percent, over all seeds. What was "
        "sent is charged, also if it was late, lost or refused; what did not leave is not."
    )
    return [
        tag("p", intro),
        page.table(list(faults.HEAD), rows, stacked=True),
        *_grid(_quantities(runs, FAULTS, figures)),
    ]


def _network(runs: Sequence[Run], figures: _Figures) -> list[Html]:
    """The graph of one run: of the first seed, with traffic if there is any."""
    seed = runs[0].config.seed
    run = next((run for run in runs if run.config.seed == seed and final(run).bytes_d2d > 0), runs[0])
    caption = (
        f"Seed {run.config.seed}, {run.config.method}. Other seeds have another network. Numbers in circles are "
        "devices; small numbers are the labels that they hold. A wider edge carried more bytes."
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
    setup = run.setup
    neighbours: list[list[int]] = [[] for _ in setup.points]
    for one, other in setup.edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    rows = [
        [str(device), f"{points:,}", _labels(setup.labels, device), ", ".join(map(str, sorted(neighbours[device])))]
        for device, points in enumerate(setup.points)
    ]
    found = page.table(["Device", "Points", "Labels", "Neighbours"], rows, words=True)
    return found if len(rows) <= 20 else tag("details", tag("summary", f"All {len(rows)} devices"), found)


def _labels(labels: Sequence[Sequence[int]] | None, device: int) -> str:
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
    intro = tag("p", "Settings in which the runs differ. All other settings are the same.") if keys else Html()
    return tag("section", tag("h2", "Settings"), intro, contrast, *full, id="settings")


def _versions(runs: Sequence[Run]) -> Html:
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for run in runs:
        key = tuple((name, show(value)) for name, value in run.environment.to_dict().items())
        found[key] = found.get(key, 0) + 1
    names = list(dict.fromkeys(name for environment in found for name, _ in environment))
    rows = [[str(runs_in_it), *(dict(key).get(name, "–") for name in names)] for key, runs_in_it in found.items()]
    made = tag("p", f"This page was made by cfcl {__version__}.")
    return tag("section", tag("h2", "Versions"), page.table(["Runs", *names], rows, words=True), made, id="versions")


def _commands(runs: Sequence[Run]) -> Html:
    lines = [_command(run) for run in runs]
    intro = tag("p", "Each line repeats one run. The same versions give the same records.")
    return tag("section", tag("h2", "Commands"), intro, tag("pre", "\n".join(lines)), id="commands")


def _command(run: Run) -> str:
    where = run.environment.device
    device = [] if where == "cpu" else ["--device", where]
    path = str(run.folder / "config.toml")
    return command("cfcl", "run", f"./{path}" if path.startswith("-") else path, *device)
