"""What runs would do, and what they would take: found out without doing them."""

import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from cfcl import device as devices
from cfcl.config import Config
from cfcl.exchange import cost
from cfcl.sim import world
from cfcl.sim.world import World, single_thread

EVALUATION_BYTES = 150_000_000
"""What evaluations and plots add to the first process, measured on USPS."""
TIMED_DEVICES = 3
TIMED_SECONDS = 1.0
"""How long updates are timed in all, after one per device that does not count."""


@dataclass(frozen=True)
class Forecast:
    """A run that has not happened. Bytes are those of all links together."""

    world: World
    num_workers: int
    update_seconds: float
    """Of one update of one device."""

    @property
    def num_evaluations(self) -> int:
        """How often the global encoder is judged, the initial one included."""
        return 1 + sum(self.world.setting.schedule.evaluates(t) for t in self._aggregations)

    @property
    def num_aggregations(self) -> int:
        """How often the server averages."""
        return len(self._aggregations)

    @property
    def num_pushes(self) -> int:
        """How often reserves are pushed, as far as none is lost."""
        setting = self.world.setting
        if setting.policy.choose is None or setting.policy.offer is None:
            return 0
        return len(replace(setting.schedule, push_again=False).push_steps)

    @property
    def num_exchanges(self) -> int:
        """How often items are pulled."""
        return len(self._exchanges)

    @property
    def bytes_push(self) -> int:
        """Of one round of pushes."""
        setting = self.world.setting
        each = self._item_bytes + (cost.NUMBER_BYTES if setting.policy.measure is not None else 0)
        return each * sum(devices.reserve_due(setting, *link) for link in self.world.graph.links)

    @property
    def bytes_pull(self) -> int:
        """Of the largest exchange, at most: a rule may find less to send."""
        return max((each for each, _ in self._alike), default=0)

    @property
    def bytes_up(self) -> int:
        """Of one aggregation."""
        chosen = self.world.config.aggregation.num_devices or len(self.world.parts)
        extras = sum(len(part) for part in self.world.setting.averaged.values())
        return 4 * chosen * (self.world.ledger().num_parameters + extras)

    @property
    def bytes_d2d(self) -> int:
        """Between devices, over the whole run, at most."""
        return self.num_pushes * self.bytes_push + sum(each * number for each, number in self._alike)

    @property
    def bytes_uplink(self) -> int:
        """To the server, over the whole run."""
        return self.num_aggregations * self.bytes_up

    @property
    def seconds(self) -> float:
        """Of all updates; exchanges and evaluations come on top."""
        return self.update_seconds * self.world.config.train.steps * len(self.world.parts) / self.num_workers

    @property
    def memory(self) -> int | None:
        """Of all processes together; None where the system does not tell what one takes."""
        process, exchange = _process_bytes(), self.world.config.exchange
        if process is None:
            return None
        models = 3 * 4 * self.world.setting.encoder.num_parameters * len(self.world.parts)  # weights and two moments
        kept = self.num_exchanges if exchange.retention == "keep" else min(1, self.num_exchanges)
        held = self.bytes_push * min(1, self.num_pushes) + kept * self.bytes_pull
        return process * self.num_workers + EVALUATION_BYTES + models + held

    @cached_property
    def _exchanges(self) -> Sequence[int]:
        setting = self.world.setting
        if setting.policy.choose is None:
            return ()
        return setting.schedule.pull_steps

    @cached_property
    def _alike(self) -> list[tuple[int, int]]:
        """Bytes of an exchange, at most, and how many there are like it before the numbers of items change."""
        steps, later = self._exchanges, self.world.setting.budgets.later
        starts = {0, *(start for changes in later.values() for start, _ in changes)}
        places = sorted({bisect_left(steps, start) for start in starts} - {len(steps)})
        return [(self._pulled_at(steps[begin]), end - begin) for begin, end in pairwise([*places, len(steps)])]

    def _pulled_at(self, step: int) -> int:
        """Bytes of the exchange at `step`, at most."""
        setting, parts = self.world.setting, self.world.parts
        wanted = [min(devices.items_wanted(setting, j, i, step), len(parts[j])) for j, i in self.world.graph.links]
        told = cost.NUMBER_BYTES * sum(size > 0 for size in wanted) if setting.adaptive else 0
        return self._item_bytes * sum(wanted) + told

    @cached_property
    def _aggregations(self) -> list[int]:
        clock = self.world.setting.schedule
        return [*range(clock.aggregation_period, clock.num_steps, clock.aggregation_period), clock.num_steps]

    @property
    def _item_bytes(self) -> int:
        encoder = self.world.setting.encoder
        return cost.item_size(self.world.config.exchange, encoder.image_shape, encoder.shapes)


def look(runs: Sequence[Config], *, device: str = "cpu", num_workers: int = 1) -> list[Forecast]:
    """What each run would take in `num_workers` processes of its own; refuses what the run itself would refuse.

    Runs that share images, encoder and batches share the timing of an update, and all timings together have a limit.
    """
    worlds = [_checked(config, device) for config in runs]
    kinds = {_kind(found.config): found for found in worlds}
    seconds = {kind: _time_update(found, TIMED_SECONDS / len(kinds)) for kind, found in kinds.items()}
    return [Forecast(found, num_workers, seconds[_kind(found.config)]) for found in worlds]


def _checked(config: Config, device: str) -> World:
    found = world.build(config, torch_device=device)
    store = found.dataset.train_images
    for i, part in enumerate(found.parts):
        devices.check(found.setting, devices.start(found.setting, i, store, part))
    return found


def _kind(config: Config) -> tuple[object, ...]:
    """What the time of an update depends on."""
    return config.data, config.model, config.augment, config.train.batch_size, config.train.negatives


def _time_update(found: World, limit: float) -> float:
    store = found.dataset.train_images.to(found.setting.encoder.device)
    some = [devices.start(found.setting, i, store, part) for i, part in enumerate(found.parts[:TIMED_DEVICES])]
    with single_thread():
        some = [devices.local_step(found.setting, state, 0)[0] for state in some]
        begun, number = time.perf_counter(), 0
        while number == 0 or time.perf_counter() - begun < limit:
            some = [devices.local_step(found.setting, state, 1)[0] for state in some]
            number += len(some)
        return (time.perf_counter() - begun) / number


def _process_bytes() -> int | None:
    """The most memory that this process has taken so far, libraries and data included."""
    try:
        import resource
    except ImportError:  # Windows has no such module
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
