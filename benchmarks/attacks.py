"""What hostile devices do, and what defences are worth: docs/results/attacks, and the table in docs/security.md.

    python benchmarks/attacks.py                    # what is missing of all tables, two runs at a time, then draw
    python benchmarks/attacks.py explicit models    # of these
    python benchmarks/attacks.py --needed           # no defence against an attack that does next to nothing alone
    python benchmarks/attacks.py --plan             # how many runs are missing, and how long they take
    python benchmarks/attacks.py --draw             # draw what is there
    python benchmarks/attacks.py explicit --seeds 120,121 --set data.validation=0.1 --out trials    # for choosing

USPS, ten devices, 300 updates (half of the preset's), the method of the paper in every mode; embeddings travel under
triplets, where they are worth something. Every run is held against the run of the same seed that nobody attacks. Runs
that end are written down at once, so the command may be stopped, and given again. Cases that are the same to the bit
by construction share a run (`Case.twin`; tests/sim/test_attacks.py holds us to it).
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from cfcl import config as configs
from cfcl.config import Config

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "attacks"
UNDER_WAY = Path("runs") / "attacks"
"""Folders of runs that have not ended, and tables of budgets; under ROOT."""
SEEDS = (203, 204, 205)
"""Seeds on which nothing was chosen."""
STEPS = 300
SECONDS = 30
"""Of a run on one core, where none has been measured."""
FIELDS = ("digest", "table", "attack", "hostile", "defence", "seed", "seconds", "got", "held", "failed", "evaluations")
MODES = {
    "explicit": ("cfcl-explicit", "exchange.num_pulled=2"),
    "activations": ("cfcl-activations", "exchange.num_pulled=10", "exchange.layer=block2"),
    "implicit": ("cfcl-implicit", "exchange.num_pulled=2", "train.objective=triplet", "train.margin=1.0"),
}
DEFENCES: dict[str, tuple[str, ...]] = {
    "none": (),
    "range": ("defence.range=0.25",),
    "clip": ("defence.clip=1.5",),
    "cap": ("defence.cap=12",),
    "share": ("defence.share=0.25",),
    "median": ("aggregation.rule=median",),
    "trimmed": ("aggregation.rule=trimmed", "aggregation.trim=0.3"),
    "clipped": ("aggregation.clip=1.0",),
}
CALM = -0.5
"""Points: half of the loss that counts as harm."""
FLOOD = 10
"""Times the usual budget on the links of a hostile device that floods."""


@dataclass(frozen=True)
class Case:
    """One way to attack and to defend, run with every seed."""

    table: str
    attack: str = "none"
    hostile: int = 0
    defence: str = "none"

    @property
    def clean(self) -> "Case":
        """The run that it is held against."""
        return Case(self.table, "cover" if self.attack == "reserve-radii" else "none")

    @property
    def twin(self) -> "Case":
        """The case whose runs are the same to the bit, so that they are not made twice; for most this one itself."""
        honest = replace(self, attack="none", hostile=0)
        if self.attack == "model-weight" and self.defence in ("median", "trimmed"):
            return honest  # rules that look at no weights
        if self == Case("explicit", defence="share"):
            return replace(self, defence="none")  # all links have one budget, and so equal parts
        if self == Case("implicit", defence="clip"):
            return replace(self, defence="none")  # embeddings have length one, and none is longer
        return self

    def config(self, seed: int, more: Sequence[str] = ()) -> Config:
        """One of its runs."""
        method, *settings = MODES.get(self.table, MODES["explicit"])
        found = [*settings, *DEFENCES[self.defence], *more, f"seed={seed}"]
        found += [f"train.steps={STEPS}", "evaluation.every=3"]
        found += ["evaluation.labels_per_class=[10]", "evaluation.features=false"]
        if self.hostile:
            kind = "items-noise" if self.attack == "flood" else self.attack
            found += [f"attack.devices={self.hostile}", f"attack.kind={kind}"]
        if self.attack == "flood":
            found += [f"exchange.budgets_file={UNDER_WAY / f'budgets-{seed}.csv'}"]
        if "cover" in (self.attack, self.clean.attack):
            method = method.replace("cfcl", "cover")
        return configs.with_method(configs.load("usps", found), method)


def _against_items(table: str) -> list[Case]:
    """Poisoned items, lies and greed of one device, in one mode."""
    case, far = partial(Case, table), table != "explicit"
    kinds = ["items-noise", "items-negative", "items-constant", "items-centroids", *(["items-far"] if far else [])]
    found = [case(), case(defence="range"), *([case(defence="clip")] if far else [])]
    found += [case(kind, 1, defence) for kind in kinds for defence in ("none", "range")]
    found += [case("items-far", 1, "clip")] if far else []
    found += [case("reserve-noise", 1), case("request-all", 1)]
    if not far:
        found += [case(defence="cap"), case(defence="share")]
        found += [case("flood", 1, defence) for defence in ("none", "range", "cap", "share")]
        found += [case("cover"), case("reserve-radii", 1)]
    return found


def _against_models() -> list[Case]:
    """Poisoned models of one device and of three."""
    rules = ("median", "trimmed", "clipped")
    kinds = [(kind, number) for number in (1, 3) for kind in ("model-flipped", "model-scaled", "model-noise")]
    attacks = [*kinds, ("model-weight", 1)]
    return [
        *(Case("models", defence=rule) for rule in ("none", *rules)),
        *(Case("models", kind, number, rule) for kind, number in attacks for rule in ("none", *rules)),
    ]


TABLES = {**{mode: _against_items(mode) for mode in MODES}, "models": _against_models()}


@dataclass(frozen=True)
class Plan:
    """Where runs are written down, and which."""

    out: Path = OUT
    seeds: Sequence[int] = SEEDS
    more: tuple[str, ...] = ()
    """Further settings of all runs."""

    @property
    def runs(self) -> Path:
        return self.out / "runs.csv"

    def read(self) -> dict[str, dict[str, Any]]:
        """The finished runs, by digest."""
        if not self.runs.exists():
            return {}
        with self.runs.open(encoding="utf-8", newline="") as file:
            return {
                row["digest"]: {**row, "evaluations": json.loads(row["evaluations"])} for row in csv.DictReader(file)
            }

    def run_of(self, case: Case) -> Case:
        """The case whose run is that of `case`; with further settings nothing is taken for granted."""
        return case if self.more else case.twin

    def digest(self, case: Case, seed: int) -> str:
        """Names the run of a case."""
        return self.run_of(case).config(seed, self.more).digest

    def missing(self, names: Sequence[str], only: Sequence[str] = ()) -> Iterator[tuple[Case, int]]:
        """Runs that tables lack, seed by seed; of all attacks, or of `only` some."""
        seen = set(self.read())
        for seed in self.seeds:
            for case in (case for name in names for case in TABLES[name]):
                digest = self.digest(case, seed)
                if digest not in seen and (not only or case.attack in only):
                    seen.add(digest)
                    yield self.run_of(case), seed

    def calm(self, case: Case, known: dict[str, dict[str, Any]]) -> bool:
        """Whether a case defends against an attack that costs less than `CALM` where nobody defends, over all seeds."""
        alone = replace(case, defence="none")
        pairs = [(self.accuracy(alone, seed, known), self.accuracy(case.clean, seed, known)) for seed in self.seeds]
        gains = [one - two for one, two in pairs if one is not None and two is not None]
        guarded = case.hostile > 0 and case.defence != "none"
        return guarded and len(gains) == len(self.seeds) and statistics.fmean(gains) > CALM

    def accuracy(self, case: Case, seed: int, known: dict[str, dict[str, Any]]) -> float | None:
        """With ten labels per class, in percent: the mean of the last fifth of evaluations; None if it was not run.

        A run that does not end is worth a guess among ten classes.
        """
        row = known.get(self.digest(case, seed))
        if row is None:
            return None
        values = [few for _, few in row["evaluations"]]
        return 10.0 if row["failed"] else 100 * statistics.fmean(values[-max(1, len(values) // 5) :])


def one(case: Case, seed: int, more: Sequence[str]) -> dict[str, Any]:
    """Run one, in this process."""
    import cfcl
    from cfcl import records
    from cfcl.errors import Failed
    from cfcl.sim import allocator, attacks

    allocator.keep_memory()
    os.chdir(ROOT)
    config = case.config(seed, more)
    suspects = attacks.hostile(configs.override(config, [f"attack.devices={case.hostile or 1}"]))
    if case.attack == "flood":
        _write_budgets(config, suspects)
    begun, found = time.perf_counter(), dict[str, Any](failed="", evaluations="[]", got=0, held="")
    try:
        result = cfcl.run(config, workers=1, out=UNDER_WAY, plotted=False)
    except Failed as error:
        found["failed"] = str(error)
    else:
        assert result.folder is not None
        lines = (result.folder / "metrics.jsonl").read_text().splitlines()
        pulls = [row for line in lines if isinstance(row := records.parse(line), records.Pull)]
        mine = [row for row in pulls if row.receiver in suspects and row.items]
        rows = [[row.step, (row.few or {})["10"]] for row in result.evaluations]
        found["evaluations"] = json.dumps(rows, separators=(",", ":"))
        found["got"] = sum(row.items for row in mine)
        found["held"] = f"{statistics.fmean(row.held_labels or 0.0 for row in mine):.4f}" if mine else ""
        shutil.rmtree(result.folder)
    return {
        "digest": config.digest,
        "table": case.table,
        "attack": case.attack,
        "hostile": case.hostile,
        "defence": case.defence,
        "seed": seed,
        "seconds": round(time.perf_counter() - begun, 1),
        **found,
    }


def _write_budgets(config: Config, suspects: Iterable[int]) -> None:
    """A table that gives the links of hostile devices many times the usual budget; another run may be reading it."""
    from cfcl import files, rng, topology

    graph = topology.build(config.graph, config.partition.num_devices, rng.stream(config.seed, "graph"))
    items, reserve = FLOOD * config.exchange.num_pulled, config.exchange.num_reserve
    lines = [f"{j},{i},{items},{reserve}\n" for j, i in graph.links if j in set(suspects)]
    assert config.exchange.budgets_file is not None
    config.exchange.budgets_file.parent.mkdir(parents=True, exist_ok=True)
    text = "transmitter,receiver,num_pulled,num_reserve\n" + "".join(lines)
    files.write_atomically(config.exchange.budgets_file, text.encode())


def run(plan: Plan, names: Sequence[str], jobs: int, only: Sequence[str], *, needed: bool) -> None:
    """Do what is missing, `jobs` runs at a time; if only what is `needed`, attacks alone come first."""
    plan.out.mkdir(parents=True, exist_ok=True)
    if needed:
        alone = [(case, seed) for case, seed in plan.missing(names, only) if case.defence == "none"]
        _do(plan, alone, jobs)
    known = plan.read()
    _do(
        plan,
        [(case, seed) for case, seed in plan.missing(names, only) if not (needed and plan.calm(case, known))],
        jobs,
    )


def _do(plan: Plan, todo: Sequence[tuple[Case, int]], jobs: int) -> None:
    """These runs, each in a process of its own."""
    print(f"{len(todo)} runs to do", flush=True)
    writing = Lock()

    def do(job: tuple[Case, int]) -> None:
        case, seed = job
        name = f"{case.table}: {case.attack} of {case.hostile}, {case.defence}, seed {seed}"
        order = json.dumps([[case.table, case.attack, case.hostile, case.defence], seed, plan.more])
        done = subprocess.run([sys.executable, __file__, "--one", order], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{name} failed: {done.stderr.strip()[-300:]}", flush=True)
            return
        found = json.loads(done.stdout.splitlines()[-1])
        with writing:
            _write(plan, found)
            print(f"{name}: {plan.accuracy(case, seed, plan.read()):.1f}, {found['seconds']} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(do, todo))


def _write(plan: Plan, found: dict[str, Any]) -> None:
    """One finished run, behind the others."""
    new = not plan.runs.exists()
    with plan.runs.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(found)


def tell(plan: Plan, names: Sequence[str]) -> None:
    """How much is missing."""
    known = [float(row["seconds"]) for row in plan.read().values() if not row["failed"]]
    each, total = statistics.median(known) if known else SECONDS, len(list(plan.missing(names)))
    for name in names:
        lacking = len(list(plan.missing([name])))
        print(f"{name}: {lacking} of {len(TABLES[name]) * len(plan.seeds)} runs missing")
    print(f"{total} runs of {each:.0f} s, as tables share some: {total * each / 3600:.1f} hours of one core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--attacks", default="", help="only these attacks, with commas between; none is an honest run")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument(
        "--set", action="append", default=[], help="a setting for all runs, such as data.validation=0.1"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument(
        "--needed",
        action="store_true",
        help=f"leave out defences against attacks that cost less than {-CALM} points alone, over all seeds",
    )
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        case, seed, more = json.loads(options.one)
        print(json.dumps(one(Case(*case), seed, more)))
        return
    plan = Plan(options.out, [int(seed) for seed in options.seeds.split(",")], tuple(options.set))
    names = options.names or list(TABLES)
    if options.plan:
        tell(plan, names)
        return
    if not options.draw:
        only = [word.strip() for word in options.attacks.split(",") if word.strip()]
        run(plan, names, options.jobs, only, needed=options.needed)
    import attacks_drawn

    attacks_drawn.draw(plan)


if __name__ == "__main__":
    main()
