"""Accuracies over a setting, and beside them the paired differences that decide."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from cfcl.methods import parse
from cfcl.runs import style
from cfcl.study import layout
from cfcl.study.measures import Interval

WIDTH = 5.0
"""Inches of a panel with room for the names of its lines."""


@dataclass(frozen=True)
class Line:
    """One line, in both panels."""

    label: str
    method: str
    look: style.Look
    levels: Mapping[int, Interval]
    """Accuracies in percent, by the place of a tick."""
    gains: Mapping[int, Interval]
    """Paired differences to the reference, in points."""


@dataclass(frozen=True)
class Words:
    """What stands around both panels."""

    accuracy: str
    """Which one, such as `final accuracy`."""
    reference: str
    axis: str
    ticks: Sequence[str]


def draw(left: Axes, right: Axes, title: str, lines: Sequence[Line], words: Words) -> bool:
    """Means at the left, differences to the reference with their intervals at the right; whether there are any.

    Every line is named where it ends, and a point is equally tall in both panels.
    """
    levels, gains = [line for line in lines if line.levels], [line for line in lines if line.gains]
    for line in levels:
        _line(left, line, line.levels, 0.0)
    for number, line in enumerate(gains):
        _bars(right, line, 0.06 * (number - (len(gains) - 1) / 2))
    layout.title(left, f"{title}: {words.accuracy} (%)", layout.seeds(_counts(line.levels for line in levels)))
    layout.frame(right, f"points over {words.reference}", _counts(line.gains for line in gains), "bars")
    if not levels:
        layout.blank(left, "no finished run")
    if gains:
        right.axhline(0.0, color=style.GREY, linewidth=0.8)
    if levels and gains:
        layout.same_span(left, right)
    for axes, found in ((left, levels), (right, gains)):
        if found:
            axes.set_xticks(range(len(words.ticks)), list(words.ticks))
            axes.set(xlabel=words.axis, xlim=(-0.3, len(words.ticks) - 0.7))
    return bool(levels)


def name(left: Axes, right: Axes, lines: Sequence[Line]) -> None:
    """Put names to the ends of lines, once all panels are where they stay."""
    for axes, found in (
        (left, [(line, line.levels) for line in lines]),
        (right, [(line, line.gains) for line in lines]),
    ):
        layout.ends(axes, [(line.label, max(it), it[max(it)].mean, line.look.colour) for line, it in found if it])


def _counts(lines: Iterable[Mapping[int, Interval]]) -> list[int]:
    return [len(point.values) for line in lines for point in line.values()]


def _line(axes: Axes, line: Line, points: Mapping[int, Interval], shift: float) -> None:
    where = [place + shift for place in points]
    axes.plot(where, [point.mean for point in points.values()], **layout.curve(line.method, line.look))


def _bars(axes: Axes, line: Line, shift: float) -> None:
    """Lines stand a little apart, so that their intervals can be seen."""
    _line(axes, line, line.gains, shift)
    wide = {place: point for place, point in line.gains.items() if len(point.values) > 1}
    if not parse(line.method).yardstick:
        low, high = [point.low for point in wide.values()], [point.high for point in wide.values()]
        axes.vlines([place + shift for place in wide], low, high, color=line.look.colour, linewidth=1.2, alpha=0.8)
