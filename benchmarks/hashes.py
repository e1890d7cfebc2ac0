"""Hashes of short runs, for every preset, method and mode: take them before and after a change, and compare.

    python benchmarks/hashes.py before.json                      # the reference loop
    python benchmarks/hashes.py after.json --engines loop,1,2,3,torchrun --against before.json

Runs have 13 steps with T_a = 3 and T_p = 4, so that each one aggregates and exchanges. Results are kept as they come;
the same command goes on where it was stopped.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cfcl

FILES = ("metrics.jsonl", "costs.json", "encoder.safetensors")
SHORT = (
    "train.steps=13",
    "aggregation.period=3",
    "exchange.period=4",
    "evaluation.every=2",
    "evaluation.max_train=500",
)
METHODS = ("cfcl", "uniform", "kmeans", "bulk", "novel", "oracle")
ALL = ["fedavg", *(f"{method}-{mode}" for mode in ("explicit", "implicit") for method in METHODS)]
PRESETS = {
    **dict.fromkeys(("digits", "digits-paper", "usps", "usps-paper", "fashion-mnist", "fashion-mnist-paper"), ALL),
    **{name: ["cfcl-explicit", "cfcl-implicit"] for name in ("svhn", "svhn-paper")},  # slow: by two workers only
}


def changes(method: str) -> list[str]:
    name, _, mode = method.partition("-")
    return [*SHORT, f"exchange.method={name}", *([f"exchange.mode={mode}"] if mode else [])]


def run(preset: str, method: str, engine: str, out: Path) -> dict[str, str]:
    overrides = changes(method)
    if engine == "torchrun":
        settings = [word for item in overrides for word in ("--set", item)]
        command = ["torchrun", "--standalone", "--nproc-per-node", "2", "-m", "cfcl", "run", preset, *settings]
        where = Path(sys.executable).parent
        subprocess.run([where / command[0], *command[1:], "--out", out], check=True, capture_output=True)
    elif engine == "loop":
        cfcl.run(cfcl.load_config(preset, overrides), out=out, engine="loop", plotted=False)
    else:
        cfcl.run(cfcl.load_config(preset, overrides), out=out, workers=int(engine), plotted=False)
    (folder,) = out.iterdir()
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16] for name in FILES}


def wanted(engines: list[str], presets: list[str]) -> Iterator[tuple[str, str, str]]:
    for preset in presets:
        for method in PRESETS[preset]:
            for engine in ["2"] if preset.startswith("svhn") else engines:
                yield preset, method, engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--engines", default="loop")
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    before = json.loads(options.against.read_text()) if options.against else {}
    differing = 0
    for preset, method, engine in wanted(options.engines.split(","), options.presets.split(",")):
        key = f"{preset} {method} {engine}"
        if key not in known:
            with tempfile.TemporaryDirectory() as folder:
                known[key] = run(preset, method, engine, Path(folder))
            options.out.write_text(json.dumps(known, indent=1) + "\n")
        one = before.get(key) or before.get(f"{preset} {method} loop", known[key])
        found = [name for name in FILES if one[name] != known[key][name]]
        differing += bool(found)
        print(key, f"DIFFERS: {', '.join(found)}" if found else "same" if before else "kept", flush=True)
    print(f"{differing} runs differ" if before else f"{len(known)} runs kept")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
