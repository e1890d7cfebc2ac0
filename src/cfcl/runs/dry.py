"""What runs would do, and what they would take: found out without doing them."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from rich import box
from rich.table import Table

from cfcl import device as devices
from cfcl.config import Config
from cfcl.runs.progress import size
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
        return 1 + sum(self.world.evaluates(t) for t in self._aggregations)

    @property
    def num_aggregations(self) -> int:
        """How often the server averages."""
        return len(self._aggregations)

    @property
    def num_pushes(self) -> int:
        """How often reserves are pushed."""
        setting = self.world.setting
        if setting.policy.choose is None or setting.policy.offer is None:
            return 0
        return sum(setting.schedule.pushes(t) for t in range(setting.schedule.num_steps))

    @property
    def num_exchanges(self) -> int:
        """How often items are pulled."""
        setting = self.world.setting
        if setting.policy.choose is None:
            return 0
        return sum(setting.schedule.exchanges(t) for t in range(setting.schedule.num_steps))

    @property
    def bytes_push(self) -> int:
        """Of one round of pushes."""
        budgets = self.world.setting.budgets
        asked = [link for link in self.world.graph.links if budgets.pulled(*link) > 0]
        return self._item_bytes * sum(budgets.reserve(*link) for link in asked)

    @property
    def bytes_pull(self) -> int:
        """Of one exchange, at most: a rule may find less to send."""
        setting, parts = self.world.setting, self.world.parts
        rounds = setting.schedule.num_exchanges if setting.schedule.once else 1
        wanted = {link: rounds * setting.budgets.pulled(*link) for link in self.world.graph.links}
        return self._item_bytes * sum(min(number, len(parts[j])) for (j, _), number in wanted.items())

    @property
    def bytes_up(self) -> int:
        """Of one aggregation."""
        chosen = self.world.config.aggregation.num_devices or len(self.world.parts)
        return 4 * chosen * self.world.ledger().num_parameters

    @property
    def bytes_d2d(self) -> int:
        """Between devices, over the whole run, at most."""
        return self.num_pushes * self.bytes_push + self.num_exchanges * self.bytes_pull

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

    @property
    def _aggregations(self) -> list[int]:
        clock = self.world.setting.schedule
        return [t for t in range(1, clock.num_steps + 1) if clock.aggregates(t)]

    @property
    def _item_bytes(self) -> int:
        encoder = self.world.setting.encoder
        explicit = self.world.config.exchange.mode == "explicit"
        return prod(encoder.image_shape) if explicit else 4 * encoder.embedding_dim


def look(runs: Sequence[Config], *, device: str = "cpu", num_workers: int = 1) -> list[Forecast]:
    """What each run would take in `num_workers` processes of its own; refuses what the run itself would refuse.

    Runs that share images, encoder and batches share the timing of an update, and all timings together have a limit.
    """
    worlds = [_checked(config, device) for config in runs]
    kinds = {_kind(found.config): found for found in worlds}
    seconds = {kind: _time_update(found, TIMED_SECONDS / len(kinds)) for kind, found in kinds.items()}
    return [Forecast(found, num_workers, seconds[_kind(found.config)]) for found in worlds]


def table(forecast: Forecast) -> Table:
    """All that is known of one run."""
    config = forecast.world.config
    rows = {
        "run": f"{config.name}, {config.method}, seed {config.seed}",
        **_ground(forecast),
        "push": _rounds(forecast.num_pushes, forecast.bytes_push),
        "pull": _rounds(forecast.num_exchanges, forecast.bytes_pull, "at most "),
        "aggregation": _rounds(forecast.num_aggregations, forecast.bytes_up),
        "memory": f"{_memory(forecast)} in {_count(forecast.num_workers, 'process', 'processes')}, estimated",
        "time": f"{duration(forecast.seconds)}, estimated; exchanges and evaluations come on top",
    }
    return _listed(rows)


def common_table(forecast: Forecast) -> Table:
    """What the runs of a comparison share, as one of them shows it."""
    return _listed(_ground(forecast))


def compare_table(forecasts: Sequence[Forecast], *, at_once: int) -> Table:
    """One line per run of a comparison; the caption has the time of all."""
    shown = _empty("\nRuns")
    for name in ("method", "seed", "pushed", "pulled", "uplink", "memory", "time"):
        shown.add_column(name, justify="left" if name == "method" else "right")
    for one in forecasts:
        shown.add_row(
            one.world.config.method,
            str(one.world.config.seed),
            size(one.num_pushes * one.bytes_push),
            size(one.num_exchanges * one.bytes_pull),
            size(one.bytes_uplink),
            _memory(one),
            duration(one.seconds),
        )
    together = min(at_once, len(forecasts))
    total = sum(one.seconds for one in forecasts) / together
    runs = _count(len(forecasts), "run", "runs")
    shown.caption = f"{runs}, {together} at once: {duration(total)}, estimated; exchanges and evaluations come on top"
    return shown


def duration(seconds: float) -> str:
    """A rough time for people."""
    for unit, scale in (("h", 3600), ("min", 60)):
        if seconds >= 2 * scale:
            return f"about {seconds / scale:.2g} {unit}"
    return f"about {max(1, round(seconds))} s"


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


def _ground(forecast: Forecast) -> dict[str, str]:
    """Data, devices, graph, encoder and number of updates."""
    found, config = forecast.world, forecast.world.config
    data, encoder, points = found.dataset, found.setting.encoder, [len(part) for part in found.parts]
    labels = f"{data.num_classes} labels" if data.num_classes else "no labels"
    return {
        "data": f"{data.name}: {len(data.train_images):,} training and {len(data.test_images):,} test images of "
        f"{'×'.join(map(str, data.image_shape))}, {labels}",
        "devices": f"{len(points):,} with {_range(points)} points each",
        "graph": f"{config.graph.kind}, {len(found.graph.links):,} directed links, "
        f"{found.graph.average_degree:.3g} neighbours on average",
        "encoder": f"{encoder.name}, {encoder.num_parameters:,} parameters, embeddings of {encoder.embedding_dim}",
        "updates": f"{config.train.steps:,} per device, {forecast.num_evaluations} evaluations",
    }


def _listed(rows: dict[str, str]) -> Table:
    shown = _empty("\nPlan (nothing is run or written)", show_header=False)
    shown.add_column(style="bold")
    shown.add_column()
    for name, text in rows.items():
        shown.add_row(name, text)
    return shown


def _rounds(number: int, each: int, most: str = "") -> str:
    """One round's bytes, how many rounds there are, and what they come to."""
    if number == 0:
        return "none"
    if number == 1:
        return f"once, {most}{size(each)}"
    return f"{number:,} times {most}{size(each)}: {most}{size(number * each)}"


def _range(points: Sequence[int]) -> str:
    least, most = min(points), max(points)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _memory(forecast: Forecast) -> str:
    return "not known" if forecast.memory is None else f"about {size(forecast.memory)}"


def _empty(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=show_header,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
