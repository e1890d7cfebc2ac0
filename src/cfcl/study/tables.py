"""The numbers behind the figures of a study, as text: percents, points, and 95 % intervals over seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cfcl.methods import parse
from cfcl.study import measures
from cfcl.study.bundle import Measured, Study, Value
from cfcl.study.measures import Interval, interval, paired

Key = tuple[str, tuple[tuple[str, Value], ...], str]
"""Panel, settings, method."""
Other = Callable[[Key], Key | None]
"""From one place to another that it may be compared with."""


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
    runs: dict[int, Measured]
    """Those that have finished, by seed."""


@dataclass(frozen=True)
class Column:
    """A measure in a table."""

    title: str
    measure: Callable[[Measured], float | None]
    digits: int = 2
    compared: bool = True
    """Whether differences to other places are shown, too."""

    def of(self, runs: Mapping[int, Measured]) -> dict[int, float]:
        """By seed, where it is known."""
        found = {seed: self.measure(run) for seed, run in runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}


ACCURACIES = (Column("Final (%)", measures.final), Column("Mean (%)", measures.area))

BESIDE = (
    Column("Upload all (MB)", lambda run: None if run.raw is None else run.raw / 1e6, compared=False),
    Column("Worst label (%)", measures.worst_label, compared=False),
    Column("Worst device (%)", measures.worst_device, compared=False),
)
"""Beside a mean: what uploading everything once would take, and who is served worst."""


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
    order = {key: study.values(figure, key) for _, settings, _ in found for key, _ in settings}

    def rank(key: Key) -> tuple[object, ...]:
        panel, settings, method = key
        swept = [order[name].index(value) for name, value in settings]
        return names.index(panel), parse(method).mode, swept, parse(method).rank

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


def compared(
    study: Study,
    figure: str,
    *,
    columns: Sequence[Column] = ACCURACIES,
    contrast: tuple[str, Value | None] | None = None,
    stand_in: Other = lambda key: None,
) -> Table:
    """A row per place: its measures, and their paired differences to FedAvg, to uniform and to another setting.

    `contrast` is the setting that differs there, and its value; None is the smallest. `stand_in` says which place has
    the runs of one that was not to run again.
    """
    found = places(study, figure)
    swept = list(dict.fromkeys(name for _, settings, _ in found for name, _ in settings))
    others: dict[str, Other] = {"FedAvg": _fedavg, "uniform": _uniform}
    if contrast is not None and (values := study.values(figure, contrast[0])):
        base = values[0] if contrast[1] is None else contrast[1]
        others[f"{contrast[0]} {base}"] = partial(_contrast, contrast[0], base)
    shown = [column for column in columns if column.compared]
    head = ["Dataset", *(name.capitalize() for name in swept), "Method", "Seeds", *(column.title for column in columns)]
    head += [f"{column.title.partition(' ')[0]} − {other}" for column in shown for other in others]
    rows = []
    for key, place in found.items():
        panel, settings, method = key
        against = [find(found, pick(key), stand_in) for pick in others.values()]
        rows.append(
            [
                panel,
                *(str(dict(settings).get(name, "–")) for name in swept),
                method,
                _seeds(place),
                *(level(interval(list(column.of(place.runs).values())), column.digits) for column in columns),
                *(_paired(column, place, other) for column in shown for other in against),
            ]
        )
    return without_empty(Table(head, rows))


def _paired(column: Column, mine: Place, other: Place | None) -> str:
    return "–" if other is None else difference(paired(column.of(mine.runs), column.of(other.runs)), column.digits)


def find(found: Mapping[Key, Place], wanted: Key | None, stand_in: Other) -> Place | None:
    """The place that is wanted, or the one that stands in for it."""
    if wanted is None or wanted in found:
        return found.get(wanted) if wanted else None
    other = stand_in(wanted)
    return found.get(other) if other else None


def _fedavg(key: Key) -> Key | None:
    panel, settings, method = key
    return None if method == "fedavg" else (panel, settings, "fedavg")


def _uniform(key: Key) -> Key | None:
    panel, settings, method = key
    other = f"uniform-{parse(method).mode}"
    return None if method == other or not parse(method).mode else (panel, settings, other)


def _contrast(name: str, base: Value, key: Key) -> Key | None:
    """The place that differs in one setting only."""
    panel, settings, method = key
    other = tuple((one, base if one == name else given) for one, given in settings)
    return None if other == settings else (panel, other, method)


def _seeds(place: Place) -> str:
    done, wanted = len(place.runs), len(place.seeds)
    return str(done) if done == wanted else f"{done} of {wanted}"


def without_empty(found: Table) -> Table:
    """A table without columns that have nothing in them."""
    kept = [place for place in range(len(found.head)) if any(row[place] != "–" for row in found.rows)]
    return Table([found.head[place] for place in kept], [[row[place] for place in kept] for row in found.rows])
