"""What happens at step t, where t counts completed updates."""

from dataclasses import dataclass
from functools import cached_property

from cfcl.config import Config


@dataclass(frozen=True)
class Schedule:
    """The clock of a run: at each t first an aggregation, then an exchange, then every device makes one update."""

    num_steps: int
    aggregation_period: int
    exchange_period: int
    start: int
    stop: int
    once: bool
    """One exchange at t = 0 in place of the periodic ones (bulk)."""
    push_at_aggregation: bool
    push_once: bool
    push_again: bool = False
    """Whether a reserve that is pushed once may have to be pushed again at an exchange, because messages get lost."""
    evaluation_period: int = 1
    """Aggregations between evaluations."""
    log_period: int = 1
    """Updates between records of the losses."""
    save_period: int = 0
    """Updates between checkpoints; 0: none."""

    def aggregates(self, step: int) -> bool:
        """Whether the server averages at `step`; the last time is at T, after the last update."""
        return step == self.num_steps or (step > 0 and step % self.aggregation_period == 0)

    def exchanges(self, step: int) -> bool:
        """Whether neighbours pull from each other at `step`."""
        return step == 0 if self.once else self._periodic(step)

    def pushes(self, step: int) -> bool:
        """Whether reserves are pushed at `step`, ahead of any pull."""
        if self.push_once or self.once:
            return step == 0 or (self.push_again and not self.once and self._periodic(step))
        if not self.push_at_aggregation:
            return self._periodic(step)
        # The first exchange needs the reserve of the aggregation before it, even if exchanges start in between.
        needed = [self.last_aggregation(first) for first in self.exchange_steps[:1]]
        return step % self.aggregation_period == 0 and (self.start <= step < self.stop or step in needed)

    def last_aggregation(self, step: int) -> int:
        """The newest aggregation at or before `step`; 0 before the first."""
        return step - step % self.aggregation_period

    def evaluates(self, step: int) -> bool:
        """Whether the global model is judged at `step`: at the end, and at one in so many aggregations."""
        number, rest = divmod(step, self.aggregation_period)
        return step == self.num_steps or (rest == 0 and number % self.evaluation_period == 0)

    def logs(self, step: int) -> bool:
        """Whether the update at `step` leaves a record."""
        return step % self.log_period == 0 or step == self.num_steps - 1

    def saves(self, step: int) -> bool:
        """Whether all of the run is saved before `step`."""
        return self.save_period > 0 and step % self.save_period == 0

    @cached_property
    def exchange_steps(self) -> tuple[int, ...]:
        """The steps of the periodic exchanges; bulk moves as much at once."""
        found = range(self.exchange_period, self.num_steps, self.exchange_period)
        return tuple(step for step in found if self._periodic(step))

    @property
    def pull_steps(self) -> tuple[int, ...]:
        """The steps at which neighbours pull."""
        return (0,) if self.once else self.exchange_steps

    @cached_property
    def push_steps(self) -> tuple[int, ...]:
        """The steps at which reserves are pushed."""
        able = {0, *self.exchange_steps, *range(0, self.num_steps, self.aggregation_period)}
        return tuple(step for step in sorted(able) if self.pushes(step))

    def _periodic(self, step: int) -> bool:
        return step > 0 and step % self.exchange_period == 0 and self.start <= step < self.stop


def build(config: Config, *, once: bool) -> Schedule:
    """The clock of `config`; `once` is for methods that exchange only at the start."""
    exchange = config.exchange
    return Schedule(
        num_steps=config.train.steps,
        aggregation_period=config.aggregation.period,
        exchange_period=exchange.period,
        start=exchange.start,
        stop=config.train.steps if exchange.stop is None else exchange.stop,
        once=once,
        push_at_aggregation=exchange.push == "aggregation",
        push_once=exchange.mode == "explicit",
        push_again=config.faults.active,
        evaluation_period=config.evaluation.every,
        log_period=config.evaluation.log_every,
        save_period=config.checkpoint.every,
    )


def temperature(step: int, *, num_steps: int, start: float, end: float) -> float:
    """Selection temperature lambda^t of Eq. (11): a straight line from t = 0 to t = T."""
    return start + (end - start) * step / num_steps
