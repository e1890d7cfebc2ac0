"""How far labels lie from each other (Fig. 4), and selected items from what their receiver has (Fig. 7)."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from cfcl.study import panels
from cfcl.study.bundle import BIN, Record, Selection, Study
from cfcl.study.plan import MODES

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Map:
    """Distances between labels, mean over seeds."""

    labels: list[int]
    """Those that all runs have."""
    distances: Matrix
    separations: list[float]
    """One a run, where it is known."""

    @property
    def title(self) -> str:
        """The mean separation, and how many seeds it is of."""
        if not self.separations:
            return "separation not known"
        return f"separation {statistics.fmean(self.separations):.2f} ({panels.seeds([len(self.separations)])})"


def distances(study: Study) -> Figure | None:
    """Mean embedding distance between each pair of labels: a row a dataset with one colour scale, a column a method."""
    methods = panels.methods(study, "fig4")
    shown = {panel: part for panel in study.panels("fig4") if (part := _maps(study, panel, methods))}
    if not shown:
        return None
    figure, rows = panels.grid(len(shown), len(methods), width=3.2, height=3.0)
    for row, (panel, part) in zip(rows, shown.items(), strict=True):
        low = min(known.distances.min() for known in part.values())
        high = max(known.distances.max() for known in part.values())
        images = [_heat(axes, panel, method, part.get(method)) for axes, method in zip(row, methods, strict=True)]
        for image in images:
            if image is not None:
                image.set_clim(low, high)
        bar = figure.colorbar(next(image for image in images if image), ax=row, shrink=0.9, pad=0.01, aspect=25)
        bar.set_label("mean embedding distance")
    return figure


def _maps(study: Study, panel: str, methods: Iterable[str]) -> dict[str, Map]:
    """The map of each method that has one."""
    runs = panels.alike({method: study.find("fig4", panel, method) for method in methods})
    return {method: known for method, found in runs.items() if (known := mean_map(found.values()))}


def mean_map(runs: Iterable[Record]) -> Map | None:
    """The mean map of the runs that have one; None without a label that they share."""
    mapped = [run for run in runs if run.distances]
    labels = sorted(set[int].intersection(*(set(run.labels) for run in mapped))) if mapped else []
    if not labels:
        return None
    parts = []
    for run in mapped:
        places = [run.labels.index(label) for label in labels]
        parts.append(np.array(run.distances, dtype=np.float64)[np.ix_(places, places)])
    return Map(labels, np.mean(parts, axis=0), [run.separation for run in mapped if run.separation is not None])


def _heat(axes: Axes, panel: str, method: str, known: Map | None) -> AxesImage | None:
    if known is None:
        panels.blank(axes, f"{panel}, {_words(method)}:\nno finished run")
        return None
    image = axes.imshow(known.distances, cmap="cividis", interpolation="none")
    axes.set_title(f"{panel}, {_words(method)}\n{known.title}", fontsize=9)
    ticks = range(0, len(known.labels), 1 + (len(known.labels) - 1) // 10)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(list(ticks), [str(known.labels[tick]) for tick in ticks])
    axes.grid(False)
    return image


def _words(method: str) -> str:
    return f"{panels.name(method)} {panels.mode_of(method)}".rstrip()


def selections(study: Study) -> Figure | None:
    """Histograms of the distance of selected items to the nearest centroid of their receiver, all under one model."""
    found = study.reported
    if not found:
        return None
    names = list(dict.fromkeys(item.panel for item in found))
    modes = [mode for mode in MODES if any(panels.mode_of(item.method) == mode for item in found)]
    figure, rows = panels.grid(len(names), len(modes))
    for row, panel in zip(rows, names, strict=True):
        for axes, mode in zip(row, modes, strict=True):
            part = [item for item in found if item.panel == panel and panels.mode_of(item.method) == mode]
            _histograms(axes, part)
            seeds = panels.seeds(len([item for item in part if item.method == method]) for method in _methods(part))
            panels.title(axes, f"{panel}, {mode}", seeds)
    return figure


def pooled(found: Sequence[Selection]) -> tuple[list[float], float, float]:
    """Items of several worlds together: shares of items by bin, mean distance, share of held labels."""
    total = sum(item.items for item in found)
    counts = [sum(column) for column in zip_longest(*(item.histogram for item in found), fillvalue=0)]
    distance = sum(item.items * item.distance for item in found) / total
    held = sum(item.items * item.held for item in found) / total
    return [count / total for count in counts], distance, held


def _methods(found: Iterable[Selection]) -> list[str]:
    return panels.sort(item.method for item in found)


def _histograms(axes: Axes, found: Sequence[Selection]) -> None:
    if not found:
        panels.blank(axes, "no selections")
        return
    methods = _methods(found)
    looks = panels.looks(methods)
    top, means = 0.0, {}
    for method in methods:
        shares, distance, held = pooled([item for item in found if item.method == method])
        edges = [BIN * place for place in range(len(shares) + 1)]
        look = looks[method]
        label = f"{panels.name(method)}: mean {distance:.3f}, {100 * held:.0f} % held already"
        axes.stairs(shares, edges, color=look.colour, linestyle=look.line, linewidth=1.5, label=label)
        means[distance] = look.colour
        top = max(top, *shares)
    axes.vlines(list(means), 0, top, colors=list(means.values()), linestyle=":", linewidth=1.3)
    axes.set_ylim(0, top * (1.05 + 0.12 * len(methods)))
    axes.legend(loc="upper left", fontsize=8, handlelength=1.8, borderaxespad=0.2)
    axes.set(xlabel="distance to the receiver's nearest centroid", ylabel="share of items")
