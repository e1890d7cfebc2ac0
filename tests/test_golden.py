"""Short runs whose numbers are known: what a run computes changes on purpose, or not at all.

    PYTHONPATH=. python -m tests.test_golden > new.json && mv new.json tests/golden.json

plays them again: after a change of numerics, and in the same commit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
import torch

from cfcl import config as configs
from tests.played import Played, Row, play

KEPT = Path(__file__).with_name("golden.json")
TOLERANCE = 1e-4
UPDATE = ("loss", "triplet", "regulariser", "weight", "pulled_share", "margin")
HEALTH = ("alignment", "uniformity", "effective_rank", "objective", "cka")
SPENT = ("bytes_push", "bytes_pull", "bytes_up", "bytes_down", "seconds", "joules")
PULL = ("items", "effective_candidates", "held_labels", "centroid_distance")

# T = 13, T_a = 3 and T_p = 4: four aggregations and a last one, exchanges before, at and after one of them
SHORT = (
    "train.steps=13",
    "train.batch_size=16",
    "partition.num_devices=5",
    "graph.degree=2.4",
    "aggregation.period=3",
    "exchange.period=4",
    "exchange.num_pulled=3",
    "exchange.num_reserve=6",
    "exchange.num_candidates=24",
    "exchange.num_clusters=5",
    "evaluation.every=2",
    "evaluation.num_health=64",
    "evaluation.max_train=400",
    "cost.transmit_watts=0.5",
)
IMPLICIT = "exchange.mode=implicit"
RUNS: dict[str, tuple[str, ...]] = {
    "fedavg": ("exchange.method=fedavg",),
    **{
        f"{method}-{mode}": (f"exchange.method={method}", f"exchange.mode={mode}")
        for method in ("cfcl", "uniform", "kmeans", "bulk", "novel", "cover", "oracle")
        for mode in ("explicit", "implicit")
    },
    "relay-explicit": ("exchange.candidates=relay", "exchange.buffer=keep", "evaluation.num_traced=3"),
    "relay-implicit": ("exchange.candidates=relay", "exchange.buffer=limit", "exchange.buffer_size=7", IMPLICIT),
    "novel-keep": (
        "exchange.method=novel",
        "exchange.buffer=keep",
        "exchange.num_candidates=48",
        "exchange.num_pulled=12",
    ),
    "cover-keep": (
        "exchange.method=cover",
        "exchange.buffer=keep",
        "exchange.cover_neighbours=3",
        "exchange.cover_edge=1.5",
    ),
    "activations": ("exchange.mode=activations", "exchange.layer=features"),
    "activations-8-bit": (
        "exchange.mode=activations",
        "exchange.layer=block1",
        "exchange.precision=uint8",
        "model.encoder=conv",
        "train.objective=infonce",
    ),
    "random-reserve": ("exchange.reserve=random", "exchange.softmax=global", "exchange.temperature_scale=spread"),
    "reserve-clusters": (
        "exchange.num_reserve_clusters=3",
        "exchange.reserve=random",
        "exchange.score=literal_point",
        IMPLICIT,
    ),
    "text-score": ("exchange.score=text", "regulariser.staleness=age", "regulariser.reduction=sum", IMPLICIT),
    "draft-score": ("exchange.score=draft", "regulariser.radius=squared", "regulariser.radius_factor=3", IMPLICIT),
    "local-explicit": ("exchange.importance_model=local",),
    "local-implicit": ("exchange.importance_model=local", IMPLICIT),
    "push-at-aggregations": ("exchange.push=aggregation", "exchange.candidates=per_aggregation", IMPLICIT),
    "union": ("train.composition=union", "exchange.start=5", "exchange.stop=9"),
    "negatives-of-the-batch": (
        "train.negatives=batch",
        "train.batch_size=15",
        "aggregation.num_devices=3",
        "aggregation.moments=reset",
    ),
    "fedprox-sgd": (
        "train.fedprox=0.3",
        "train.optimiser=sgd",
        "train.learning_rate=0.002",
        "train.composition=negatives_only",
    ),
    "infonce-explicit": (
        "train.objective=infonce",
        "exchange.method=uniform",
        "exchange.buffer=keep",
        "train.schedule=cosine",
        "train.warmup=3",
    ),
    "infonce-implicit": ("train.objective=infonce", "train.weight_decay=0.5", "aggregation.ema=0.6", IMPLICIT),
    "dcl-fedema": ("train.objective=dcl", "aggregation.adopt=fedema"),
    "vicreg": ("train.objective=vicreg", "aggregation.server=momentum", "aggregation.server_rate=0.5", IMPLICIT),
    "byol": ("train.objective=byol", "train.momentum=0.8", "aggregation.server=adam", IMPLICIT),
    "kmeans-explicit": ("exchange.method=kmeans", "seed=3"),  # with seed 0 two candidates are as near to a centroid
    # BatchNorm turns rounding into noise: a policy that does not look at embeddings
    "batch-norm": (
        "model.encoder=slim-resnet18",
        "model.embedding_dim=8",
        "train.optimiser=sgd",
        "train.learning_rate=0.000001",
        "exchange.method=uniform",
        "evaluation.num_traced=0",
    ),
}


def play_golden(name: str) -> dict[str, list[float]]:
    return digest(play(configs.load("digits-study", ["name=digits", *SHORT, *RUNS[name]])))


def digest(run: Played) -> dict[str, list[float]]:
    """A few numbers per kind of record."""
    (setup,), (final,) = run.of("setup"), run.of("final")
    updates, judged = run.of("train"), run.of("eval")
    weights = torch.cat([tensor.double().flatten() for _, tensor in sorted(run.encoder.items())])
    return {
        "setup": [setup["num_parameters"], *setup["points"], *(sum(labels) for labels in setup["labels"])],
        **{f"train {row['step']}": _values(row, UPDATE) for row in (updates[0], updates[3], updates[-1])},
        **{f"pull {step}": list(found) for step, found in _pulls(run.of("pull"))},
        **{f"eval {row['step']}": _values(row, HEALTH) for row in (judged[0], judged[1], judged[-1])},
        "counted": [judged[-1]["probe"], judged[-1]["knn"], *(row["active"] for row in updates[:2])],
        "spent": _values(judged[-1], SPENT),
        "costs": [len(run.costs), sum(row["bytes"] * (3 + row["source"] + 10 * row["target"]) for row in run.costs)],
        "final": [final["separation"], *final["label_distances"][3][:4]],
        "encoder": [float(weights.norm()), float(weights.sum())],
    }


def _values(row: Row, keys: tuple[str, ...]) -> list[float]:
    return [row[key] for key in keys if key in row]


def _pulls(rows: list[Row]) -> Iterator[tuple[int, list[float]]]:
    """Per step the number of pulls, and sums over them in which it matters who sends to whom."""
    for step, some in groupby(rows, key=lambda row: int(row["step"])):
        pulls = list(some)
        weights = [3 + row["transmitter"] + 10 * row["receiver"] for row in pulls]
        sums = [sum(w * (row[key] or 0) for w, row in zip(weights, pulls, strict=True)) for key in PULL]
        yield step, [len(pulls), *sums]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_numbers_it_had(name: str) -> None:
    check(play_golden(name), json.loads(KEPT.read_text())[name])


def check(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    assert found.keys() == expected.keys()
    for key, values in found.items():
        # a test image or a triplet that changes sides is no change of numerics
        rounding = 0.02 if key == "counted" else TOLERANCE
        assert values == pytest.approx(expected[key], rel=TOLERANCE, abs=rounding), key


def test_the_numbers_do_not_hang_on_the_instructions_of_a_processor() -> None:
    program = "from tests.test_golden import *; torch.set_num_threads(1); show(['cfcl-explicit', 'cfcl-implicit'])"
    words = {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": os.pathsep.join([str(KEPT.parents[1]), *sys.path])}
    shown = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **words}, capture_output=True, text=True, check=True
    ).stdout
    for name, found in json.loads(shown).items():
        check(found, json.loads(KEPT.read_text())[name])


def show(names: Iterable[str]) -> None:
    """The runs' numbers, a line each."""
    lines = [f"{json.dumps(name)}: {json.dumps(play_golden(name))}" for name in names]
    print("{" + ",\n".join(lines) + "}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    show(RUNS)
