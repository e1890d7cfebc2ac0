"""How figures look: one colour, line and marker per method, and files that are the same for the same records."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cfcl.files import write_atomically
from cfcl.shown import visible

P = ParamSpec("P")
T = TypeVar("T")
Dash = str | tuple[float, tuple[float, ...]]

BLACK, GREY = "#000000", "#767676"
BLUE, SKY, GREEN, ORANGE, VERMILLION, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
"""The colours of Okabe and Ito, which colour-blind readers can tell apart; their yellow is too faint on white."""

SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "font.size": 9,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    # Text stays text: small files, and a page that can be searched.
    "svg.fonttype": "none",
    "svg.hashsalt": "cfcl",
    "text.parse_math": False,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}


@dataclass(frozen=True)
class Look:
    """How one curve is drawn: explicit modes dark, solid and filled, implicit ones light, dash-dotted and hollow.

    Yardsticks are grey and thin.
    """

    colour: str
    line: Dash = "-"
    marker: str = "o"
    hollow: bool = False
    width: float = 1.7

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for `Axes.plot`."""
        return {
            "color": self.colour,
            "linestyle": self.line,
            "marker": self.marker,
            "markerfacecolor": "white" if self.hollow else self.colour,
            "markersize": 5.0,
            "linewidth": self.width,
        }


_DASH_DOT: Dash = (0.0, (6.0, 1.5, 1.5, 1.5))

LOOKS = {
    "fedavg": Look(BLACK, "-", "o"),
    "cfcl-explicit": Look(BLUE, "-", "s"),
    "cfcl-implicit": Look(SKY, _DASH_DOT, "D", hollow=True),
    "uniform-explicit": Look(VERMILLION, "-", "^"),
    "uniform-implicit": Look(ORANGE, _DASH_DOT, "v", hollow=True),
    "kmeans-explicit": Look(GREEN, "-", "P"),
    "kmeans-implicit": Look("#6CCBB0", _DASH_DOT, "X", hollow=True),
    "bulk-explicit": Look("#A8457A", "-", "<"),
    "bulk-implicit": Look(PURPLE, _DASH_DOT, ">", hollow=True),
    "novel-explicit": Look("#7A3B10", (0.0, (5.0, 1.5)), "*"),
    "novel-implicit": Look("#B8763F", (0.0, (6.0, 1.5, 1.5, 1.5, 1.5, 1.5)), "*", hollow=True),
    "cover-explicit": Look("#4B3FA8", "-", "*", width=2.2),
    "cover-implicit": Look("#8E86D6", _DASH_DOT, "*", hollow=True),
    "oracle-explicit": Look(GREY, "--", "d", width=1.0),
    "oracle-implicit": Look("#9C9C9C", "-.", "d", hollow=True, width=1.0),
    "centralised": Look(GREY, ":", "X", width=1.0),
}

_SPARE_COLOURS = (GREY, "#8A6D00", "#7A3B10", PURPLE, GREEN, VERMILLION)
_SPARE_LINES: tuple[Dash, ...] = ((0.0, (5.0, 2.0)), (0.0, (2.0, 1.2)), (0.0, (8.0, 2.0, 2.0, 2.0)))
_SPARE_MARKERS = "*phHd"


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The look of each curve: fixed for the known methods, dealt out in alphabetical order to all others."""
    wanted = list(dict.fromkeys(labels))
    others = sorted(label for label in wanted if label not in LOOKS)
    return {label: LOOKS.get(label) or _spare(others.index(label)) for label in wanted}


def _spare(number: int) -> Look:
    return Look(
        _SPARE_COLOURS[number % len(_SPARE_COLOURS)],
        _SPARE_LINES[number % len(_SPARE_LINES)],
        _SPARE_MARKERS[number % len(_SPARE_MARKERS)],
    )


@contextmanager
def settings() -> Iterator[None]:
    """Our settings on top of matplotlib's own, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` under our settings."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        with settings():
            return function(*args, **kwargs)

    return wrapper


def save_png(figure: Figure, path: Path) -> None:
    """Write `figure`; the same figure gives the same bytes."""
    write_atomically(path, to_png(figure))


@styled
def to_png(figure: Figure) -> bytes:
    """`figure` as a file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    # The canvas itself, as `Figure.savefig` draws twice.
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


@styled
def to_svg(figure: Figure, prefix: str) -> str:
    """`figure` as an SVG element; the ids it needs begin with `prefix`, so that many figures fit in one page."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata=nothing)
    text = visible(buffer.getvalue(), keep="\n")
    text = text[text.index("<svg") :]
    # Names are numbers in the order of their use: matplotlib makes them of unrounded places, whose last bits vary.
    named = dict.fromkeys(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    names = {name: f"{prefix}-{number}" for number, name in enumerate(named, start=1)}
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", text)
    return re.sub(r'(url\(|href=")#([^")]+)', lambda found: f"{found[1]}#{names[found[2]]}", text)
