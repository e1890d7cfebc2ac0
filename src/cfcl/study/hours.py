"""What a profile takes, before it is begun: runs × seconds = hours, figure by figure and panel by panel."""

from collections.abc import Iterable
from dataclasses import dataclass

from cfcl.errors import CfclError
from cfcl.shown import markdown_table
from cfcl.study import plan
from cfcl.study.bundle import Cell
from cfcl.study.profiles import PROFILES, Profile

CORES = 2
HEAD = ("Figure", "Panel", "Methods", "Places", "Seeds", "Runs", "Seconds per run", "Hours")


@dataclass(frozen=True)
class Row:
    """One figure in one panel."""

    figure: str
    panel: str
    methods: int
    places: int
    """Methods under settings: runs of one seed."""
    seeds: int
    """Without the pilot."""
    runs: int
    """Those that no earlier row has."""
    seconds: float
    """Of one core, for all of them."""

    @property
    def words(self) -> list[str]:
        """Under `HEAD`."""
        each = f"{self.seconds / self.runs:.0f}" if self.runs else "–"
        counts = (self.methods, self.places, self.seeds, self.runs)
        return [self.figure, self.panel, *map(str, counts), each, f"{self.seconds / 3600:.2f}"]


def rows(profile: Profile, planned: Iterable[Cell]) -> list[Row]:
    """A row per figure and panel, in the order in which runs are done."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in planned:
        groups.setdefault((cell.figure, cell.panel), []).append(cell)
    seen: set[str] = set()
    found = []
    for figure, panel in sorted(groups, key=lambda place: plan.rank(profile, *place)):
        cells = groups[figure, panel]
        mine = {cell.digest: profile.panels[panel].cost(cell.method) for cell in cells if cell.digest not in seen}
        seen |= mine.keys()
        reported = [cell for cell in cells if cell.seed != profile.pilot]
        places = {(cell.method, *sorted(cell.settings.items())) for cell in reported}
        seeds = {cell.seed for cell in reported}
        methods = {cell.method for cell in reported}
        found.append(Row(figure, panel, len(methods), len(places), len(seeds), len(mine), sum(mine.values())))
    return found


def text(name: str) -> str:
    """The plan of a profile as Markdown; one whose runs were never timed has none."""
    profile = PROFILES[name]
    if not all(panel.seconds for panel in profile.panels.values()):
        raise CfclError(f"the runs of profile {name!r} have no known times: choose --profile registered, or --dry-run")
    found = rows(profile, (cell for cell, _ in plan.plan(profile, plan.named(["all"], profile))))
    runs, seconds = sum(row.runs for row in found), sum(row.seconds for row in found)
    shared: dict[str, list[str]] = {}
    for row in found:
        if not row.runs:
            shared.setdefault(row.figure, []).append(row.panel)
    parts = [
        "# The plan of runs",
        f"Profile `{name}`: {runs:,} runs, {seconds / 3600:.1f} hours of one core, {seconds / 3600 / CORES:.1f} hours "
        f"of {CORES}.",
        "Rows are in the order in which runs are done. Runs are those that no earlier row has, as figures share them. "
        "*Places* are methods under settings: the runs of one seed. Seconds are those of one run on one core, "
        f"evaluations included. Seeds begin with {profile.seeds[0]}; the pilot, which sets milestones, is "
        f"{profile.pilot}.",
        markdown_table(HEAD, [row.words for row in found if row.runs]),
        "Made of runs in the table, and of no others:",
        "\n".join(f"- `{figure}` on {', '.join(panels)}" for figure, panels in shared.items()),
        "## Panels",
        markdown_table(("Panel", "Settings"), [[panel, item.words] for panel, item in profile.panels.items()]),
        f"Written by `cfcl reproduce all --profile {name} --plan FILE`.",
    ]
    return "\n\n".join(parts) + "\n"
