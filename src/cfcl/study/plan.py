"""Which runs figures need, and in which order they are done."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from cfcl.config import NUMERICS, Config
from cfcl.errors import CfclError
from cfcl.methods import parse
from cfcl.study.bundle import Cell, Study
from cfcl.study.figures import FIGURES
from cfcl.study.profiles import PROFILES, Profile

PILOTED = "uniform"
"""The policy that sets the milestones."""


def named(words: Sequence[str], profile: Profile) -> list[str]:
    """The figures that `words` name, each once; `all` is those of the paper, or of the profile if it places them."""
    shown = {name: figure for name, figure in FIGURES.items() if figure.seeds(profile) and not figure.apart}
    every = [name for name, figure in shown.items() if figure.of_paper or profile.placed]
    return list(dict.fromkeys(figure for word in words for figure in (every if word == "all" else [word])))


def rank(profile: Profile, figure: str, panel: str) -> int:
    """How late the runs of a panel are done."""
    place = (FIGURES[figure].group, panel)
    return profile.order.index(place) if place in profile.order else len(profile.order)


def plan(
    profile: Profile,
    figures: Sequence[str],
    panels: Sequence[str] = (),
    seeds: Sequence[int] = (),
    overrides: Sequence[str] = (),
) -> list[tuple[Cell, Config]]:
    """The runs of `figures`, all panels and seeds of the profile unless some are named: the pilot first, then what the
    profile puts first, and seed by seed.

    `overrides` say where things are, and so change no digest.
    """
    found = [item for figure in figures for item in _cells(profile, figure, panels, seeds, overrides)]
    return _ordered(profile, found)


def merged(profile: Profile, kept: Study | None, wanted: Iterable[Cell]) -> list[Cell]:
    """The cells of a study that is kept and those wanted now, each once, in the order of one plan.

    Those that would be other runs today are left out, but for finished runs of older numerics, which come last.
    """
    before = kept.cells if kept else ()
    named = {(cell.figure, cell.panel, cell.seed, cell.digest) for cell in (*before, *wanted)}
    found: list[tuple[Cell, Config]] = []
    for figure, panel in itertools.product(FIGURES, profile.panels):
        seeds = {seed for one, other, seed, _ in named if (one, other) == (figure, panel)}
        if seeds:
            found += _cells(profile, figure, [panel], sorted(seeds - {profile.pilot}), [])
    today = [cell for cell, _ in _ordered(profile, found) if (cell.figure, cell.panel, cell.seed, cell.digest) in named]
    runs = kept.runs if kept else {}
    return today + [cell for cell in before if cell.digest in runs and runs[cell.digest].numerics != NUMERICS]


def _ordered(profile: Profile, found: Iterable[tuple[Cell, Config]]) -> list[tuple[Cell, Config]]:
    def key(item: tuple[Cell, Config]) -> tuple[bool, int, int]:
        cell, _ = item
        return cell.seed != profile.pilot, rank(profile, cell.figure, cell.panel), cell.seed

    return sorted(found, key=key)


def check(profile: Profile, figures: Sequence[str], panels: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse what the profile does not have."""
    if profile.pilot in seeds:
        raise CfclError(
            f"--seeds {profile.pilot} is the pilot, which sets milestones and is not reported: choose others"
        )
    for figure in figures:
        if figure not in FIGURES:
            raise CfclError(f"{figure!r} is not a figure of the study: choose from {', '.join(FIGURES)}, or all")
        if not FIGURES[figure].seeds(profile):
            having = " or ".join(name for name, other in PROFILES.items() if FIGURES[figure].seeds(other))
            raise CfclError(f"{figure!r} is not part of this profile: choose --profile {having}")
    for panel in panels:
        if panel not in profile.panels:
            raise CfclError(f"--panels {panel!r} is not in this profile: choose from {', '.join(profile.panels)}")


def _cells(
    profile: Profile, figure: str, panels: Sequence[str], seeds: Sequence[int], places: Sequence[str]
) -> Iterator[tuple[Cell, Config]]:
    it = FIGURES[figure]
    for name in panels or it.panels(profile):
        for seed in [*([profile.pilot] if it.piloted else []), *(seeds or it.seeds_of(profile, name))]:
            for method, settings, overrides in it.entries(profile, profile.panels[name]):
                if seed == profile.pilot and parse(method).policy != PILOTED:
                    continue
                run = profile.panels[name].config(method, seed, [*places, *overrides])
                yield Cell(figure, name, method, settings, seed, run.digest), run
