"""A simulation: the phases of every step over a link, and records of what happens.

One class serves both engines. As the `reference`, every device is on a host of its own; otherwise the devices of a
process go through each phase together, and a group of processes shares them. The records are the same to the byte.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields

import torch
from torch import Tensor, nn

from cfcl import device, records, server
from cfcl.config import Config
from cfcl.core import metrics
from cfcl.data.datasets import Dataset
from cfcl.device import Answer, StepReport
from cfcl.errors import Failed, Interrupted
from cfcl.exchange.cost import Ledger
from cfcl.models import Weights, portions
from cfcl.objectives import Loss
from cfcl.protocol import codec, faults, snapshot, snapshot_checks
from cfcl.protocol.faults import COUNTED
from cfcl.protocol.link import Counted, Link, Traced
from cfcl.protocol.parties import Run, apart, together
from cfcl.protocol.phases import Watch, nobody
from cfcl.protocol.refusals import MISSING, Refused
from cfcl.protocol.snapshot import Tree
from cfcl.protocol.steps import Played, Round, play, rounds
from cfcl.records import Record, Timings
from cfcl.sim import attacks, evaluation, world
from cfcl.sim.diagnostics import Note, Observer, by_target
from cfcl.sim.group import ALONE, Group
from cfcl.sim.group_link import GroupLink
from cfcl.sim.timing import Clocks, Stopwatch
from cfcl.sim.trace import tracer
from cfcl.sim.world import single_thread

REPORT_EVERY = 1.0
"""Seconds after which processes tell the leader their losses, at the latest, and ask whether to stop."""
RESTING = [0.0] * (len(fields(StepReport)) + 2)
"""What is reported of a device that makes no update; of others, the last figure is 1."""
REMEDY = "lower train.learning_rate, or set model.normalise=true"


@dataclass(frozen=True)
class Snapshot:
    """All of a run between two steps: whoever has it can go on from there."""

    step: int
    tree: Tree


def never() -> int:
    """Nobody asks a run to stop."""
    return 0


class Simulation:
    """A run in progress, seen from one process of a group. Records come out at the leader only."""

    def __init__(
        self,
        config: Config,
        *,
        torch_device: str = "cpu",
        dataset: Dataset | None = None,
        module: nn.Module | None = None,
        loss: Loss | None = None,
        group: Group = ALONE,
        reference: bool = False,
        watch: Watch = nobody,
        trace: Callable[[str], None] | None = None,
        around: Callable[[Link], Link] | None = None,
        saved: bool = False,
        stop: Callable[[], int] = never,
    ) -> None:
        """A run of `config`, not begun; `around` puts a link around ours that may lose or spoil messages, in
        place of the faults of the config.

        If it is `saved`, snapshots come out with the records, and it may go on from one; it ends after a step at which
        `stop` gives the number of a signal, in any process.
        """
        self.config = config
        self.group = group
        self.reference = reference
        self.world = world.build(config, torch_device=torch_device, dataset=dataset, module=module, loss=loss)
        setting, data = self.world.setting, self.world.dataset
        points = data.train_images.to(setting.encoder.device)
        own = group.share(len(self.world.parts))
        states = [device.start(setting, i, points, self.world.parts[i]) for i in own]
        for state in states:
            device.check(setting, state)
        self.run = Run(0, (apart if reference else together)(self.world.rules, states), self.world.ledger())
        self.clocks = Clocks()
        self._observer = Observer(setting, data.train_labels, self.world.parts)
        self._stopwatch = Stopwatch()
        self._attack = attacks.build(setting)
        self._watch = watch
        self._trace = trace
        self._tolerant = around is not None or config.faults.active
        self._around = around or self._faulty
        self._saved = saved
        self._stop = stop
        self._unsent: dict[int, Tensor] = {}
        self._report_period: int | None = None

    @property
    def model(self) -> Weights:
        """The global model, or its moving average."""
        return self.run.server.result

    @property
    def ledger(self) -> Ledger:
        """What communication has cost."""
        return self.run.ledger

    def rows(self) -> Iterator[Record]:
        """Run to the end, yielding one record after another."""
        return (item for item in self.play() if isinstance(item, Record))

    def play(self, before: Tree | None = None) -> Iterator[Record | Snapshot]:
        """The same with snapshots between the records; from the snapshot `before` on, if the leader has one."""
        run, num_steps = self.run, self.config.train.steps
        with single_thread():
            goes_on = self._saved and self._go_on(before)
            if self.group.leads:
                yield from () if goes_on else [self.world.setup()]
                metrics.warm_up()
            self.group.maximum(0.0)  # all processes are there: to wait for them is no part of a run
            self.clocks.start()
            yield from () if goes_on else self._evaluate(0)
            link = self._link()
            while run.step <= num_steps:
                yield from self._advance(link)
                run.step += 1
                yield from self._save() if self._saved and run.step <= num_steps else ()
            embeddings = self._embed(evaluation.map_images(self.config, self.world.dataset))
            run.ledger = self._whole_ledger()
            if self.group.leads:
                yield evaluation.label_map(self.config, self.world.dataset, embeddings, num_steps)
        self.timings = self.clocks.read()

    def _go_on(self, before: Tree | None) -> bool:
        """Take over the snapshot that the leader has, if it has one; every process gets its own devices."""
        if not self.group.agree(int(before is not None)):
            return False
        piles = [b""] * self.group.size
        if before is not None:
            total, size = len(self.world.parts), self.group.size
            shares = [Group(rank, size).share(total) for rank in range(size)]
            piles = [snapshot.encode(snapshot.share(before, devices)) for devices in shares]
        mine = snapshot.decode(self.group.swap(piles)[0], self.world.setting.encoder.device)
        snapshot.restore(self.run, mine)
        self.clocks = Clocks.of(records.read(Timings, mine["clocks"]))
        return True

    def check(self, before: Tree) -> None:
        """Refuse a snapshot that this run cannot go on from, with a ValueError."""
        snapshot_checks.check(self.world.rules, [len(part) for part in self.world.parts], before)
        records.read(Timings, before.get("clocks"))
        if not self._observer.follows(before["labels"], {i: state["pulled"] for i, state in before["devices"].items()}):
            raise codec.Malformed("labels of what devices may pass on are missing")

    def _save(self) -> Iterator[Record | Snapshot]:
        """A snapshot, at the leader, if it is time for one, or if somebody asks the run to stop, which it then does."""
        step, number = self.run.step, self._asked()
        if number or self.world.setting.schedule.saves(step):
            yield from self._report()
            mine: Tree = {**snapshot.of(self.run), "clocks": self.clocks.read().to_dict()}
            if self.group.size > 1:
                piles = self.group.swap([snapshot.encode(mine), *[b""] * (self.group.size - 1)])
                mine = snapshot.join([snapshot.decode(pile) for pile in piles]) if self.group.leads else {}
            if self.group.leads:
                yield Snapshot(step, mine)
        if number:
            raise Interrupted(number)

    def _asked(self) -> int:
        """The number of the signal that asks the run to stop; several processes tell each other about once a second."""
        if self.group.size > 1 and (self.run.step - 1) % (self._report_period or 1):
            return 0
        return int(self.group.maximum(float(self._stop())))

    def _link(self) -> Link:
        kinds = {**codec.KINDS, Note.__name__: Note}
        self._between = GroupLink(self.group, len(self.world.parts), len(server.start(self.run.server)), kinds)
        # What has left its sender is traced and charged, whatever becomes of it.
        link: Link = Counted(self._between, self.run.ledger)
        if self._trace is not None:
            link = Traced(link, tracer(self.group, self.run.ledger, self._trace))
        return self._around(link)

    def _faulty(self, link: Link) -> Link:
        return faults.around(link, self.world.rules, self.run.faults)

    def _advance(self, link: Link) -> Iterator[Record]:
        """One step, and what is to be recorded of it."""
        step, agreement = self.run.step, evaluation.Figures()
        evaluates = self.world.setting.schedule.evaluates(step)
        for item in rounds(self.world.rules, step, self._watch):
            if item.name != "update":
                yield from self._report()
            if item.name == "aggregation" and evaluates:
                agreement = self._agreement()
            begun = time.perf_counter()
            played = self._play(item, link)
            taken = time.perf_counter() - begun
            if item.name == "broadcast" and evaluates:
                yield from self._evaluate(step, agreement)
            elif item.name == "exchange":
                self.clocks.exchange += taken
                yield from self._observed(played)
                yield from self._paid() if step == 0 else ()
            elif item.name == "update":
                yield from self._log(played, taken)

    def _play(self, item: Round, link: Link) -> Played:
        """All phases of a round; the last of them."""
        for phase in item.phases:
            send = self._attack.around(self._stopwatch.send)
            played = play(phase, self.run.hosts, link, self.run.step, send)
            unexplained = [item for item in played.refusals if not self._attack.explains(item)]
            if unexplained and not self._tolerant:
                raise Refused(f"{unexplained[0]}; no faults are configured, so the run ends here")
            self.run.refused += len(played.refusals)
            self.run.faults["refused"] += sum(refusal.reason != MISSING for refusal in played.refusals)
        if item.charged(self.config.cost):
            self.run.ledger.settle(self.group.maximum)
        if item.name == "update":
            self.run.ledger.charge_step()
        if item.name == "exchange":
            self.clocks.selection.append((self.run.step, self.group.maximum(self._stopwatch.reading())))
        return played

    def _observed(self, played: Played) -> Sequence[Record]:
        """What was pulled, as an outside observer sees it; the records of all processes, at the leader."""
        run, devices, rows = self.run, self.run.devices, list[records.Pull]()
        answers = [item for sent in played.sent for item in sent.reports if isinstance(item, Answer)]
        told = [note for answer in answers if (note := self._observer.note(answer, run.pulled_labels))]
        arrived = [note for note in self._between.carry(Note, told, {}) if isinstance(note, Note)]
        for i, notes in by_target(arrived).items():
            mine = [note for note in notes if note.source in played.used.get(i, {})]
            if mine:
                items = [played.used[i][note.source] for note in mine]
                rows += self._observer.records(devices[i], items, mine)
                self._observer.remember(i, mine, run.pulled_labels)
        if self.group.size == 1:
            return rows
        return [records.parse(line) for line in self.group.gather_lines([row.to_line() for row in rows])]

    def _paid(self) -> Iterator[Record]:
        """What the exchange at t = 0 has cost: no evaluation comes between it and the first updates."""
        ledger = self._whole_ledger()
        if self.group.leads:
            yield records.Upfront(step=0, **ledger.totals())

    def _log(self, played: Played, taken: float) -> Iterator[Record]:
        step = self.run.step
        reports = [item for sent in played.sent for item in sent.reports if isinstance(item, StepReport)]
        devices, rests = self.run.devices, self.world.rules.rests
        trained = [state for i, state in devices.items() if not rests(i, step)]
        found = {
            state.id: [*astuple(report), state.margin, 1.0] for state, report in zip(trained, reports, strict=True)
        }
        figures = [found.get(i, RESTING) for i in devices]
        self._unsent[step] = torch.tensor(figures, dtype=torch.float64)
        if self._report_period is None:
            self._report_period = self.group.agree(max(1, round(REPORT_EVERY / max(taken, 1e-6))))
        if step % self._report_period == 0:
            yield from self._report()

    def _report(self) -> Iterator[Record]:
        """The losses since the last report, from all processes."""
        if not self._unsent:
            return
        steps = list(self._unsent)
        # [devices, steps, figures]: devices of one process after those of another
        found = self.group.gather(torch.stack(list(self._unsent.values()), dim=1))
        self._unsent.clear()
        if self.group.leads:
            for number, step in enumerate(steps):
                _check_finite(step, found[:, number])
                trained = [row[:-1] for row in found[:, number].tolist() if row[-1] > 0]
                if trained and self.world.setting.schedule.logs(step):
                    yield world.update_record(step, trained)

    def _agreement(self) -> evaluation.Figures:
        """How alike the local models are just before they are averaged."""
        with self.clocks.evaluating():
            images = evaluation.health_images(self.config, self.world.dataset)
            encoder, devices = self.world.setting.encoder, self.run.devices
            compared = [i for i in evaluation.compared_devices(self.config) if i in devices]
            mine = [encoder.embed(devices[i].weights, images) for i in compared]
            nothing = torch.zeros(0, len(images), encoder.embedding_dim, dtype=torch.float32, device=encoder.device)
            found = self.group.gather(torch.stack(mine) if mine else nothing)
            return evaluation.agreement(list(found)) if self.group.leads else {}

    def _evaluate(self, step: int, agreement: evaluation.Figures | None = None) -> Iterator[Record]:
        with self.clocks.evaluating():
            images = evaluation.images(self.config, self.world.dataset)
            seen = {name: self._look(some) for name, some in images.items()}
            ledger = self._whole_ledger()
            if self.group.leads:
                embeddings, features = ({name: pair[i] for name, pair in seen.items()} for i in range(2))
                wanted = features if self.config.evaluation.features else None
                found = evaluation.judge(self.config, self.world.dataset, embeddings, wanted, self.world.parts)
        if self.group.leads:
            figures = {"step": step, **found, **(agreement or {}), **ledger.totals()}
            if not all(math.isfinite(figure) for figure in found.values() if isinstance(figure, float)):
                raise Failed(f"the embeddings of the global encoder are not finite at step {step}: {REMEDY}")
            yield records.read(records.Evaluation, figures)
        yield from self._faults_so_far(step) if step > 0 else ()

    def _faults_so_far(self, step: int) -> Iterator[Record]:
        """What has become of messages until `step`, if things go wrong in this run."""
        trouble = self.world.rules.outages
        if trouble is not None:
            counts = torch.tensor([[self.run.faults[name] for name in COUNTED]], dtype=torch.int64)
            found = self.group.gather(counts).sum(dim=0).tolist()
            if self.group.leads:
                yield records.Faults(step, trouble.online(step), *found)

    def _embed(self, images: Tensor) -> Tensor:
        """Embeddings under the global model, at the leader; every process takes its share of the portions."""
        encoder = self.world.setting.encoder
        return self._shared(images, lambda part: encoder.embed(self.model, part), encoder.embedding_dim)

    def _look(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and features under the global model, likewise; no features if nobody asked for them."""
        encoder = self.world.setting.encoder
        if not self.config.evaluation.features:
            return self._embed(images), torch.zeros(0)
        dims = [encoder.feature_dim, encoder.embedding_dim]
        found = self._shared(
            images, lambda part: torch.cat(encoder.features_and_embeddings(self.model, part), dim=1), sum(dims)
        )
        features, embeddings = (part.contiguous() for part in torch.split(found, dims, dim=1))
        return embeddings, features

    def _shared(self, images: Tensor, seen: Callable[[Tensor], Tensor], width: int) -> Tensor:
        """What all processes have `seen` of images, in their order, at the leader."""
        parts = portions(images)
        mine = [seen(parts[i]) for i in self.group.share(len(parts))]
        nothing = torch.zeros(0, width, dtype=torch.float32, device=self.world.setting.encoder.device)
        return self.group.gather(torch.cat([nothing, *mine]))

    def _whole_ledger(self) -> Ledger:
        """The costs of all processes, at the leader."""
        found = self.group.gather(torch.tensor(self.run.ledger.numbers(), dtype=torch.int64).view(-1, 5))
        return self.run.ledger.with_numbers(found.tolist())


def _check_finite(step: int, figures: Tensor) -> None:
    """Refuse to go on if the losses of any device are not finite."""
    finite = figures.isfinite().all(dim=1)
    if not bool(finite.all()):
        raise Failed(f"the loss is not finite at step {step} on device {int(finite.int().argmin())}: {REMEDY}")
