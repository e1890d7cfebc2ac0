"""The overlap of all neighbours as a figure: one cell for each link."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfcl.records import Overlap
from cfcl.runs import style

NUMBERED = 16
"""Devices up to which a cell has room for its number."""
HATCHED = 40
"""Devices up to which cells without a link are hatched; of more they are blank."""
MOST = 1000
"""Devices of which a picture can show every link."""
SIDE, LARGEST = 4.0, 10.0
"""Inches of a panel: of few devices, and of many."""
PIXELS = 2.5
"""Of a cell, at the least."""

Cells = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@style.styled
def draw(found: Overlap) -> Figure:
    """Shares of all links, transmitters down and receivers across; beside them the truth, where it is known."""
    panels = {"New to the receiver, estimated": _cells(found)}
    if found.lacked is not None:
        panels["Of a label that it lacks (a check, needs labels)"] = _truth(found)
    side = min(LARGEST, max(SIDE, 0.12 * len(found.own)))
    resolution = max(style.SETTINGS["figure.dpi"], math.ceil(PIXELS * len(found.own) / side))
    figure = Figure(figsize=(side * len(panels), side + 0.75), dpi=resolution)
    figure.set_layout_engine("compressed")
    columns = list(figure.subplots(1, len(panels), squeeze=False).ravel())
    for axes, (title, cells) in zip(columns, panels.items(), strict=True):
        image = axes.imshow(cells, cmap="cividis", vmin=0.0, vmax=100.0, interpolation="none")
        _frame(axes, title, len(found.own))
        if len(found.own) <= NUMBERED:
            _numbers(axes, cells)
    bar = figure.colorbar(image, ax=columns, location="bottom", shrink=0.7, aspect=40)
    gap = "hatched" if len(found.own) <= HATCHED else "blank"
    bar.set_label(f"percent of the transmitter's data; {gap}: no link; diagonal: a device's own")
    return figure


def _cells(found: Overlap) -> Cells:
    """The estimate in percent, transmitters by receivers; NaN where there is no link."""
    shares = {(link.transmitter, link.receiver): link.new for link in found.links}
    own = {(i, i): share for i, share in enumerate(found.own) if share is not None}
    return _filled(len(found.own), {**shares, **own})


def _truth(found: Overlap) -> Cells:
    shares = {(link.transmitter, link.receiver): link.lacked for link in found.links if link.lacked is not None}
    return _filled(len(found.own), {**shares, **{(i, i): 0.0 for i in range(len(found.own))}})


def _filled(number: int, shares: dict[tuple[int, int], float]) -> Cells:
    cells = np.full((number, number), math.nan)
    for place, share in shares.items():
        cells[place] = 100 * share
    return cells


def _frame(axes: Axes, title: str, number: int) -> None:
    axes.set_title(title)
    axes.set_xlabel("receiver")
    axes.set_ylabel("transmitter")
    axes.grid(False)
    if number <= HATCHED:  # cells without a link are transparent, so that what lies behind them shows
        axes.patch.set(edgecolor="#BBBBBB", hatch="////", linewidth=0.0)
    ticks: Sequence[int] = range(0, number, 1 + (number - 1) // NUMBERED)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(list(ticks), [str(tick) for tick in ticks])


def _numbers(axes: Axes, cells: Cells) -> None:
    for (row, column), value in np.ndenumerate(cells):
        if not math.isnan(value):
            colour = style.BLACK if value > 55 else "white"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=8, color=colour)
