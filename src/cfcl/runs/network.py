"""The device-to-device graph of a run as a figure."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from cfcl.runs import style
from cfcl.runs.folders import Run

CROWDED, MANY = 30, 150
"""Devices above which labels, and then numbers too, find no room."""


@style.styled
def graph(run: Run) -> Figure:
    """Devices where they sit, edges as wide as the bytes they carried, and the labels each device holds."""
    setup = run.setup
    places = setup.positions or _circle(len(setup.points))
    figure = Figure(figsize=(4.6, 4.2))
    axes = figure.subplots()
    axes.set_title("The device-to-device graph")
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.margins(0.14)
    carried = edge_bytes(run)
    most = max(carried.values(), default=0)
    widths = [0.4 + 1.8 * amount / most if most else 0.8 for amount in carried.values()]
    many = len(places) > MANY
    edges = LineCollection(
        [(places[one], places[other]) for one, other in carried],
        linewidths=[width / 4 for width in widths] if many else widths,
        colors="#B0B0B0",
        capstyle="round",
        zorder=1,
        # thousands of lines are smaller as pixels
        rasterized=many,
    )
    axes.add_collection(edges)
    _devices(axes, places, setup.labels)
    return figure


def edge_bytes(run: Run) -> dict[tuple[int, int], int]:
    """Bytes that each edge carried, both ways together."""
    carried = dict.fromkeys(run.setup.edges, 0)
    for cost in run.costs:
        if cost.direction in ("push", "pull"):
            carried[min(cost.source, cost.target), max(cost.source, cost.target)] += cost.bytes
    return carried


def _circle(number: int) -> list[tuple[float, float]]:
    """Places on a circle, from the top clockwise."""
    angles = [math.pi / 2 - 2 * math.pi * position / number for position in range(number)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def _devices(axes: Axes, places: Sequence[Sequence[float]], labels: Sequence[Sequence[int]] | None) -> None:
    crowded = len(places) > CROWDED
    x, y = zip(*places, strict=True)
    if len(places) > MANY:
        axes.scatter(x, y, s=8, color=style.BLUE, linewidths=0, zorder=2)
        return
    axes.scatter(x, y, s=60 if crowded else 240, color=style.BLUE, edgecolors="white", linewidths=1.2, zorder=2)
    for device, (at_x, at_y) in enumerate(places):
        axes.text(at_x, at_y, str(device), color="white", ha="center", va="center", fontsize=5 if crowded else 9)
    if labels is not None and not crowded:
        for device, held in enumerate(labels):
            _note(axes, places[device], _away(places, device), ", ".join(map(str, held)))


def _away(places: Sequence[Sequence[float]], device: int) -> tuple[float, float]:
    """The direction away from the nearest other device."""
    x, y = places[device]
    others = [place for other, place in enumerate(places) if other != device]
    near_x, near_y = min(others, key=lambda place: math.dist(place, (x, y)), default=(x, y + 1.0))
    length = math.dist((x, y), (near_x, near_y))
    return ((x - near_x) / length, (y - near_y) / length) if length else (0.0, -1.0)


def _note(axes: Axes, place: Sequence[float], direction: tuple[float, float], text: str) -> None:
    """Small text beside a device, on the side of `direction`."""
    x, y = direction
    axes.annotate(
        text,
        (place[0], place[1]),
        xytext=(11 * x, 11 * y),
        textcoords="offset points",
        ha="left" if x > 0.4 else "right" if x < -0.4 else "center",
        va="bottom" if y > 0.4 else "top" if y < -0.4 else "center",
        fontsize=7.5,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )
