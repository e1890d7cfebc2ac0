"""The share of the machine's peak that training reaches by work really done, for every preset; what objectives cost.

    python benchmarks/peak.py                  # four presets, the same of the study, five objectives: seven minutes
    python benchmarks/peak.py --presets usps,usps-study

Leave the machine alone. The peak is that of single-precision matrix products, one thread per core, measured before and
after each run. Work is that of forward and backward passes; backward passes of closed triplets are left out, and not
counted. Runs exchange datapoints by uniform choice, with as many workers as cores.
"""

import argparse
import json
import time

import torch
from engine import Found, gemm_peak, one
from results import keep
from torch.utils.flop_counter import FlopCounterMode

from cfcl import config
from cfcl.sim import engines, world

STEPS = {
    "digits": 300, "usps": 150, "fashion-mnist": 60, "svhn": 40,
    "digits-study": 600, "usps-study": 600, "fashion-mnist-study": 200, "svhn-study": 12,
}  # fmt: skip
OBJECTIVES = ("triplet", "infonce", "dcl", "vicreg", "byol")


def flops(preset: str, *overrides: str) -> tuple[float, float]:
    """Work of the forward and of the backward pass of one device's update, in GFLOP."""
    scene = world.build(config.load(preset, list(overrides)))
    settings, encoder = scene.config.train, scene.setting.encoder
    num_images = (3 if settings.objective == "triplet" else 2) * settings.batch_size
    images = torch.rand(num_images, *scene.dataset.image_shape)
    found = []
    for whole in (False, True):
        with FlopCounterMode(display=False) as counter:
            if whole:
                encoder.gradient(encoder.initial, images, lambda embeddings: (encoder.predict(embeddings).sum(), None))
            else:
                encoder.embed(encoder.initial, images)
        found.append(counter.get_total_flops() / 1e9)
    forward, both = found
    # BYOL's target sees the same images, forwards only.
    return forward * (2 if settings.objective == "byol" else 1), both - forward


def measure(preset: str, steps: int, cores: int, *overrides: str) -> Found:
    """One run between two looks at the peak."""
    words = [word for item in ("exchange.method=uniform", *overrides) for word in ("--set", item)]
    before = gemm_peak(cores)
    run = one(preset, *words, "--set", f"train.steps={steps}", "--workers", cores)
    peak = max(before, gemm_peak(cores))
    forward, backward = flops(preset, *overrides)
    open_share = run["active"] if config.load(preset, list(overrides)).train.objective == "triplet" else 1.0
    work = forward + backward * open_share
    rate = work / (run["per_update_ms"] / 1000)
    return {
        "per_update_ms": run["per_update_ms"], "gflop_per_update": work, "open": open_share,
        "gemm_gflops": peak, "share_of_peak": rate / peak,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join(STEPS))
    parser.add_argument("--no-objectives", dest="objectives", action="store_false")
    options = parser.parse_args()
    cores, begun, found = engines.num_cores(), time.perf_counter(), {}
    for preset in options.presets.split(","):
        found[preset] = measure(preset, STEPS[preset], cores)
        print(f"{preset:20} {json.dumps(found[preset])}", flush=True)
    if options.objectives:
        for objective in OBJECTIVES:
            name = f"usps, {objective}"
            margin = ["train.margin=1.0"] if objective == "triplet" else []
            found[name] = measure("usps", 100, cores, f"train.objective={objective}", *margin)
            print(f"{name:20} {json.dumps(found[name])}", flush=True)
    print(keep("peak", {"cores": cores, "minutes": (time.perf_counter() - begun) / 60, **found}))


if __name__ == "__main__":
    main()
