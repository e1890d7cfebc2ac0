"""Figures of runs, drawn from their records. A figure with nothing to show is None."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from cfcl.records import Evaluation, Faults, Final, Pull, Record, Update
from cfcl.runs import network, style
from cfcl.runs.folders import Run
from cfcl.runs.progress import size
from cfcl.runs.series import (
    Band,
    Series,
    final,
    over_steps,
    seconds,
    selection_seconds,
    series,
)

WIDTH, HEIGHT = 4.6, 3.1
"""Inches of one panel: at this width its text can be read on a phone."""

_SHADES = {
    "pushed": style.SKY,
    "pulled": style.BLUE,
    "uplink": style.GREY,
    "delay model": style.BLUE,
    "selection, measured": style.ORANGE,
}


@dataclass(frozen=True)
class Quantity:
    """A recorded figure to draw over steps."""

    kind: type[Record]
    key: str
    title: str
    unit: str
    optional: bool = False
    """A method at zero throughout does not have it, and is left out."""


PULLS = (
    Quantity(Pull, "effective_candidates", "Effective number of candidates", "candidates"),
    Quantity(Pull, "held_labels", "Pulled items whose label the receiver already has", "share of items"),
    Quantity(
        Pull, "centroid_distance", "Distance of pulled items to the receiver's nearest centroid", "embedding distance"
    ),
)
TRAINING = (
    Quantity(Update, "triplet", "Triplet loss", "loss"),
    Quantity(Update, "regulariser", "Regulariser, before its weight", "loss", optional=True),
    Quantity(Update, "weight", "Weight W_t of the regulariser", "weight", optional=True),
    Quantity(Update, "margin", "Dynamic margin of the regulariser", "embedding distance", optional=True),
    Quantity(Update, "active", "Triplets with a loss above zero", "share of batch"),
    Quantity(Update, "pulled_share", "Pulled items among anchors and negatives", "share of batch", optional=True),
)
HEALTH = (
    Quantity(Evaluation, "alignment", "Alignment: an image and its augmentation", "mean squared distance"),
    Quantity(Evaluation, "uniformity", "Uniformity: spread over the sphere", "log potential (lower: more even)"),
    Quantity(Evaluation, "effective_rank", "Effective rank of the embeddings", "dimensions"),
    Quantity(Evaluation, "cka", "Agreement of local models (CKA)", "similarity, 0 to 1"),
    Quantity(Evaluation, "features_alignment", "Alignment of the features", "mean squared distance"),
    Quantity(Evaluation, "features_uniformity", "Uniformity of the features", "log potential (lower: more even)"),
    Quantity(Evaluation, "features_effective_rank", "Effective rank of the features", "dimensions"),
)
FAULTS = (
    Quantity(Faults, "online", "Devices that are online", "share of devices"),
    Quantity(Faults, "used", "Messages that were used, from the start on", "share of messages"),
)
FEATURES = Quantity(Evaluation, "features_probe", "Accuracy of the features, all labels", "probe accuracy")


def few_labels(runs: Sequence[Run]) -> list[Quantity]:
    """Accuracies with few labels per class, and those of the features, as far as runs have them."""
    numbers = dict.fromkeys(number for run in runs for number in final(run).few or ())
    few = [
        Quantity(Evaluation, f"{key}.{number}", f"Accuracy of the {space}, {number} labels per class", "probe accuracy")
        for space, key in (("embedding", "few"), ("features", "features_few"))
        for number in numbers
    ]
    return [*few, FEATURES]


@style.styled
def draw_run(run: Run, folder: Path) -> list[Path]:
    """Write the plots of one run as PNG; the paths, without those that have nothing to show."""
    figures = {
        "accuracy": accuracy([run]),
        "few_labels": curves([run], *few_labels([run]), columns=2),
        "traffic": traffic([run]),
        "delay": delay([run]),
        "graph": network.graph(run),
        "label_distances": label_distances([run]),
        "pulls": curves([run], *PULLS),
        "training": curves([run], *TRAINING, columns=2),
        "health": curves([run], *HEALTH, columns=2),
        "faults": curves([run], *FAULTS, columns=2),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / f"{name}.png": figure for name, figure in figures.items() if figure is not None}
    for path, figure in written.items():
        style.save_png(figure, path)
    return list(written)


@style.styled
def accuracy(runs: Sequence[Run]) -> Figure | None:
    """Probe accuracy over steps; nearest-neighbour accuracy beside it, thin and dashed."""
    groups = series(runs)
    points = _measured(groups, lambda group: over_steps(group, Evaluation, "probe"))
    if not points:
        return None
    splits = " or the ".join(dict.fromkeys(run.setup.split or "test" for run in runs))
    figure, axes = _panel(f"Accuracy of the global encoder on the {splits} split", "step", "accuracy")
    looks = style.looks(groups)
    for label, line in points.items():
        _line(axes, line, label, looks[label])
        neighbours = over_steps(groups[label], Evaluation, "knn")
        if neighbours is not None:
            axes.plot(neighbours.x, neighbours.mean, color=looks[label].colour, linestyle="--", linewidth=0.8)
    _legend(figure, axes, extra=[Line2D([], [], color=style.GREY, linestyle="--", linewidth=0.8, label="(kNN)")])
    return figure


@style.styled
def accuracy_by_bytes(runs: Sequence[Run]) -> Figure | None:
    """Probe accuracy against bytes between devices; a method that sends none is a level line at its last accuracy."""
    groups = series(runs)
    points = _measured(groups, lambda group: _probe_against(group, lambda run, at: at.bytes_d2d))
    if not any(found.x[-1] > 0 for found in points.values()):
        return None
    figure, axes = _panel("Accuracy against device-to-device traffic", "bytes pushed and pulled", "probe accuracy")
    looks = style.looks(groups)
    for label, line in points.items():
        if line.x[-1] > 0:
            _line(axes, line, label, looks[label])
        else:
            name, colour = f"{label} (final)", looks[label].colour
            axes.axhline(line.mean[-1], color=colour, linestyle=":", linewidth=1.5, label=name)
    axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
    _legend(figure, axes)
    return figure


@style.styled
def accuracy_by_seconds(runs: Sequence[Run]) -> Figure | None:
    """Probe accuracy against the seconds of the delay model and the measured selection time."""
    groups = series(runs)
    points = _measured(groups, lambda group: _probe_against(group, seconds))
    if not points:
        return None
    figure, axes = _panel("Accuracy against delay", "seconds (transmission and selection)", "probe accuracy")
    looks = style.looks(groups)
    for label, line in points.items():
        _line(axes, line, label, looks[label])
    _legend(figure, axes)
    return figure


@style.styled
def curves(runs: Sequence[Run], *quantities: Quantity, columns: int = 1) -> Figure | None:
    """Recorded figures over steps, one panel each, `columns` beside each other."""
    groups = series(runs)
    found = {quantity: _recorded(groups, quantity) for quantity in quantities}
    shown = {quantity: points for quantity, points in found.items() if points}
    if not shown:
        return None
    figure, panels = _panels(len(shown), min(columns, len(shown)))
    looks = style.looks(groups)
    for axes, (quantity, points) in zip(panels, shown.items(), strict=True):
        _label(axes, quantity.title, "step", quantity.unit)
        for label, line in points.items():
            _line(axes, line, label, looks[label])
    _legend(figure, *panels)
    return figure


@style.styled
def traffic(runs: Sequence[Run]) -> Figure:
    """Bytes to the server and bytes between devices, mean over seeds."""
    groups = series(runs)
    figure, (uplink, d2d) = _rows(2, groups)
    exchanged = {"pushed": _means(groups, "bytes_push"), "pulled": _means(groups, "bytes_pull")}
    _bars(uplink, "Devices to server", list(groups), {"uplink": _means(groups, "bytes_up")})
    _bars(d2d, "Device to device", list(groups), exchanged)
    _legend(figure, d2d)
    return figure


@style.styled
def delay(runs: Sequence[Run]) -> Figure:
    """Seconds of the delay model and of the measured selection, mean over seeds."""
    groups = series(runs)
    figure, (axes,) = _rows(1, groups)
    selection = [
        statistics.fmean(selection_seconds(run, final(run).step) for run in group) for group in groups.values()
    ]
    _stack(axes, "Delay", list(groups), {"delay model": _means(groups, "seconds"), "selection, measured": selection})
    _legend(figure, axes)
    return figure


@style.styled
def label_distances(runs: Sequence[Run]) -> Figure | None:
    """Mean embedding distance between every pair of labels, one panel per method, one colour scale for all."""
    found = {label: _mean_map(group) for label, group in series(runs).items() if _mapped(group)}
    maps = {label: part for label, part in found.items() if part[0]}
    if not maps:
        return None
    columns = min(2, len(maps))
    figure, panels = _panels(len(maps), columns, width=WIDTH / columns, height=2.55 if columns == 2 else 4.6)
    figure.set_layout_engine("compressed")
    low, high = min(part[1].min() for part in maps.values()), max(part[1].max() for part in maps.values())
    for axes, (label, (names, values, separation)) in zip(panels, maps.items(), strict=True):
        image = axes.imshow(values, cmap="cividis", vmin=low, vmax=high, interpolation="none")
        axes.set_title(label.replace(", ", "\n") + f"\nseparation {separation:.2f}", fontsize=8.5)
        ticks = range(0, len(names), 1 + (len(names) - 1) // 10)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(list(ticks), [str(names[tick]) for tick in ticks])
        axes.grid(False)
    bar = figure.colorbar(image, ax=panels, location="bottom", shrink=0.7, aspect=30)
    bar.set_label("mean embedding distance between labels")
    return figure


def _measured(groups: Series, measure: Callable[[Sequence[Run]], Band | None]) -> dict[str, Band]:
    """What `measure` finds, for the series where it finds something."""
    return {label: found for label, group in groups.items() if (found := measure(group)) is not None}


def _recorded(groups: Series, quantity: Quantity) -> dict[str, Band]:
    found = _measured(groups, lambda group: over_steps(group, quantity.kind, quantity.key))
    return {label: points for label, points in found.items() if any(points.mean) or not quantity.optional}


def _probe_against(group: Sequence[Run], measure: Callable[[Run, Evaluation], float]) -> Band | None:
    """Probe accuracy with another figure of the same evaluations as abscissa, its mean over seeds."""
    found = over_steps(group, Evaluation, "probe")
    if found is None:
        return None
    evaluations = [{at.step: at for at in run.evaluations} for run in group]
    x = [
        statistics.fmean(measure(run, by_step[int(step)]) for run, by_step in zip(group, evaluations, strict=True))
        for step in found.x
    ]
    return Band(x, found.mean, found.low, found.high)


def _means(groups: Series, key: str) -> list[float]:
    return [statistics.fmean(getattr(final(run), key) for run in group) for group in groups.values()]


def _panels(number: int, columns: int, *, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """`number` panels in rows of `columns`."""
    rows = math.ceil(number / columns)
    figure = Figure(figsize=(width * columns, height * rows))
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axes in panels[number:]:
        axes.remove()
    return figure, panels[:number]


def _panel(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure, (axes,) = _panels(1, 1)
    _label(axes, title, x, y)
    return figure, axes


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.locator_params(nbins=6)


def _line(axes: Axes, points: Band, label: str, look: style.Look) -> None:
    gap = max(1, len(points.x) // 8)
    axes.plot(points.x, points.mean, label=label, markevery=gap, **look.options)
    if points.low != points.high:
        axes.fill_between(points.x, points.low, points.high, color=look.colour, alpha=0.1, linewidth=0)
        for edge in (points.low, points.high):
            axes.plot(points.x, edge, color=look.colour, alpha=0.4, linewidth=0.6)


def _legend(figure: Figure, *panels: Axes, extra: Sequence[Line2D] = ()) -> None:
    """One legend below all panels, each curve once; the figure grows by what it takes."""
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    handles = [*entries.values(), *extra]
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = 3 if longest < 18 else 2 if longest < 30 else 1
    figure.set_figheight(figure.get_figheight() + 0.18 * (math.ceil(len(handles) / columns) - 1))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _rows(number: int, groups: Series) -> tuple[Figure, Sequence[Axes]]:
    """Panels of horizontal bars below each other, with room for names of several lines."""
    lines = max(label.count(", ") for label in groups)
    figure = Figure(figsize=(WIDTH, 0.4 + number * (0.6 + (0.34 + 0.12 * lines) * len(groups))))
    return figure, list(figure.subplots(number, 1, squeeze=False).ravel())


def _bars(axes: Axes, title: str, labels: Sequence[str], values: dict[str, list[float]]) -> None:
    """Bars side by side, with sizes in bytes; logarithmic where they differ by orders."""
    axes.set_title(title)
    positive = [value for row in values.values() for value in row if value > 0]
    height = 0.8 / len(values)
    for number, (name, row) in enumerate(values.items()):
        places = [position + (number - (len(values) - 1) / 2) * height for position in range(len(labels))]
        drawn = axes.barh(places, row, height, color=_SHADES[name], label=name)
        axes.bar_label(drawn, [size(value) for value in row], padding=3, fontsize=8)
    if positive and max(positive) > 30 * min(positive):
        axes.set_xscale("log")
        axes.set_xlim(min(positive) / 3, max(positive) * 6)
    else:
        axes.set_xlim(0, 1.25 * max(positive, default=1.0))
        axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
    _bar_axes(axes, labels)


def _stack(axes: Axes, title: str, labels: Sequence[str], values: dict[str, list[float]]) -> None:
    """Bars one after another, with their sums in seconds."""
    axes.set_title(title)
    done = [0.0] * len(labels)
    for name, row in values.items():
        drawn = axes.barh(range(len(labels)), row, 0.6, left=done, color=_SHADES[name], label=name)
        done = [before + value for before, value in zip(done, row, strict=True)]
    words = [f"{value:.2f} s" if value < 1e6 else f"{value:.3g} s" for value in done]
    axes.bar_label(drawn, words, padding=3, fontsize=8)
    axes.set_xlim(0, 1.25 * max([*done, 1e-9]))
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    _bar_axes(axes, labels)


def _bar_axes(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [label.replace(", ", "\n") for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)


def _mapped(group: Sequence[Run]) -> list[Final]:
    """The last records of those with labels."""
    finals = [run.final for run in group]
    return [found for found in finals if found.label_distances is not None and found.separation is not None]


def _mean_map(group: Sequence[Run]) -> tuple[list[int], np.ndarray[tuple[int, int], np.dtype[np.float64]], float]:
    """The labels that all runs of the group have, their mean distances and the mean separation."""
    finals = _mapped(group)
    maps = [np.array(found.label_distances, dtype=np.float64) for found in finals]
    # The first run folders name no labels: they have all of them.
    known = [found.labels or tuple(range(len(distances))) for found, distances in zip(finals, maps, strict=True)]
    names = sorted(set(known[0]).intersection(*known[1:]))
    values = []
    for distances, labels in zip(maps, known, strict=True):
        places = [labels.index(name) for name in names]
        values.append(distances[np.ix_(places, places)])
    return (
        names,
        np.mean(values, axis=0),
        statistics.fmean(found.separation for found in finals if found.separation is not None),
    )
