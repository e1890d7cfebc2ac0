"""What a study is made of: places in figures, what runs measured, what policies selected."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cfcl.methods import MODES, ordered, parse

Value = str | int | float
"""A swept setting."""

BIN = 0.05
"""Width of a bin in histograms of distances."""


@dataclass(frozen=True)
class Cell:
    """The place of one run in one figure."""

    figure: str
    """Its name."""
    panel: str
    """Its dataset, such as `usps`, or `usps-short` where runs are shorter than the preset's."""
    method: str
    """Such as `cfcl-explicit`."""
    settings: Mapping[str, Value]
    """What the figure sweeps, by its own name for it, such as `{"devices": 2}`; empty if nothing."""
    seed: int
    digest: str
    """Of the run's config."""


@dataclass(frozen=True)
class Evaluated:
    """The global encoder at one step, and what it had cost by then."""

    step: int
    probe: float
    knn: float
    cka: float | None
    bytes_push: int
    bytes_pull: int
    bytes_up: int
    seconds: float
    """Of the delay model, without selection."""
    selection: float
    """Seconds measured for selection."""
    few: float | None = None
    """Probe accuracy with ten labels per class, where a panel is judged by it."""
    worst_label: float | None = None
    """The least accuracy on a label, with as few, where it was asked for."""
    worst_device: float | None = None
    """That of a device, whose labels count by its points."""

    @property
    def accuracy(self) -> float:
        """That by which the panel is judged: with ten labels per class, or with all."""
        return self.probe if self.few is None else self.few

    @property
    def delay(self) -> float:
        """Seconds of the delay model and of selection."""
        return self.seconds + self.selection


@dataclass(frozen=True)
class Measured:
    """What one run measured."""

    digest: str
    preset: str
    method: str
    seed: int
    steps: int
    separation: float | None
    """Mean distance between labels over that within labels, of the final encoder."""
    effective_candidates: float | None
    """Mean over pulls, as the four below."""
    num_candidates: int
    held_labels: float | None
    false_negatives: float | None
    """The chance that a pulled item has the label of a point of its receiver, were those evenly spread over labels."""
    centroid_distance: float | None
    active: float
    """Mean share of triplets with a loss."""
    pulled_share: float
    versions: str
    numerics: int
    """The version of numerics it was made under."""
    raw: int | None = None
    """Bytes of all training data of all devices: what uploading everything once would take."""
    new: float | None = None
    """Share of a neighbour's data that is new to a device, as estimated before training; where a figure shows it."""
    evaluations: tuple[Evaluated, ...] = ()
    labels: tuple[int, ...] = ()
    distances: tuple[tuple[float, ...], ...] = ()
    """Mean embedding distance between pairs of `labels`; empty where no figure shows it."""


@dataclass(frozen=True)
class Selection:
    """What one policy selects under one model, in one world."""

    digest: str
    """Of the run whose final model it is."""
    panel: str
    seed: int
    method: str
    """Such as `uniform-implicit`."""
    items: int
    distance: float
    """Mean distance of an item to the nearest centroid of its receiver."""
    held: float
    """Share of items whose label the receiver has already."""
    histogram: tuple[int, ...]
    """Items by distance, in bins of width BIN from 0."""
    mean_distance: float | None = None
    """Mean distance of an item to all centroids of its receiver; records of numerics 1 do not have it."""


def printed_settings(preset: str) -> bool:
    """Whether a preset has the paper's own settings, or the study's reading of them."""
    return preset.endswith(("-paper", "-study"))


@dataclass(frozen=True)
class Study:
    """All of it."""

    about: Mapping[str, Any]
    """`profile`, `pilot` (a seed), `notes`, `milestones` (accuracies by panel and mode), and `numerics`: the version
    of runs that are not there yet."""
    cells: tuple[Cell, ...]
    runs: Mapping[str, Measured]
    """By digest."""
    selections: tuple[Selection, ...] = ()

    @property
    def figures(self) -> list[str]:
        """Those that have cells, in order."""
        return sorted({cell.figure for cell in self.cells}, key=lambda name: (len(name), name))

    def panels(self, figure: str) -> list[str]:
        """The panels of a figure, in order of appearance."""
        return list(dict.fromkeys(cell.panel for cell in self.cells if cell.figure == figure))

    def methods(self, figure: str, mode: str | None = None) -> list[str]:
        """The methods of a figure in the order of legends, baselines of no mode included."""
        found = (cell.method for cell in self.cells if cell.figure == figure)
        return ordered(item for item in found if mode is None or parse(item).mode in ("", mode))

    def modes(self, figure: str) -> list[str]:
        """The modes that a figure shows; both if it has methods without exchange only."""
        found = {parse(item).mode for item in self.methods(figure)}
        return [item for item in MODES if item in found] or list(MODES)

    def values(self, figure: str, key: str, panel: str | None = None) -> list[Value]:
        """What a figure sweeps under `key`: numbers from low to high, words in order of appearance."""
        cells = [cell for cell in self.cells if cell.figure == figure and panel in (None, cell.panel)]
        found = dict.fromkeys(cell.settings[key] for cell in cells if key in cell.settings)
        numbers = all(isinstance(value, int | float) for value in found)
        return sorted(found, key=float) if numbers else list(found)

    @property
    def reported(self) -> list[Selection]:
        """Selections of items, without the pilot's."""
        return [item for item in self.selections if item.seed != self.about["pilot"] and item.items]

    def find(self, figure: str, panel: str, method: str, **settings: Value) -> dict[int, Measured]:
        """The finished runs at one place of a figure, by seed; the pilot is none of them."""
        return {
            cell.seed: self.runs[cell.digest]
            for cell in self.cells
            if (cell.figure, cell.panel, cell.method) == (figure, panel, method)
            and all(cell.settings.get(key) == value for key, value in settings.items())
            and cell.seed != self.about["pilot"]
            and cell.digest in self.runs
        }

    def of_paper(self, panel: str) -> bool:
        """Whether the paper's claims are judged in a panel: its own settings, or the study's reading of them."""
        return printed_settings(str(self.about.get("panels", {}).get(panel, "-study")))

    def milestones(self, panel: str, mode: str) -> list[float]:
        """Accuracies to be reached, from low to high, set by the pilot; empty without one."""
        return list(self.about["milestones"].get(f"{panel} {mode}", []))
