"""What a person sees while runs go on and when they end."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from cfcl.config import Config
from cfcl.records import Done, Evaluation, Failed, Record, Update, Warned, Yardstick
from cfcl.runs import labels
from cfcl.runs.overview import Entry
from cfcl.runs.summary import Summary
from cfcl.shown import Words


class _Status:
    """The newest loss, accuracy and bytes of a run."""

    def __init__(self) -> None:
        self._loss = "loss –"
        self._accuracy = "acc –"
        self._bytes = ""

    def see(self, record: Record) -> str:
        if isinstance(record, Update):
            self._loss = f"loss {record.loss:.3f}"
        if isinstance(record, Evaluation):
            if record.probe is not None:
                self._accuracy = f"acc {percent(record.probe, '.1f')} %"
            self._bytes = f"D2D {size(record.bytes_d2d)}"
        return "  ".join(part for part in (self._loss, self._accuracy, self._bytes) if part)


class RunProgress:
    """A live bar of one run: step, loss, accuracy, bytes, time left."""

    def __init__(self, console: Console, config: Config) -> None:
        self._progress = _progress(console)
        self._task = self._progress.add_task(config.method, total=config.train.steps, status="")
        self._status = _Status()

    def __enter__(self) -> Self:
        return self

    def watch(self, record: Record) -> None:
        """Show one record; the bar appears with the first, so that a refused run shows none."""
        self._progress.start()
        self._progress.update(self._task, completed=_done(record), status=self._status.see(record))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class CompareProgress:
    """Live bars of several runs, and one for all of them."""

    def __init__(self, console: Console, plan: Sequence[Config]) -> None:
        self._console = console
        self._progress = _progress(console)
        self._steps = [0] * len(plan)
        self._plan = plan
        self._all = self._progress.add_task("all runs", total=sum(item.train.steps for item in plan), status="")
        self._tasks: dict[int, TaskID] = {}
        self._status = [_Status() for _ in plan]

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def watch(self, position: int, record: Record) -> None:
        """Show one record of run `position`."""
        config = self._plan[position]
        name = f"{config.method} seed {config.seed}"
        if position not in self._tasks:
            self._tasks[position] = self._progress.add_task(name, total=config.train.steps, status="")
        if isinstance(record, Failed):
            return
        if isinstance(record, Warned):
            self._console.print(f"note: {name}: {record.text}", soft_wrap=True)
            return
        if isinstance(record, Done):
            self._progress.update(self._tasks[position], completed=config.train.steps)
            if not self._console.is_terminal:
                self._console.print(f"{name} is done: {record.folder}", soft_wrap=True)
            return
        self._steps[position] = max(self._steps[position], _done(record))
        self._progress.update(
            self._tasks[position], completed=self._steps[position], status=self._status[position].see(record)
        )
        self._progress.update(self._all, completed=sum(self._steps))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def runs_table(entries: Sequence[Entry]) -> Table:
    """Run folders, and how far each has come."""
    table = _table("Runs")
    table.add_column("folder", overflow="fold")
    for name in ("state", "step", "size"):
        table.add_column(name, justify="right")
    table.add_column("why", overflow="fold")
    for entry in entries:
        steps = f"{entry.step} of {entry.num_steps}" if entry.num_steps else "–"
        table.add_row(str(entry.folder), entry.state, steps, size(entry.num_bytes), entry.reason)
    return table


def run_table(evaluations: Sequence[Evaluation], split: str = "test") -> Table:
    """First, middle and last evaluation of a run."""
    table = _table(f"\nGlobal encoder: probe and kNN, {split} accuracies in percent")
    figures = {"knn": "kNN", "effective_rank": "rank"}
    known = ("probe", "knn", "alignment", "uniformity", "effective_rank", "cka")
    columns = [key for key in known if getattr(evaluations[-1], key) is not None]
    for name in ("step", *(figures.get(key, key) for key in columns), "D2D", "uplink", "delay"):
        table.add_column(name, justify="right")
    for row in _shown(evaluations):
        table.add_row(
            str(row.step),
            *(
                percent(getattr(row, key), ".1f") if key in ("probe", "knn") else number(getattr(row, key), ".3f")
                for key in columns
            ),
            size(row.bytes_d2d),
            size(row.bytes_up),
            f"{row.seconds:.1f} s",
        )
    return table


def few_table(evaluations: Sequence[Evaluation], split: str = "test") -> Table | None:
    """The accuracies of the same evaluations by space and number of labels; None if no more than the probe is known."""
    rows = {f"step {at.step}, {space}": by for at in _shown(evaluations) for space, by in at.accuracies.items()}
    heads = labels.columns(rows.values())
    if not rows or (heads == ["all"] and not any("features" in name for name in rows)):
        return None
    table = _table(f"\nProbe by labels per class: {split} accuracies in percent")
    table.add_column("")
    for head in heads:
        table.add_column(labels.title(head), justify="right")
    for name, by in rows.items():
        table.add_row(name, *(percent(by.get(head), ".1f") for head in heads))
    return table


def compare_tables(summary: Sequence[Summary], yardsticks: Sequence[Yardstick]) -> list[Table]:
    """One line per method; by number of labels, too, where few were asked for or features."""
    rows = labels.of_summaries(summary)
    more = [labels_table(rows, yardsticks, summary[0].split)] if rows or yardsticks else []
    return [compare_table(summary), *more]


def labels_table(rows: Sequence[labels.Row], yardsticks: Sequence[Yardstick], split: str) -> Table:
    """Accuracies by number of labels, and below them what one would use instead."""
    instead = labels.of_yardsticks(yardsticks)
    table = _table(f"\nProbe by labels per class: {split} accuracies in percent, ± half of the 95 % interval")
    heads = labels.columns(row.accuracies for row in (*rows, *instead))
    table.add_column("")
    for head in ("dim", *map(labels.title, heads)):
        table.add_column(head, justify="right")
    for number, row in enumerate((*rows, *instead)):
        if number == len(rows) > 0:
            table.add_section()
            table.add_row(Text(labels.INSTEAD, style="bold"))
        table.add_row(row.name, row.dim, *(labels.cell(row.accuracies.get(head)) for head in heads))
    return table


def compare_table(summary: Sequence[Summary]) -> Table:
    """One line per method, accuracies in percent."""
    seeds = max(row.seeds for row in summary)
    over = f"mean over {seeds} seeds" if seeds > 1 else "one seed"
    kinds = " and ".join(sorted({row.split for row in summary}))
    which = "accuracies" if kinds == "test" else f"{kinds} accuracies"
    told = "; ± half of the 95 % interval" if all(row.accuracies for row in summary) else ""
    table = _table(f"\nFinal global encoder, {which} in percent, {over}{told}")
    for name in ("method", "probe", "vs FedAvg", "kNN", "pushed", "pulled", "uplink", "delay"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for row in summary:
        table.add_row(
            row.method,
            percent(row.probe, ".1f") + (f" ±{100 * row.probe_doubt:.1f}" if row.probe_doubt is not None else ""),
            percent(row.over_fedavg, "+z.1f"),
            percent(row.knn, ".1f"),
            size(row.bytes_push),
            size(row.bytes_pull),
            size(row.bytes_up),
            f"{row.seconds:.1f} s",
        )
    return table


def size(value: float) -> str:
    """Bytes for people, three digits, in powers of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def number(value: float | None, form: str) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else format(value, form)


def percent(value: float | None, form: str) -> str:
    """A share in percent, or a dash where there is none."""
    return number(None if value is None else 100 * value, form)


def _shown(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    return [evaluations[place] for place in sorted({0, len(evaluations) // 2, len(evaluations) - 1})]


def _table(title: str) -> Table:
    return Table(
        title=Text(title, "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _progress(console: Console) -> Progress:
    return Progress(
        Words("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        Words("{task.fields[status]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        console=console,
    )


def _done(record: Record) -> int:
    """Completed updates as of this record."""
    return int(getattr(record, "step", 0)) + isinstance(record, Update)
