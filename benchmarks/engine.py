"""The fast engine against the machine's limit and against other ways to do the same work, in turns, as ratios.

Triplets and the networks of the study; `peak.py` measures the presets of today beside them.

python benchmarks/engine.py [--rounds 3] [--flower PYTHON]   PYTHON has flwr; without it that part is left out
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from results import keep
from torch.utils.flop_counter import FlopCounterMode

from cfcl import config
from cfcl.core import losses
from cfcl.sim import engines, world

HERE = Path(__file__).parent
Found = dict[str, Any]

GEMM = """
import time, torch
torch.set_num_threads(1)
a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
best = 1e9
end = time.perf_counter() + 3
while time.perf_counter() < end:
    begun = time.perf_counter()
    a @ b
    best = min(best, time.perf_counter() - begun)
print(2 * 1024**3 / best / 1e9)
"""


def call(*words: object, **environment: str) -> Found:
    """The JSON on the last line that a script prints."""
    result = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        env={**os.environ, **environment},
        check=False,
    )
    if result.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{result.stderr[-3000:]}")
    found: Found = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def one(preset: str, *options: object) -> Found:
    return call(sys.executable, HERE / "one.py", preset, *options)


def several(number: int, preset: str, *options: object) -> Found:
    """As many runs at once that know nothing of each other: what the cores give if nothing is ever waited for."""
    with ThreadPoolExecutor(number) as pool:
        runs = list(pool.map(lambda _: one(preset, *options), range(number)))
    return {"per_update_ms": statistics.mean(run["per_update_ms"] for run in runs) / number}


def gemm_peak(cores: int) -> float:
    """GFLOP/s of single-precision matrix products, all cores at once, one thread each."""
    children = [subprocess.Popen([sys.executable, "-c", GEMM], stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    return sum(float(child.communicate()[0]) for child in children)


def flops_per_update(preset: str) -> int:
    """Multiplications and additions of one device's forward and backward pass."""
    scene = world.build(config.load(preset))
    setting, encoder = scene.config, scene.setting.encoder
    images = torch.rand(3 * setting.train.batch_size, *scene.dataset.image_shape)

    def loss(embeddings: torch.Tensor) -> tuple[torch.Tensor, None]:
        return losses.triplet_loss(*embeddings.chunk(3), margin=setting.train.margin).mean(), None

    with FlopCounterMode(display=False) as counter:
        encoder.gradient(encoder.initial, images, loss)
    return int(counter.get_total_flops())


def steps(number: int) -> tuple[str, str]:
    return "--set", f"train.steps={number}"


def sides(preset: str, cores: int, flower: str | None) -> dict[str, Any]:
    """What is compared, by name: functions that give milliseconds per update of one device."""
    fedavg = ("--set", "exchange.method=fedavg")
    # ours speeds up as hinges close, so it runs long; the others cost the same at every step
    length = {"fashion-mnist-study": 300, "usps-study": 600}[preset]
    rounds = {"fashion-mnist-study": 4, "usps-study": 10}[preset]
    found = {
        "ours, a worker per core": lambda: one(preset, *fedavg, *steps(length), "--workers", cores),
        "ours, one worker": lambda: one(preset, *fedavg, *steps(length), "--workers", 1),
        "ours, unconnected one-worker runs, one per core": lambda: several(
            cores, preset, *fedavg, *steps(length), "--workers", 1
        ),
        "reference loop, torch's threads": lambda: one(
            preset, *fedavg, *steps(length), "--engine", "loop", "--default-threads"
        ),
        "plain script": lambda: call(sys.executable, HERE / "plain.py", preset, rounds),
    }
    if flower:
        paths = {"CFCL_BENCH_PRESET": preset, "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE}"}
        for name, kind in (("our batched augmentation", "batch"), ("transforms image by image", "sample")):
            found[f"Flower, {name}"] = partial(
                call, flower, HERE / "flower.py", rounds + 1, CFCL_BENCH_TRANSFORMS=kind, **paths
            )
    return found


def compare(preset: str, cores: int, rounds: int, flower: str | None) -> Found:
    """Medians and spreads of all sides, taken in turns."""
    measured: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, side in sides(preset, cores, flower).items():
            measured.setdefault(name, []).append(side()["per_update_ms"])
            print(f"  {preset}, {name}: {measured[name][-1]:.2f} ms per update", flush=True)
    base = measured["ours, a worker per core"]
    return {
        name: {
            "per_update_ms": statistics.median(values),
            "all": values,
            # paired: what ran in the same turn
            "ratio": statistics.median(theirs / ours for theirs, ours in zip(values, base, strict=True)),
            "ratios": [theirs / ours for theirs, ours in zip(values, base, strict=True)],
        }
        for name, values in measured.items()
    }


PRINTED = ("exchange.num_pulled=10", "exchange.buffer=purge")
"""The paper's settings of an exchange."""


def whole_runs(cores: int) -> Found:
    """Whole Fashion-MNIST runs of CF-CL and of uniform exchange: share of the GEMM peak, and what the exchange costs.

    The work counted is that of all triplets, also of those whose backward pass is left out.
    """
    setting = config.load("fashion-mnist-study")
    words = [word for setting in PRINTED for word in ("--set", setting)]
    before = gemm_peak(cores)
    runs = {
        method: one("fashion-mnist-study", *words, "--set", f"exchange.method={method}", "--workers", cores)
        for method in ("cfcl", "uniform")
    }
    after = gemm_peak(cores)
    work = flops_per_update("fashion-mnist-study") * setting.train.steps * setting.partition.num_devices
    rate = work / runs["cfcl"]["seconds"] / 1e9
    return {
        "gflops": rate,
        "gemm_gflops": [before, after],
        "share_of_gemm": rate / max(before, after),
        "cfcl_over_uniform": runs["cfcl"]["seconds"] / runs["uniform"]["seconds"],
        **{
            method: {
                "seconds": run["seconds"],
                "per_update_ms": run["per_update_ms"],
                "open_hinges": run["active"],
                "exchange_share": run["exchange"] / run["seconds"],
                "collectives_share": run["collectives"] / run["seconds"],
            }
            for method, run in runs.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--flower", help="a Python that has flwr")
    parser.add_argument("--presets", default="fashion-mnist-study,usps-study", help="what sides are compared on")
    parser.add_argument("--no-whole-runs", dest="whole", action="store_false")
    options = parser.parse_args()
    cores = engines.num_cores()
    begun = time.perf_counter()
    found: Found = {"cores": cores}
    presets = options.presets.split(",")
    for preset in presets:
        found[preset] = compare(preset, cores, options.rounds, options.flower)
    if options.whole:
        found["whole_runs"] = whole_runs(cores)
    found["minutes"] = (time.perf_counter() - begun) / 60
    for preset in presets:
        for name, side in found[preset].items():
            spread = f"{min(side['ratios']):.2f} to {max(side['ratios']):.2f}"
            print(f"{preset:14} {name:48} {side['per_update_ms']:8.2f} ms  × {side['ratio']:.2f} ({spread})")
    print(json.dumps(found.get("whole_runs"), indent=1))
    print(keep("engine", found))


if __name__ == "__main__":
    main()
