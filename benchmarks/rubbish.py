"""Rubbish for everything that reads: whatever is given is refused in one line, or handled.

    python benchmarks/rubbish.py                     # 15,000 spoilt inputs of each kind, and 500 command lines
    python benchmarks/rubbish.py --scale 0.01        # a hundredth of it
    python benchmarks/rubbish.py --only tables:123   # one of them again

Every input depends on the seed, its kind and its number alone. None may raise what its reader does not announce, take
over ten seconds, execute anything, or change a folder. A command line ends with code 0, or with 2, one line on stderr
and nothing written; a run that goes on from a spoilt checkpoint may also find that it cannot.
"""

import argparse
import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

import torch
from rubbish_kinds import Kind, kinds
from spoiling import CANARY, HUGE, WORDS, spoil, watch

from cfcl.runs import forecast

INPUTS, COMMANDS, SUBPROCESSES = 15_000, 500, 120
SECONDS = 10
MEMORY = 8 << 30


class Slow(BaseException):
    """It takes too long."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def number_of(seed: int, kind: str, number: int) -> Random:
    return Random(f"{seed}/{kind}/{number}")


def lay(kind: Kind, rng: Random, folder: Path) -> None:
    """Spoilt files of a kind, and nothing else, in `folder`."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for name, data in kind.sealed(rng, spoil(rng, kind.valid(rng), kind.spoilers, kind.often)).items():
        (folder / name).write_bytes(data)


def state(folder: Path) -> str:
    """A digest of all files below a folder that hold anything: a lock does not."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.stat().st_size:
            found.update(f"{file.relative_to(folder)}\0".encode())
            found.update(file.read_bytes() if file.is_file() else b"")
    return found.hexdigest()


def one(kind: Kind, seed: int, number: int, folder: Path) -> str:
    """What became of one input: `refused`, `taken`, or what is wrong."""
    rng = number_of(seed, kind.name, number)
    lay(kind, rng, folder)
    before = state(folder)
    try:
        with limited():
            kind.read(folder, rng)
        ended = "taken"
    except kind.may_raise as error:
        ended = "refused" if str(error) and "\n" not in str(error) else f"not one line: {error!r:.80}"
    except Slow:
        ended = f"takes over {SECONDS} seconds"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        ended = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {str(error)[:80]!r}"
    return ended if state(folder) == before else "changed what it was to read"


def readers(kind: Kind, seed: int, numbers: Sequence[int], scratch: Path) -> dict[int, str]:
    """What became of many inputs."""
    executed: list[str] = []
    watch(executed)
    found = {number: one(kind, seed, number, scratch / "given") for number in numbers}
    if executed:
        found[-1] = f"executed {executed[0]}"
    return found


def command(seed: int, number: int, known: Sequence[Kind], scratch: Path) -> list[str]:
    """A command line about spoilt files, or with odd words."""
    rng = number_of(seed, "commands", number)
    kind = rng.choice(
        [*(kind for kind in known if kind.name not in ("messages", "encoders", "images", "embeddings")), None]
    )
    dry = ["--dry-run", "--out", "out"]
    if kind is not None:
        lay(kind, rng, scratch / ("given.partial" if kind.name == "checkpoints" else "given"))
    match kind.name if kind else "":
        case "configs":
            file = "given/config.toml"
            ways = [
                ["config", file],
                ["run", file, *dry],
                ["compare", file, *dry],
                ["data", "show", file, "--out", "x.png"],
            ]
        case "tables":
            names = {"exchange.budgets_file": "budgets.csv", "exchange.candidates_file": "candidates.csv"}
            names |= {"cost.rates_file": "rates.csv", "graph.edges_file": "edges.txt"}
            ring = ["--set", "graph.kind=ring", "--set", "partition.num_devices=4"]
            ways = [["run", "digits", *ring, "--set", f"{key}=given/{name}", *dry] for key, name in names.items()]
            ways[-1] += ["--set", "graph.kind=edges"]
        case "records":
            ways = [["report", "given", "--out", "page.html"], ["report", ".", "--out", "page.html"]]
        case "studies":
            ways = [["redraw", "given"], ["reproduce", "fig4", "--out", "given", "--dry-run"]]
        case "checkpoints":
            goes_on = ["resume", rng.choice(["given", "given.partial"]), "--workers", "1"]
            ways = [goes_on, goes_on, [*goes_on, "--json"], ["runs", "."], ["runs", "given.partial"]]
            ways += [["report", ".", "--out", "page.html"]]
        case _:
            ways = [_odd(rng)]
    return rng.choice(ways)


def _odd(rng: Random) -> list[str]:
    """A command line of words that make no sense."""
    word = rng.choice([*WORDS, *HUGE, b"\x1b[31m", b"/dev/zero", b"0-9999999999", b"absent", b"", b"a\nb"]).decode()
    setting = rng.choice(
        ["train.steps", "seed", "exchange.mode", "trian.steps", "name", "data.path", word[:50], "a.b.c"]
    )
    return rng.choice(
        [
            ["run", "digits", "--dry-run", "--set", f"{setting}={word}"],
            ["run", word, "--dry-run"],
            ["compare", "digits", "--dry-run", f"--seeds={word}"],
            ["compare", "digits", "--dry-run", "--methods", word],
            ["reproduce", word, "--dry-run", "--out", "out"],
            ["reproduce", "fig4", "--dry-run", f"--panels={word}", "--out", "out"],
            ["report", word, "--out", "page.html"],
            ["resume", word],
            ["runs", word],
            ["run", f"--{word[:50] or 'x'}"],
            [word, "digits"],
            ["data", "show", word, "--out", "x.png"],
        ]
    )


def ended(words: Sequence[str], code: int | None, said: str, changed: bool) -> str:
    """What became of a command line."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("note: ")]
    if code is None:
        return f"takes over {SECONDS} seconds"
    if "Traceback" in said:
        return f"traceback: {lines[-1]:.100}"
    if code == 0:
        return "taken"
    if code == 2 and not lines and "--help" not in words and words[:1] in ([], ["data"]):
        return "refused"
    began = code == 3 and words[:1] == ["resume"]
    if (code != 2 and not began) or len(lines) != 1 or not lines[0].startswith("error: "):
        return f"ends with code {code} and {len(lines)} lines: {said[:100]!r}"
    return "wrote something" if changed and not began else "refused"


def forked(words: Sequence[str], folder: Path) -> tuple[int | None, str]:
    """Exit code, and what stands on stderr, of a command in a copy of this process."""
    log = folder.parent / "log"
    child = os.fork()
    if child == 0:
        _be_the_command(words, folder, log)
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, ""


def _be_the_command(words: Sequence[str], folder: Path, log: Path) -> None:
    """Ends this process as the command would."""
    code = 70
    try:
        nothing, said = os.open(os.devnull, os.O_RDWR), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target, source in ((0, nothing), (1, nothing), (2, said)):
            os.dup2(source, target)
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="replace")
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        executed: list[str] = []
        watch(executed)
        sys.argv = ["cfcl", *words]
        try:
            from cfcl.cli import main

            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0
        if executed:
            print(f"Traceback of what was executed: {executed[0]}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def started(words: Sequence[str], folder: Path) -> tuple[int | None, str]:
    """The same in a process of its own."""
    call = [sys.executable, "-m", "cfcl", *words]
    try:
        done = subprocess.run(call, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=6 * SECONDS)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stderr.decode(errors="replace")


def commands(seed: int, numbers: Sequence[int], own: int, known: Sequence[Kind], scratch: Path) -> dict[int, str]:
    """What became of command lines, the first `own` of them in processes of their own."""
    forecast.TIMED_SECONDS = 0.0  # nobody reads how long the runs would take
    found: dict[int, str] = {}
    for number in numbers:
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            folder = Path(place) / "here"
            folder.mkdir()
            words = command(seed, number, known, folder)
            if any("\0" in word for word in words):
                continue
            before = state(folder)
            run: Callable[[Sequence[str], Path], tuple[int | None, str]] = started if number < own else forked
            code, said = run(words, folder)
            found[number] = ended(words, code, said, state(folder) != before)
    return found


def tell(name: str, found: dict[int, str]) -> int:
    """Print what became of the inputs of a kind; how many were handled badly."""
    counts = Counter(found.values())
    bad = {number: what for number, what in found.items() if what not in ("refused", "taken")}
    good = "  ".join(f"{word} {counts[word]:>6,}" for word in ("refused", "taken"))
    print(f"{name:<11} {len(found):>7,}  {good}  bad {len(bad):>4,}", flush=True)
    for number in list({what.partition(": ")[0]: number for number, what in bad.items()}.values())[:20]:
        print(f"    {name}:{number} {bad[number]}")
    return len(bad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    only, _, number = options.only.partition(":")
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        os.chdir(scratch)
        known = kinds(scratch)
        (scratch / "tried").mkdir()
        made = [scratch / name for name in ("runs", "study", "stopped")]
        before, bad = [state(folder) for folder in made], 0
        size = round(COMMANDS * options.scale)
        numbers = [int(number)] if number else range(size)
        if only in ("", "commands"):
            own = max(1, round(SUBPROCESSES * options.scale))
            bad += tell("commands", commands(options.seed, numbers, own, known, scratch / "tried"))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for kind in known:
            if only in ("", kind.name):
                numbers = [int(number)] if number else range(round(INPUTS * options.scale))
                bad += tell(kind.name, readers(kind, options.seed, numbers, scratch / "tried"))
        if [state(folder) for folder in made] != before or list(scratch.rglob(CANARY)):
            print("a folder beside was changed, or the canary was executed")
            bad += 1
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
