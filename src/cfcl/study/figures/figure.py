"""A figure of the study as one value: its runs, its drawing, its table, and what is said about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from matplotlib.figure import Figure

from cfcl.methods import MODES
from cfcl.study.bundle import Cell, Study, Value
from cfcl.study.lines import ESTIMATED
from cfcl.study.profiles import Group, Panel, Profile
from cfcl.study.tables import Table

COMPARED = ("cfcl", "uniform", "kmeans", "bulk")
OURS = ("novel",)
"""Selection rules of our own."""
METHODS = ("fedavg", *(f"{method}-{mode}" for mode in MODES for method in (*COMPARED, *OURS)))
UNIFORM = tuple(f"uniform-{mode}" for mode in MODES)
CFCL = tuple(f"cfcl-{mode}" for mode in MODES)


_OF_PAPER = ("printed", "compared", "swept")


class Entry(NamedTuple):
    """A run of a figure: its method, what the figure calls its settings, and the overrides that set them."""

    method: str
    settings: dict[str, Value]
    overrides: list[str]


def plain(*methods: str) -> list[Entry]:
    """Runs that differ in their method only."""
    return [Entry(method, {}, []) for method in methods]


class Picture(NamedTuple):
    """A figure as files have it."""

    png: bytes
    svg: str
    """An element for a page."""
    inches: float
    """Its width."""


@dataclass(frozen=True)
class StudyFigure:
    """All that the study knows about one figure."""

    name: str
    """What commands call it."""
    title: str
    reading: str
    """How it is read."""
    entries: Callable[[Profile, Panel], list[Entry]]
    """Its runs in one panel and seed."""
    draw: Callable[[Study, str], Figure | None]
    """The picture, from a study and `name`; None where nothing can be drawn."""
    table: Callable[[Study, str], Table]
    """The numbers behind it."""
    whiskers: str = ""
    """What its intervals are drawn as, at the start of a sentence; empty: it has none."""
    needs: Literal["curves", "distances", "selections", "overlap"] = "curves"
    """What it shows of runs: `selections` are those of policies under its runs' final models, `overlap` is what is new
    to devices before training."""
    piloted: bool = False
    """Whether it has milestones, set by a pilot of its own."""
    group: Group = "printed"
    """Which panels and seeds of a profile it has."""
    apart: bool = False
    """Not of the paper: with seeds and lengths of its own."""

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """Those of a profile, without the pilot; empty if the figure is not part of it."""
        if self.apart:
            return profile.regime_seeds
        placed = self.group in (profile.placed or _OF_PAPER) or (self.group == "outages" and profile.faults)
        return profile.seeds if placed else ()

    @property
    def of_paper(self) -> bool:
        """Whether the paper has it."""
        return not self.apart and self.group in _OF_PAPER

    def seeds_of(self, profile: Profile, panel: str) -> tuple[int, ...]:
        """Those of one panel."""
        return self.seeds(profile)[: profile.placed.get(self.group, {}).get(panel)]

    def panels(self, profile: Profile) -> tuple[str, ...]:
        """Those of a profile, unless others are asked for."""
        return tuple(profile.placed.get(self.group, profile.swept if self.group == "swept" else profile.shown))

    def known(self, study: Study, cell: Cell) -> bool:
        """Whether `study` has all that this figure shows of the run in `cell`."""
        run = study.runs.get(cell.digest)
        if self.needs == "selections":
            return run is not None and any(item.digest == cell.digest for item in study.selections)
        if self.needs == "overlap":
            return run is not None and (cell.method != ESTIMATED or run.new is not None)
        return run is not None and (self.needs == "curves" or bool(run.distances))
