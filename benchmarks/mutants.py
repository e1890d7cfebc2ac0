"""Which small changes of the source no test notices.

    python benchmarks/mutants.py --number 300 --seed 1      # goes on where it was stopped

A mutant is one change of one file. Every mutant meets the tests that reach its line, the quickest first, in a process
of its own that is forked from one with all libraries loaded, on a tree of links to this one in which one file differs.
mutmut knows functions only, on a copy of the tree, and draws no sample; cosmic-ray starts a process and the whole suite
for every mutant: neither fits a suite that loads torch.
"""

import argparse
import difflib
import hashlib
import inspect
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mutations
import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("core", "exchange", "device", "protocol", "server.py")
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.txt"
SKIPPED = ("study", "runs", "data", "sim/test_workers", "cli", "test_readme")
"""Tests that are slow, and about other parts."""
FEWEST = 3
"""Mutants of a file at least, where it has so many."""
PRELOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
OPTIONS = ("-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=line", "-W", PRELOADED)
SLOW = 0.5
"""Seconds of a test that plays a run; one with known numbers is met before the others."""
FAILED = 70
"""Exit code of a process in which something else than a test went wrong."""

Reach = dict[str, dict[str, Any]]
"""For every test its seconds, and the lines that it reaches in each file."""


@dataclass(frozen=True)
class Mutant:
    path: str
    mutation: mutations.Mutation

    @cached_property
    def source(self) -> str:
        return (ROOT / self.path).read_text()

    @cached_property
    def changed(self) -> str:
        return self.mutation.apply(self.source)

    @property
    def key(self) -> str:
        return hashlib.sha1(f"{self.path}\n{self.changed}".encode()).hexdigest()[:16]

    @property
    def diff(self) -> list[str]:
        """Lines that go, with -, and come, with +."""
        found = difflib.unified_diff(self.source.splitlines(), self.changed.splitlines(), n=0, lineterm="")
        return [line[0] + " " + line[1:].strip() for line in found if not line.startswith(("---", "+++", "@@"))]


def sample(number: int, seed: int) -> list[Mutant]:
    """Mutants spread over files by their length, and over the lines of a file."""
    files = [path for part in PARTS for path in _files(ROOT / "src" / "cfcl" / part)]
    known = {path: found for path in files if (found := mutations.find(path.read_text()))}
    lengths = {path: len({item.line for item in found}) for path, found in known.items()}
    quota = {path: max(FEWEST, round(number * lengths[path] / sum(lengths.values()))) for path in known}
    drawn = [
        Mutant(str(path.relative_to(ROOT)), item)
        for path, found in known.items()
        for item in _spread(found, random.Random(f"{seed} {path.relative_to(ROOT)}"))[: quota[path]]
    ]
    random.Random(seed).shuffle(drawn)
    return drawn[:number]


def _files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place] * place.exists()


def _spread(found: list[mutations.Mutation], draw: random.Random) -> list[mutations.Mutation]:
    """In random order, but no line twice before all lines had one."""
    found = draw.sample(found, len(found))
    seen: Counter[int] = Counter()
    rounds = []
    for item in found:
        rounds.append(seen[item.line])
        seen[item.line] += 1
    return [found[at] for at in sorted(range(len(found)), key=lambda at: rounds[at])]


# Processes


@dataclass
class Child:
    pid: int
    begun: float
    what: Any

    def ended(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def fork(work: Callable[[], int], log: Path) -> int:
    """The process that does `work`, in a group of its own."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        code = work()
        sys.stdout.flush()
    except BaseException as error:
        os.write(2, "".join(traceback.format_exception(error)).encode())
        code = FAILED
    os._exit(code)


def in_turn(
    tasks: list[Any], start: Callable[[Any], int], jobs: int, seconds: float
) -> Iterator[tuple[Any, int | None, float]]:
    """Tasks with the exit code of their process, None after too long, and its time; so many `jobs` at once."""
    waiting, running = list(tasks), list[Child]()
    while waiting or running:
        while waiting and len(running) < jobs:
            task = waiting.pop(0)
            running.append(Child(start(task), time.monotonic(), task))
        time.sleep(0.02)
        for child in list(running):
            code, took = child.ended(), time.monotonic() - child.begun
            if code is None and took < seconds:
                continue
            if code is None:
                os.killpg(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            running.remove(child)
            yield child.what, code, took


def preload() -> None:
    """Load what tests need, save what they test; nothing may start a thread."""
    import beartype
    import hypothesis
    import jaxtyping
    import matplotlib.pyplot
    import pydantic
    import rich.console
    import safetensors.torch
    import scipy.io
    import scipy.stats
    import sklearn.cluster
    import sklearn.datasets
    import sklearn.linear_model
    import torch
    import typer.testing

    loaded = (beartype, hypothesis, jaxtyping, matplotlib, pydantic, rich, safetensors, scipy, sklearn, typer)
    assert all(loaded)
    torch.set_num_threads(1)
    torch.optim.LBFGS([torch.zeros(1, requires_grad=True)])
    assert "cfcl" not in sys.modules


# Which tests reach which lines


class Tracer:
    """Lines that every test reaches; what a test would take from a cache is computed again for each."""

    def __init__(self) -> None:
        import coverage

        places = [str(ROOT / "src" / "cfcl" / part / ("" if part.endswith(".py") else "*")) for part in PARTS]
        self._coverage = coverage.Coverage(data_file=None, include=places, config_file=False)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        for module in [module for name, module in sys.modules.items() if name.startswith("tests.")]:
            for _, thing in inspect.getmembers(module, lambda thing: hasattr(thing, "cache_clear")):
                thing.cache_clear()
        self._coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def reach(self) -> Reach:
        self._coverage.stop()
        data = self._coverage.get_data()
        found: Reach = {}
        for test in self._seconds.keys() - self._failed:
            data.set_query_context(test)
            lines = {path: data.lines(path) for path in data.measured_files()}
            kept = {str(Path(path).relative_to(ROOT)): sorted(some) for path, some in lines.items() if some}
            found[test] = {"seconds": round(self._seconds[test], 3), "lines": kept}
        return found


def trace(test_file: Path, out: Path) -> int:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    tracer = Tracer()
    code = pytest.main([str(test_file), *OPTIONS[1:]], plugins=[tracer])
    out.write_text(json.dumps(tracer.reach()))
    return int(code)


def reach(folder: Path, jobs: int) -> Reach:
    """What all tests reach, traced file by file; kept until the source or the test file changes."""
    common = [*_files(ROOT / "src" / "cfcl"), *(ROOT / "tests" / name for name in ("conftest.py", "played.py"))]
    base = hashlib.sha1(b"".join(path.read_bytes() for path in common)).hexdigest()
    files = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT / "tests").as_posix()
        if not name.startswith(SKIPPED):
            key = hashlib.sha1(base.encode() + path.read_bytes()).hexdigest()[:16]
            files[path] = folder / f"reach-{path.stem}-{key}.json"
    missing = [path for path, out in files.items() if not out.exists()]

    def start(path: Path) -> int:
        return fork(lambda: trace(path, files[path]), folder / f"{path.stem}.log")

    for path, code, took in in_turn(missing, start, jobs, 900):
        print(f"traced {path.relative_to(ROOT)} in {took:.0f} s, exit code {code}", flush=True)
        if code not in (0, 5):
            sys.exit(f"tests of {path} fail as they are: see {folder / path.stem}.log")
    return {test: entry for out in files.values() for test, entry in json.loads(out.read_text()).items()}


def tests_for(mutant: Mutant, reached: Reach, seconds: float) -> list[str]:
    """Tests that reach its line, the quickest first, for so many seconds; of slow ones those that know their numbers.

    What runs while a module loads is reached by no test: there all tests count that reach the function, or the file.
    """
    item = mutant.mutation
    first, last = item.scope if item.scope != (0, 0) else (1, 10**9)
    lines = (
        range(item.line, item.line + 1) if first <= item.line <= last and item.scope != (0, 0) else range(first, last)
    )
    near = {
        test: entry for test, entry in reached.items() if any(n in lines for n in entry["lines"].get(mutant.path, ()))
    }
    found: list[str] = []
    total = 0.0
    for test in sorted(near, key=lambda test: (_is_blunt(test, near), near[test]["seconds"], test)):
        total += near[test]["seconds"]
        if found and total > seconds:
            break
        found.append(test)
    return found


def _is_blunt(test: str, reached: Reach) -> bool:
    return bool(reached[test]["seconds"] > SLOW) and "golden" not in test


# Mutants


class Chosen:
    """Has the chosen tests run, in their order, and no other."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: at for at, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )


def plant(mutant: Mutant, folder: Path) -> Path:
    """A tree of links to this one with the mutant in it; returns its source folder."""
    parts, here, there = Path(mutant.path).parts, ROOT, folder
    for part in parts:
        for other in here.iterdir():
            if other.name not in (part, "__pycache__", ".git"):
                (there / other.name).symlink_to(other)
        here, there = here / part, there / part
        if here.is_dir():
            there.mkdir()
    there.write_text(mutant.changed)
    (there.parent / "__pycache__").mkdir(exist_ok=True)
    for compiled in (here.parent / "__pycache__").glob("*.pyc"):
        if not compiled.name.startswith(f"{here.stem}."):
            (there.parent / "__pycache__" / compiled.name).symlink_to(compiled)
    return folder / "src"


def meet(mutant: Mutant, tests: list[str], folder: Path) -> int:
    """Run the tests on the mutant: 0 if all pass."""
    source = str(plant(mutant, folder))
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    os.environ.update(
        PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=source, HYPOTHESIS_STORAGE_DIRECTORY=str(folder / "hypothesis")
    )
    sys.path.insert(0, source)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    return int(pytest.main([*OPTIONS, *files], plugins=[Chosen(tests)]))


def equivalent() -> dict[tuple[str, ...], str]:
    """Changes that change nothing, by file and lines, with the reason."""
    blocks = (
        [block.strip().splitlines() for block in EQUIVALENT.read_text().split("\n\n")] if EQUIVALENT.exists() else []
    )
    return {tuple(block[:-1]): block[-1] for block in blocks if not block[0].startswith("#")}


def judge(mutants: list[Mutant], reached: Reach, known: dict[str, Any], options: argparse.Namespace) -> None:
    """Let every mutant meet its tests; results are kept as they come."""
    same = equivalent()
    tests = {item.key: tests_for(item, reached, options.seconds) for item in mutants}
    digest = {item.key: hashlib.sha1(json.dumps(tests[item.key]).encode()).hexdigest()[:8] for item in mutants}
    folders = {item.key: Path(tempfile.mkdtemp(prefix="mutant-")) for item in mutants}

    def keep(item: Mutant, result: str, took: float) -> None:
        known[item.key] = {
            "key": item.key, "path": item.path, "line": item.mutation.line, "result": result, "seconds": round(took, 1),
            "met": len(tests[item.key]), "tests": digest[item.key], "diff": item.diff,
        }  # fmt: skip
        with (options.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(known[item.key]) + "\n")
        print(f"{result:10} {took:5.1f} s  {item.path}:{item.mutation.line}  {' | '.join(item.diff)}", flush=True)

    waiting = []
    for item in mutants:
        before = known.get(item.key, {})
        if (item.path, *item.diff) in same:
            keep(item, "equivalent", 0.0)
        elif not tests[item.key]:
            keep(item, "unreached", 0.0)
        elif before.get("result") != "killed" and before.get("tests") != digest[item.key]:
            waiting.append(item)

    def start(item: Mutant) -> int:
        return fork(lambda: meet(item, tests[item.key], folders[item.key]), options.out / f"mutant-{item.key}.log")

    for item, code, took in in_turn(waiting, start, options.jobs, 3 * options.seconds + 30):
        log = options.out / f"mutant-{item.key}.log"
        if code in (3, 4, FAILED):
            sys.exit(f"{item.path}:{item.mutation.line}: the tests could not run, exit code {code}: see {log}")
        keep(item, {0: "survived", 5: "survived", None: "timeout"}.get(code, "killed"), took)
        log.unlink()
        shutil.rmtree(folders[item.key], ignore_errors=True)
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)


def report(mutants: list[Mutant], known: dict[str, Any], least: float) -> bool:
    """Print the count and the survivors; whether enough were killed."""
    found = [known[item.key] for item in mutants]
    counts = Counter(entry["result"] for entry in found)
    for entry in found:
        if entry["result"] in ("survived", "unreached"):
            print(
                f"\n{entry['path']}:{entry['line']} {entry['result']}, {entry['met']} tests", *entry["diff"], sep="\n"
            )
    judged = len(found) - counts["equivalent"]
    share = 100 * (counts["killed"] + counts["timeout"]) / max(1, judged)
    print("\n" + ", ".join(f"{number} {result}" for result, number in counts.most_common()))
    print(f"{share:.1f} % of {judged} mutants were noticed (timeouts count), at least {least:g} % are wanted")
    return share >= least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40, help="of tests for one mutant, as they take without it")
    parser.add_argument("--least", type=float, default=95, help="per cent; fewer is an error")
    parser.add_argument("--out", type=Path, default=ROOT / ".mutants", help="folder for what is known already")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    results = options.out / "results.jsonl"
    known = (
        {entry["key"]: entry for line in results.read_text().splitlines() if (entry := json.loads(line))}
        if results.exists()
        else {}
    )
    preload()
    mutants = sample(options.number, options.seed)
    judge(mutants, reach(options.out, options.jobs), known, options)
    sys.exit(not report(mutants, known, options.least))


if __name__ == "__main__":
    main()
