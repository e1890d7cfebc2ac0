"""How cost grows with the number of devices: time per update, peak memory, bytes.

python benchmarks/scale.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
from engine import one
from results import keep

from cfcl.sim import engines

matplotlib.use("agg")
from matplotlib import pyplot

SIZES = (10, 100, 1000)
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "growth.png"
Found = dict[str, float]


def settings(devices: int, points_per_label: int, folder: Path) -> list[str]:
    """As many points and neighbours for each device, however many devices there are."""
    edges = folder / f"edges-{devices}"
    edges.write_text("\n".join(f"{i} {(i + hop) % devices}" for i in range(devices) for hop in (1, 2, 3)))
    return [
        f"partition.num_devices={devices}",
        "partition.kind=overlapping",
        f"partition.max_points_per_label={points_per_label}",
        "graph.kind=edges",
        f"graph.edges_file={edges}",
    ]


def measure(preset: str, wanted: list[str], cores: int) -> Found:
    words = [word for setting in wanted for word in ("--set", setting)]
    run = one(preset, *words, "--workers", cores)
    return {
        "per_update_ms": run["per_update_ms"],
        "peak_mib": run["peak_mib"] + (cores - 1) * run["peak_mib_worker"],
        "bytes_pull": run["bytes"]["bytes_pull"],
        "bytes_up": run["bytes"]["bytes_up"],
        "exchange_share": run["exchange"] / run["seconds"],
    }


def num_steps(devices: int) -> int:
    """Enough to be timed, and an exchange at least."""
    return max(30, 3000 // devices)


def draw(found: dict[str, Found], path: Path) -> None:
    """Time and bytes per update, and memory, over the number of devices."""
    sizes = [int(name.rpartition(" ")[2]) for name in found]
    rows = list(found.values())
    sent = [(row["bytes_pull"] + row["bytes_up"]) / 1e3 for row in rows]
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
    for axes, label, values, colour in zip(
        panels,
        ("ms per update of one device", "kB sent per update of one device", "peak memory of all processes, GiB"),
        (
            [row["per_update_ms"] for row in rows],
            [total / size / num_steps(size) for total, size in zip(sent, sizes, strict=True)],
            [row["peak_mib"] / 1024 for row in rows],
        ),
        ("#0072B2", "#009E73", "#D55E00"),
        strict=True,
    ):
        axes.plot(sizes, values, "o-", color=colour)
        axes.set(xscale="log", xlabel="devices", ylabel=label, ylim=(0, 1.15 * max(values)))
        axes.grid(alpha=0.3)
    figure.suptitle("USPS, CF-CL explicit: growth with the number of devices")
    figure.savefig(path, dpi=150, metadata={"Software": None})


def main() -> None:
    cores = engines.num_cores()
    found: dict[str, Found] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(2):
            for devices in SIZES:
                wanted = [*settings(devices, 243, folder), f"train.steps={num_steps(devices)}"]
                row = measure("usps-study", wanted, cores)
                key = f"usps {devices}"
                if turn == 0 or row["per_update_ms"] < found[key]["per_update_ms"]:
                    found[key] = row
                print(f"{key}: {row}", flush=True)
        many = measure("digits", [*settings(10_000, 48, folder), "train.steps=10", "exchange.period=5"], cores)
        print(f"digits 10000: {many}", flush=True)
    first, last = (found[f"usps {devices}"]["per_update_ms"] for devices in (SIZES[0], SIZES[-1]))
    print(f"time per update at {SIZES[-1]} devices over that at {SIZES[0]}: {last / first:.2f}")
    draw(found, PICTURE)
    print(keep("scale", {**found, "digits 10000": many, "growth": last / first}))


if __name__ == "__main__":
    main()
