"""What a person sees of a study: how many runs are done, which are under way, how long it will take, what it shows."""

import threading
import time
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from cfcl.config import Config
from cfcl.records import Done, Evaluation, Failed, Record, Warned
from cfcl.shown import Words
from cfcl.study.claims import Judgement
from cfcl.study.verdicts import CONTRADICTED, MARKS, NO_DIFFERENCE, NOT_RUN, SUPPORTED


class StudyProgress(Progress):
    """Live bars: one for all runs, one for every run under way."""

    def __init__(self, console: Console, todo: Sequence[Config], *, reused: int, num_workers: int) -> None:
        super().__init__(
            Words("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            Words("{task.fields[status]}"),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            console=console,
        )
        self._todo = todo
        self._left = TimeLeft(todo, num_workers)
        self._failed = 0
        status = f"{reused} found finished" if reused else ""
        self._all = self.add_task("runs", total=reused + len(todo), completed=reused, status=status)
        self._under_way: dict[int, TaskID] = {}
        self._watching = threading.Lock()

    def watch(self, position: int, record: Record) -> None:
        """Take in one record of run `position`."""
        with self._watching:
            config = self._todo[position]
            name = f"{config.name} {config.method} seed {config.seed}"
            if position not in self._under_way:
                self._under_way[position] = self.add_task(name, total=config.train.steps, status="")
            task = self._under_way[position]
            if isinstance(record, Done | Failed):
                self._finish(position, name, record)
                return
            if isinstance(record, Warned):
                self.console.print(f"note: {name}: {record.text}", soft_wrap=True)
                return
            step = int(getattr(record, "step", 0))
            self.update(task, completed=step)
            if isinstance(record, Evaluation) and record.probe is not None:
                self.update(task, status=f"acc {100 * record.probe:.1f} %")
            self._left.see(position, step)
            self.update(self._all, status=self._status())

    def _finish(self, position: int, name: str, ended: Done | Failed) -> None:
        self.remove_task(self._under_way[position])
        if isinstance(ended, Failed):
            self._left.give_up(position)
            self._failed += 1
        else:
            self._left.see(position, self._todo[position].train.steps)
        self.update(self._all, advance=1, status=self._status())
        if not self.console.is_terminal:
            how = f"failed: {ended.error}" if isinstance(ended, Failed) else "is done"
            self.console.print(f"{name} {how}; {self._status()}", soft_wrap=True)

    def _status(self) -> str:
        left = self._left.seconds()
        words = [f"about {minutes(left)} left"] if left else []
        return ", ".join([*words, *([f"{self._failed} failed"] if self._failed else [])])


class TimeLeft:
    """An estimate from the speed of runs on the same data, as a step costs more on one dataset than on another."""

    def __init__(self, todo: Sequence[Config], num_workers: int) -> None:
        self._presets = [run.name for run in todo]
        self._steps = [run.train.steps for run in todo]
        self._done = [0] * len(todo)
        self._begun: dict[int, float] = {}
        self._taken: dict[int, float] = {}
        self._num_workers = num_workers

    def see(self, position: int, step: int) -> None:
        """Run `position` has come to `step`."""
        now = time.monotonic()
        begun = self._begun.setdefault(position, now)
        self._done[position], self._taken[position] = step, now - begun

    def give_up(self, position: int) -> None:
        """Run `position` will come no further."""
        self._steps[position] = self._done[position]

    def seconds(self) -> float | None:
        """None while nothing is known."""
        rates = {name: rate for name in set(self._presets) if (rate := self._rate(name)) is not None}
        if not rates:
            return None
        usual = sum(rates.values()) / len(rates)
        rest = [(name, steps - done) for name, steps, done in zip(self._presets, self._steps, self._done, strict=True)]
        return sum(rates.get(name, usual) * steps for name, steps in rest) / min(self._num_workers, len(rest))

    def _rate(self, preset: str) -> float | None:
        """Seconds per step."""
        known = [place for place in self._taken if self._presets[place] == preset]
        steps = sum(self._done[place] for place in known)
        return sum(self._taken[place] for place in known) / steps if steps else None


def minutes(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def verdicts(judgements: Iterable[Judgement]) -> Table | str:
    """One line per claim that there is something to say about, not of those that have not run; empty without any."""
    found = [item for item in judgements if item.verdict != NOT_RUN]
    if not found:
        return ""
    table = Table(
        title=Text("\nVerdicts", "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for name in ("claim", "says", "verdict", "tests"):
        table.add_column(name)
    for item in found:
        colour = {SUPPORTED: "bright_blue", CONTRADICTED: "dark_orange", NO_DIFFERENCE: "magenta"}.get(item.verdict, "")
        word = Text(f"{MARKS[item.verdict]} {item.verdict}", colour)
        table.add_row(item.claim.id, item.claim.says, word, item.counts)
    return table
