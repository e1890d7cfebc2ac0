"""The numbers behind the figures of a study, as text: percents, points, and 95 % intervals over seeds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cfcl.runs.progress import size
from cfcl.study import costs, panels, regime
from cfcl.study.bundle import Record, Selection, Study, Value
from cfcl.study.measures import Interval, interval, paired

Key = tuple[str, tuple[tuple[str, Value], ...], str]
"""Panel, settings, method."""

SETTINGS = {
    "devices": "Devices",
    "reserve": "Reserve",
    "size": "Size",
    "importance": "Importance",
    "period": "Period",
    "labels": "Labels",
    "degree": "Degree",
    "variation": "Variation",
}
_CONTRASTS: Mapping[str, tuple[str, Value | None]] = {
    "fig9": ("reserve", "random"),
    "fig10": ("importance", "local"),
    "fig11": ("degree", None),
}
"""What else a run is compared with: the same but for one setting; None is its smallest value."""


@dataclass(frozen=True)
class Table:
    """Text in rows."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Place:
    """The runs of one method under one setting."""

    seeds: set[int]
    """Those that were to be run."""
    runs: dict[int, Record]
    """Those that have finished, by seed."""


@dataclass(frozen=True)
class Column:
    """A measure in a table."""

    title: str
    measure: Callable[[Record], float | None]
    digits: int = 2
    compared: bool = True
    """Whether differences to other places are shown, too."""

    def of(self, runs: Mapping[int, Record]) -> dict[int, float]:
        """By seed, where it is known."""
        found = {seed: self.measure(run) for seed, run in runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}


_DIAGNOSTICS = [
    Column("Candidates", lambda run: run.effective_candidates, digits=0, compared=False),
    Column("Held (%)", lambda run: _percent(run.held_labels), digits=1, compared=False),
    Column("False negatives (%)", lambda run: _percent(run.false_negatives), digits=1, compared=False),
    Column("Active (%)", lambda run: _percent(run.active), digits=1, compared=False),
]
"""What was pulled, and how many triplets had a loss."""


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def table(study: Study, figure: str) -> Table:
    """The table behind one figure."""
    if figure == "fig6":
        return _costs(study)
    if figure == "fig7":
        return _selections(study)
    return _compared(study, figure)


def places(study: Study, figure: str) -> dict[Key, Place]:
    """The places of a figure in the order of its table, also those where no run has finished; the pilot has none."""
    found: dict[Key, Place] = {}
    for cell in study.cells:
        if cell.figure == figure and cell.seed != study.about["pilot"]:
            key = (cell.panel, tuple(sorted(cell.settings.items())), cell.method)
            place = found.setdefault(key, Place(set(), {}))
            place.seeds.add(cell.seed)
            if cell.digest in study.runs:
                place.runs[cell.seed] = study.runs[cell.digest]
    names = study.panels(figure)
    order = {key: panels.values(study, figure, key) for _, settings, _ in found for key, _ in settings}

    def rank(key: Key) -> tuple[object, ...]:
        panel, settings, method = key
        swept = [order[name].index(value) for name, value in settings]
        return names.index(panel), panels.mode_of(method), swept, panels.rank(method)

    return {key: found[key] for key in sorted(found, key=rank)}


def difference(found: Interval | None, digits: int) -> str:
    """A difference with its interval."""
    if found is None:
        return "–"
    if len(found.values) == 1:
        return f"{found.mean:+z.{digits}f} (one seed)"
    return f"{found.mean:+z.{digits}f} ({found.low:+z.{digits}f} to {found.high:+z.{digits}f})"


def level(found: Interval | None, digits: int) -> str:
    """A mean and how far its interval reaches."""
    if found is None:
        return "–"
    reach = "" if len(found.values) == 1 else f" ± {found.high - found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f}{reach}"


def _compared(study: Study, figure: str) -> Table:
    """A row a place: its measures, and their paired differences to FedAvg, to uniform and to another setting."""
    columns = _columns(figure)
    found = places(study, figure)
    swept = list(dict.fromkeys(name for _, settings, _ in found for name, _ in settings))
    others = {"FedAvg": _fedavg, "uniform": _uniform, **_contrast(study, figure)}
    head = ["Dataset", *(SETTINGS.get(name, name) for name in swept), "Method", "Seeds"]
    head += [column.title for column in columns]
    compared = [column for column in columns if column.compared]
    head += [f"{column.title.partition(' ')[0]} − {other}" for column in compared for other in others]
    rows = []
    for key, place in found.items():
        panel, settings, method = key
        against = [_find(found, pick(key)) for pick in others.values()]
        rows.append(
            [
                panel,
                *(str(dict(settings).get(name, "–")) for name in swept),
                method,
                _seeds(place),
                *(level(interval(list(column.of(place.runs).values())), column.digits) for column in columns),
                *(_paired(column, place, other) for column in compared for other in against),
            ]
        )
    return _without_empty(Table(head, rows))


def _columns(figure: str) -> list[Column]:
    if figure == "fig4":
        return [Column("Separation", lambda run: run.separation, digits=3)]
    found = [Column("Final (%)", panels.final), Column("Mean (%)", panels.area)]
    return [*found, *_DIAGNOSTICS] if figure == "regime" else found


def _paired(column: Column, mine: Place, other: Place | None) -> str:
    return "–" if other is None else difference(paired(column.of(mine.runs), column.of(other.runs)), column.digits)


def _find(found: Mapping[Key, Place], wanted: Key | None) -> Place | None:
    """What a place is compared with; of the base, where a variation did not run it again."""
    if wanted is None or wanted in found:
        return found.get(wanted) if wanted else None
    panel, settings, method = wanted
    if not regime.leaves(dict(settings).get("variation"), method):
        return None
    base: tuple[tuple[str, Value], ...] = tuple(
        (name, regime.BASE if name == "variation" else value) for name, value in settings
    )
    return found.get((panel, base, method))


def _fedavg(key: Key) -> Key | None:
    panel, settings, method = key
    return None if method == "fedavg" else (panel, settings, "fedavg")


def _uniform(key: Key) -> Key | None:
    panel, settings, method = key
    other = f"uniform-{panels.mode_of(method)}"
    return None if method == other or not panels.mode_of(method) else (panel, settings, other)


def _contrast(study: Study, figure: str) -> dict[str, Callable[[Key], Key | None]]:
    """By its name, how to find the place that differs in one setting only."""
    if figure not in _CONTRASTS:
        return {}
    name, value = _CONTRASTS[figure]
    swept = panels.values(study, figure, name)
    if not swept:
        return {}
    base = swept[0] if value is None else value

    def pick(key: Key) -> Key | None:
        panel, settings, method = key
        other = tuple((one, base if one == name else given) for one, given in settings)
        return None if other == settings else (panel, other, method)

    return {f"{name} {base}": pick}


def _seeds(place: Place) -> str:
    done, wanted = len(place.runs), len(place.seeds)
    return str(done) if done == wanted else f"{done} of {wanted}"


def _without_empty(found: Table) -> Table:
    """A table without columns that have nothing in them."""
    kept = [place for place in range(len(found.head)) if any(row[place] != "–" for row in found.rows)]
    return Table([found.head[place] for place in kept], [[row[place] for place in kept] for row in found.rows])


def _costs(study: Study) -> Table:
    head = ["Dataset", "Mode", "To reach (%)", "Method", "Reached", "Steps", "Pushed", "Pulled", "Uplink", "Seconds"]
    rows = []
    for panel in study.panels("fig6"):
        for mode in panels.modes(study, "fig6"):
            methods = [item for item in panels.methods(study, "fig6", mode) if not panels.is_yardstick(item)]
            for goal in study.milestones(panel, mode):
                for method in methods:
                    found = costs.outcome(study.find("fig6", panel, method).values(), goal)
                    rows.append([panel, mode, f"{100 * goal:g}", method, *_spent(found)])
    return Table(head, rows)


def _spent(found: costs.Outcome) -> list[str]:
    reached = f"{len(found.reached)} of {found.seeds}"
    if not found.shown:
        return [reached, *["×" if found.seeds else "–"] * 5]
    parts = [size(found.mean(part)) for part in costs.BYTES.values()]
    return [reached, f"{found.mean(lambda item: item.steps):.0f}", *parts, f"{found.mean(lambda item: item.delay):.1f}"]


def _selections(study: Study) -> Table:
    head = ["Dataset", "Method", "Seeds", "Items", "Distance", "Distance − uniform", "Held (%)", "Held − uniform"]
    groups: dict[tuple[str, str], list[Selection]] = {}
    for item in study.reported:
        groups.setdefault((item.panel, item.method), []).append(item)
    names = list(dict.fromkeys(panel for panel, _ in groups))
    order = sorted(groups, key=lambda key: (names.index(key[0]), panels.mode_of(key[1]), panels.rank(key[1])))
    rows = []
    for panel, method in order:
        mine, other = groups[panel, method], f"uniform-{panels.mode_of(method)}"
        theirs = [] if method == other else groups.get((panel, other), [])
        items = f"{sum(item.items for item in mine):,}"
        distance = _pair(mine, theirs, lambda item: item.distance, 3)
        rows.append([panel, method, str(len(mine)), items, *distance, *_pair(mine, theirs, lambda i: 100 * i.held, 1)])
    return _without_empty(Table(head, rows))


def _pair(
    mine: Sequence[Selection], theirs: Iterable[Selection], measure: Callable[[Selection], float], digits: int
) -> list[str]:
    """A measure of selections, and its paired difference to others."""
    values = {item.seed: measure(item) for item in mine}
    others = {item.seed: measure(item) for item in theirs}
    return [level(interval(list(values.values())), digits), difference(paired(values, others), digits)]
