"""Kill runs at random moments, go on with them, and compare their end with that of runs which nobody killed.

    python benchmarks/kills.py --kills 100 --seed 1
    python benchmarks/kills.py --kills 10 --seed 1 --modes faults

Prints a line per run and the totals; exits with 1 if any byte differs, or any process or file is left behind.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FILES = ("card.md", "config.toml", "metrics.jsonl", "costs.json", "encoder.safetensors")
SETTINGS = (
    "train.steps=300",
    "train.batch_size=16",
    "aggregation.period=5",
    "exchange.period=7",
    "exchange.num_pulled=2",
    "evaluation.every=4",
    "checkpoint.every=10",
)
MODES = {
    "explicit": ("exchange.buffer=keep",),
    "activations": ("exchange.mode=activations", "exchange.layer=features", "train.objective=infonce"),
    "implicit": ("exchange.mode=implicit",),
    "novel": ("exchange.method=novel", "exchange.buffer=keep"),
    "fedavg": ("exchange.method=fedavg",),
    "faults": (
        "exchange.buffer=keep",
        "faults.offline=0.3",
        "faults.loss=0.2",
        "faults.straggling=0.1",
        "faults.damage=0.1",
        "faults.gone=0.1",
    ),
}
MARK = "CFCL_KILLS"
AT_MOST = 4
"""Kills of one run; then it may end."""


@dataclass
class Tally:
    """What has come of it."""

    duration: float
    """Seconds in which a run is killed, somewhere; a little less after each that ended before."""
    kills: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


def command(mode: str, out: Path) -> list[str]:
    words = [word for item in (*SETTINGS, *MODES[mode]) for word in ("--set", item)]
    return [sys.executable, "-m", "cfcl", "run", "digits-study", *words, "--out", str(out), "--json"]


def started(words: list[str], workers: int, scratch: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, MARK: str(scratch), "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*words, "--workers", str(workers)], stdout=quiet, stderr=quiet, env=env)


def marked(scratch: Path) -> list[int]:
    """Processes of the run whose temporary files are in `scratch`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{MARK}={scratch}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def killed(process: subprocess.Popen[bytes], scratch: Path, after: float, *, any_of_them: bool) -> bool:
    """Whether it was still there to be killed; a worker may be the victim, and the leader ends by itself."""
    time.sleep(after)
    if process.poll() is not None:
        return False
    others = [pid for pid in marked(scratch) if pid != process.pid]
    victim = random.choice(others) if any_of_them and others else process.pid
    os.kill(victim, signal.SIGKILL)
    process.wait(120)
    deadline = time.monotonic() + 20
    while marked(scratch) and time.monotonic() < deadline:
        time.sleep(0.1)
    return True


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def one(mode: str, rng: random.Random, wanted: dict[str, bytes], tally: Tally) -> None:
    """A run that is killed a few times, and then ends."""
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        out, scratch, deaths, faults = Path(place) / "runs", Path(place) / "tmp", 0, list[str]()
        scratch.mkdir()
        while not list(out.glob("*/encoder.safetensors")) or list(out.glob("*.partial")):
            partial = next(out.glob("*.partial"), None)
            words = [sys.executable, "-m", "cfcl", "resume", str(partial), "--json"]
            again = command(mode, out) if partial is None or rng.random() < 0.3 else words
            process = started(again, rng.choice([1, 2]), scratch)
            hit = False
            if deaths < AT_MOST:
                hit = killed(process, scratch, rng.uniform(0, tally.duration), any_of_them=rng.random() < 0.3)
                deaths, tally.duration = deaths + hit, tally.duration * (1 if hit else 0.9)
            code = process.wait()
            if left := marked(scratch):
                faults.append(f"processes left behind: {left}")
            if deaths >= AT_MOST and code != 0 and not hit:
                faults.append(f"{' '.join(again[3:5])} ended with {code}")
                break
        folders = [path for path in out.iterdir() if path.is_dir()]
        if len(folders) != 1 or {path.name for path in folders[0].iterdir()} - {"plots"} != {
            *FILES,
            "timings.json",
            "environment.json",
        }:
            faults.append(f"files left behind: {sorted(str(path.relative_to(out)) for path in out.rglob('*'))}")
        elif files(folders[0]) != wanted:
            faults.append("its bytes differ")
        # torch keeps a cache there, which is not ours to remove.
        if strays := [path.name for path in scratch.iterdir() if not path.name.startswith("torchinductor_")]:
            faults.append(f"temporary files left behind: {strays}")
        tally.kills, tally.runs = tally.kills + deaths, tally.runs + 1
        tally.wrong += [f"{mode}: {fault}" for fault in faults]
        print(f"{mode}: {deaths} kills, {'; '.join(faults) or 'the same bytes'}", flush=True)


def references(modes: Sequence[str]) -> tuple[dict[str, dict[str, bytes]], float]:
    """What each of `modes` leaves behind if nobody kills it, and how long one takes."""
    found, place = {}, Path(tempfile.mkdtemp(prefix="kills-"))
    begun = time.monotonic()
    for mode in modes:
        subprocess.run([*command(mode, place / mode), "--workers", "1"], stdout=subprocess.DEVNULL, check=True)
        (folder,) = (place / mode).iterdir()
        found[mode] = files(folder)
    shutil.rmtree(place)
    return found, (time.monotonic() - begun) / len(modes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    random.seed(options.seed)
    wanted, duration = references(options.modes)
    tally = Tally(duration)
    print(f"a run that nobody kills takes {duration:.1f} s", flush=True)
    while tally.kills < options.kills:
        mode = rng.choice(sorted(options.modes))
        one(mode, rng, wanted[mode], tally)
    print(f"{tally.kills} kills of {tally.runs} runs, {len(tally.wrong)} faults")
    for fault in tally.wrong:
        print(fault)
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
