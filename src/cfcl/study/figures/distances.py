"""How far labels lie from each other (Fig. 4)."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from cfcl.methods import parse
from cfcl.study import layout, tables
from cfcl.study.bundle import Measured, Study
from cfcl.study.figures.figure import CFCL, StudyFigure, plain

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Map:
    """Distances between labels, mean over seeds."""

    labels: list[int]
    """Those that all runs have."""
    distances: Matrix
    separations: list[float]
    """One per run, where it is known."""

    @property
    def title(self) -> str:
        """The mean separation, and how many seeds it is of."""
        if not self.separations:
            return "separation not known"
        return f"separation {statistics.fmean(self.separations):.2f} ({layout.seeds([len(self.separations)])})"


def draw(study: Study, name: str) -> Figure | None:
    """Mean embedding distance between labels: a row per dataset with one colour scale, a column per method."""
    methods = study.methods(name)
    shown = {panel: part for panel in study.panels(name) if (part := _maps(study, name, panel, methods))}
    if not shown:
        return None
    figure, rows = layout.grid(len(shown), len(methods), width=3.2, height=3.0)
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


def _maps(study: Study, name: str, panel: str, methods: Iterable[str]) -> dict[str, Map]:
    """The map of each method that has one."""
    runs = layout.alike({method: study.find(name, panel, method) for method in methods})
    return {method: known for method, found in runs.items() if (known := mean_map(found.values()))}


def mean_map(runs: Iterable[Measured]) -> Map | None:
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
        layout.blank(axes, f"{panel}, {_words(method)}:\nno finished run")
        return None
    image = axes.imshow(known.distances, cmap="cividis", interpolation="none")
    axes.set_title(f"{panel}, {_words(method)}\n{known.title}", fontsize=9)
    ticks = range(0, len(known.labels), 1 + (len(known.labels) - 1) // 10)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(list(ticks), [str(known.labels[tick]) for tick in ticks])
    axes.grid(False)
    return image


def _words(method: str) -> str:
    return f"{parse(method).title} {parse(method).mode}".rstrip()


FIGURE = StudyFigure(
    name="fig4",
    title="Fig. 4: distances between labels",
    reading="Mean distance between the embeddings of test images with these labels, under the final global encoder; "
    "one colour scale a row. A good encoder is dark on the diagonal and bright elsewhere; separation is the mean off "
    "the diagonal over the mean on it.",
    entries=lambda profile, panel: plain("fedavg", *CFCL),
    draw=draw,
    table=partial(tables.compared, columns=[tables.Column("Separation", lambda run: run.separation, digits=3)]),
    needs="distances",
)
