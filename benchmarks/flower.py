"""The same federated averaging in Flower's simulation engine.

Needs `flwr[simulation]==1.41.0`, which wants versions of its own: `make bench-flower` gives it an environment.
CFCL_BENCH_PRESET=usps CFCL_BENCH_TRANSFORMS=batch PYTHONPATH=src:benchmarks python benchmarks/flower.py 4
"""

import json
import os
import sys
import time

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from flower_client import client_fn, scene, weights
from flwr.client import ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation


class Timed(FedAvg):
    """FedAvg that notes when rounds end, and does not forgive a failure."""

    def __init__(self, devices: int) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_fit_clients=devices,
            min_available_clients=devices,
            initial_parameters=ndarrays_to_parameters(weights()),
            on_fit_config_fn=lambda number: {"round": number},
            accept_failures=False,
        )
        self.ends: list[float] = []

    def aggregate_fit(self, server_round, results, failures):  # type: ignore[no-untyped-def]
        """As FedAvg does."""
        if failures:
            print(f"{len(failures)} clients failed: {failures[0]}", file=sys.stderr)
            os._exit(1)
        found = super().aggregate_fit(server_round, results, failures)
        self.ends.append(time.perf_counter())
        return found


def main() -> None:
    rounds = int(sys.argv[1])
    devices = scene().config.partition.num_devices
    strategy = Timed(devices)

    def server_fn(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    run_simulation(
        server_app=ServerApp(server_fn=server_fn),
        client_app=ClientApp(client_fn=client_fn),
        num_supernodes=devices,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": os.cpu_count(), "include_dashboard": False},
        },
    )
    updates = (rounds - 1) * scene().config.aggregation.period * devices
    print(json.dumps({"per_update_ms": 1e3 * (strategy.ends[-1] - strategy.ends[0]) / updates}))


if __name__ == "__main__":
    main()
