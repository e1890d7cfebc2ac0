"""What the drawings of a study share: looks of methods, a grid of panels, and a mean with its surroundings."""

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.runs.plots import HEIGHT, WIDTH
from cfcl.study.bundle import Measured
from cfcl.study.measures import Interval, Measure, interval

FEW = 3
"""Below so many seeds, extremes are drawn instead of Student's interval, which would be many times as wide."""

LABEL = 0.15
"""Inches from one label at the end of a line to the next."""

K = TypeVar("K", bound=Hashable)
End = tuple[str, float, float, str]
"""Of a line: its label, its last x and y, and its colour."""


def looks(found: Iterable[str]) -> dict[str, style.Look]:
    """The look of each method by its policy: a column of panels has one mode, so both modes may look alike."""
    kinds = {item: parse(item).policy for item in found}
    full = {kind: kind if kind in style.LOOKS else f"{kind}-explicit" for kind in kinds.values()}
    dealt = style.looks(sorted(set(full.values())))
    return {item: dealt[full[kind]] for item, kind in kinds.items()}


def curve(method: str, look: style.Look) -> dict[str, Any]:
    """Keyword arguments for `Axes.plot`: yardsticks have no markers and lie below, CF-CL lies above."""
    if parse(method).yardstick:
        return look.options | {"marker": "", "zorder": 1.8}
    return look.options | {"zorder": 2.4 if parse(method).policy == "cfcl" else 2.0}


def keys(found: Iterable[str], looks: Mapping[str, style.Look]) -> list[Line2D]:
    """Entries of a legend of dots, in the order of `looks`."""
    wanted = set(found)
    return [
        Line2D([], [], label=parse(item).title, **look.options | {"linestyle": ""})
        for item, look in looks.items()
        if item in wanted
    ]


def alike(found: Mapping[K, Mapping[int, Measured]], apart: Container[K] = ()) -> dict[K, dict[int, Measured]]:
    """Runs by seed of the places in a panel, in the seeds that all have: seeds differ more than methods do.

    Places without a run have no say, nor have those in `apart`; all seeds, if there is none in common.
    """
    known = {key: runs for key, runs in found.items() if runs}
    groups = [set(runs) for key, runs in known.items() if key not in apart]
    common = set[int].intersection(*groups) if groups else set()
    if not common:
        return {key: dict(runs) for key, runs in known.items()}
    return {key: {seed: runs[seed] for seed in runs if seed in common} for key, runs in known.items()}


def spread(found: Sequence[float]) -> Interval | None:
    """A mean with its 95 % interval, or with the extremes where there are few values; None for none."""
    known = interval(found)
    return None if known is None else spread_of(known)


def spread_of(known: Interval) -> Interval:
    """An interval, or between the extremes where it is of few values."""
    if len(known.values) >= FEW:
        return known
    return replace(known, low=min(known.values), high=max(known.values))


def at(runs: Mapping[int, Measured], measure: Measure) -> Interval | None:
    """A measure of runs, as a figure shows it."""
    return spread([measure(run) for run in runs.values()])


def seeds(numbers: Iterable[int]) -> str:
    """How many seeds there are, over several places."""
    counts = sorted(set(numbers) - {0})
    if not counts:
        return "no seed"
    low, high = counts[0], counts[-1]
    return f"{low}–{high} seeds" if low != high else f"{high} seeds" if high > 1 else "1 seed"


def surroundings(numbers: Iterable[int], noun: str) -> str:
    """How many seeds stand behind a panel, and what its bands or bars are."""
    counts = sorted(set(numbers) - {0})
    if not counts or counts[-1] == 1:
        return seeds(counts)
    what = "95 %" if counts[0] >= FEW else "range" if counts[-1] < FEW else "95 % or range"
    return f"{seeds(counts)}, {noun}: {what}"


def grid(
    rows: int, columns: int, *, width: float = WIDTH, height: float = HEIGHT, **options: Any
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with panels in rows and columns."""
    figure = Figure(figsize=(width * columns, height * rows))
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False, **options)]


def title(axes: Axes, text: str, note: str = "") -> None:
    """What a panel shows, and at the right in small print how sure it is."""
    axes.set_title(text)
    axes.set_title(note, loc="right", fontsize=8, color=style.GREY)


def frame(axes: Axes, text: str, counts: list[int], noun: str) -> None:
    """A panel's title with what its bands or bars are, and a word where it shows nothing."""
    title(axes, text, surroundings(counts, noun))
    if not counts:
        blank(axes, "no finished run")


def blank(axes: Axes, text: str) -> None:
    """A panel that says why it shows nothing."""
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=style.GREY)


def ends(axes: Axes, found: Iterable[End]) -> None:
    """Name lines where they end, at the right of a panel; labels keep apart.

    Limits of the axes have to be final.
    """
    low, high = axes.get_ylim()
    height = axes.get_position().height * axes.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    ordered = sorted(found, key=lambda item: item[2])
    places = apart([(y - low) / (high - low) for _, _, y, _ in ordered], LABEL / height)
    for (label, x, y, colour), place in zip(ordered, places, strict=True):
        axes.annotate(
            label,
            (x, y),
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color=colour,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "alpha": 0.6,
                "relpos": (0.0, 0.5),  # to the start of the label: to its middle, lines would cross other labels
                "shrinkA": 1,
                "shrinkB": 4,
            },
        )


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """The places nearest to those `wanted`, from low to high, that stand at least `gap` apart.

    As far as there is room they are between 0 and 1.
    """
    blocks: list[tuple[float, int]] = []  # sums of what is wanted, without gaps, and how many
    for number, place in enumerate(wanted):
        blocks.append((place - number * gap, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            (total, size), (one, more) = blocks.pop(), blocks.pop()
            blocks.append((total + one, size + more))
    most = max(0.0, 1.0 - gap * (len(wanted) - 1))
    means = [min(max(total / size, 0.0), most) for total, size in blocks for _ in range(size)]
    return [mean + number * gap for number, mean in enumerate(means)]


def same_span(*panels: Axes) -> None:
    """Panels beside each other in which a point is equally tall."""
    limits = [axes.get_ylim() for axes in panels]
    reach = max(high - low for low, high in limits) / 2
    for axes, (low, high) in zip(panels, limits, strict=True):
        middle = (low + high) / 2
        axes.set_ylim(middle - reach, middle + reach)


def legend(figure: Figure, handles: Iterable[Artist]) -> None:
    """One legend below all panels, each label once; the figure grows by what it takes."""
    entries = {str(handle.get_label()): handle for handle in handles}
    if not entries:
        return
    each = 0.65 + 0.07 * max(map(len, entries))
    columns = max(1, min(len(entries), int(figure.get_figwidth() / each)))
    figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(entries) / columns))
    figure.legend(handles=list(entries.values()), loc="outside lower center", ncols=columns)
