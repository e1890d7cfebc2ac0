"""What is spoilt, and what is then asked to read it.

A kind is a name, valid files, ways to spoil them, the function under test, and the exceptions that it may raise. To add
one, append it to what `kinds` returns.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import rubbish_runs
import rubbish_use
import torch
from spoiling import ANY, Files, Spoiler, unsigned
from spoiling_tensors import header, table, tensors

from cfcl import config as configs
from cfcl import topology
from cfcl.errors import CfclError
from cfcl.exchange import links
from cfcl.exchange.messages import DataReserve, EmbeddingItems, GlobalModel, LocalModel, Message, PullRequest
from cfcl.protocol import codec, outages
from cfcl.runs import folders, report, suites
from cfcl.study import bundle, collect
from cfcl.study import report as study_report
from cfcl.study.bundle import Cell, Selection, Study

SMALL = [
    "train.steps=4",
    "train.batch_size=4",
    "partition.num_devices=4",
    "graph.kind=ring",
    "aggregation.period=2",
    "exchange.period=1",
    "exchange.num_pulled=1",
    "exchange.num_reserve=2",
    "exchange.num_candidates=4",
    "exchange.num_clusters=2",
    "evaluation.num_health=8",
    "evaluation.max_train=100",
]
RING = topology.ring(4)
DRAWN = 0.05
"""The share of what was taken that is drawn, too: it takes a second."""


@dataclass(frozen=True)
class Kind:
    """Something that people or other machines hand us."""

    name: str
    valid: Callable[[Random], Files]
    read: Callable[[Path, Random], object]
    """The function under test, given the folder of the files."""
    may_raise: tuple[type[Exception], ...] = (CfclError,)
    spoilers: Sequence[Spoiler] = ANY
    often: Callable[[str], int] = lambda name: 1
    """How often a file is spoilt, beside the others."""
    sealed: Callable[[Random, Files], Files] = lambda rng, files: files
    """What is done to spoilt files so that they are not recognised as such at the first glance."""


def kinds(scratch: Path) -> list[Kind]:
    """All kinds; what they need to be made is made below `scratch`."""
    rubbish_runs.remember_worlds()
    run, encoder = _run(scratch / "runs")
    study = _study(run, scratch / "study")
    stopped = rubbish_runs.unfinished(SMALL, scratch / "stopped")
    inside = (*ANY, *[header, table, table, tensors] * 4)
    return [
        Kind("configs", _configs, _read_config),
        Kind("messages", _messages, _read_messages, (codec.Malformed,), inside),
        Kind("tables", _tables, _read_tables),
        Kind("records", lambda rng: _files(run), _read_run),
        Kind("studies", lambda rng: study if rng.random() < 0.2 else unsigned(study), _read_study),
        Kind(
            "checkpoints",
            lambda rng: rubbish_runs.some(rng, stopped),
            rubbish_runs.go_on,
            spoilers=inside,
            often=lambda name: 1 if name in ("config.toml", "metrics.jsonl") else 8,
            sealed=rubbish_runs.sealed,
        ),
        Kind("encoders", lambda rng: encoder, rubbish_runs.load, spoilers=inside),
        Kind("images", rubbish_use.piles, rubbish_use.read_pile),
        Kind("embeddings", rubbish_use.embeddings, rubbish_use.read_embeddings),
    ]


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


def _configs(rng: Random) -> Files:
    preset = rng.choice(list(configs.presets()))
    text = configs.to_toml(configs.load(preset), explain=rng.random() < 0.3)
    kept = [line for line in text.splitlines() if line.startswith("[") or rng.random() < 0.7]
    return {"config.toml": "\n".join(kept).encode()}


def _read_config(folder: Path, rng: Random) -> None:
    found = configs.load(folder / "config.toml", ["seed=3"])
    assert configs.parse(configs.to_toml(found)) == found
    configs.notes(configs.given("config.toml", found), [found])


def _messages(rng: Random) -> Files:
    vectors, pixels = torch.rand(3, 4), torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    batches: list[list[Message]] = [
        [],
        [PullRequest(0, 1, 2, 5), PullRequest(3, 1, 2, 0)],
        [DataReserve(1, 2, 0, pixels, vectors[:, 0]), DataReserve(2, 1, 0, pixels[:1])],
        [EmbeddingItems(4, 5, 7, vectors), EmbeddingItems(5, 4, 7, vectors[:1], 2)],
        [LocalModel(0, -1, 3, vectors[0], vectors[0, :0], 0.5, {"target": vectors[1]})],
        [GlobalModel(-1, 0, 3, vectors[0], vectors[1])],
    ]
    return {"messages": codec.encode(rng.choice(batches))}


def _read_messages(folder: Path, rng: Random) -> None:
    found = codec.decode((folder / "messages").read_bytes())
    assert all(isinstance(message, Message) for message in found)


def _tables(rng: Random) -> Files:
    pairs = list(RING.links)
    budgets = "".join(f"{one},{other},{rng.randint(0, 4)},{rng.randint(1, 9)}\n" for one, other in pairs)
    stepped = "".join(f"{one},{other},2,3,{step}\n" for one, other in pairs[:3] for step in (0, 5))
    heads = "transmitter,receiver,num_pulled,num_reserve"
    rates = "".join(f"{one},{other},{rng.random() + 0.1}\n" for one, other in pairs)
    return {
        "budgets.csv": (f"{heads}\n{budgets}" if rng.random() < 0.5 else f"{heads},step\n{stepped}").encode(),
        "rates.csv": f"source,target,mbps\n{rates}".encode(),
        "candidates.csv": b"device,num_candidates\n0,12\n2,30\n",
        "away.csv": b"device,from,to\n0,12,20\n2,30,\n",
        "down.csv": b"source,target,from,to\n0,1,12,20\n3,-1,0,\n",
        "graphs.csv": b"from,edges_file\n5,edges.txt\n9,edges.txt\n",
        "edges.txt": b"# a ring\n0 1\n1 2\n2, 3\n3 0\n",
    }


def _read_tables(folder: Path, rng: Random) -> None:
    for name in ("budgets", "candidates"):
        links.budgets(configs.load("digits", [*SMALL, f"exchange.{name}_file={folder / name}.csv"]), RING)
    links.rates(folder / "rates.csv", RING)
    for name, file in {"offline": "away", "links": "down", "graphs": "graphs"}.items():
        outages.load(configs.load("digits", [*SMALL, f"faults.{name}_file={folder / file}.csv"]), RING)
    topology.from_file(folder / "edges.txt", 4)


def _run(out: Path) -> tuple[Path, Files]:
    """The folder of a run of a second, with the same bytes every time, and its encoder."""
    found = suites.simulate(configs.load("digits", SMALL), out=out, workers=1, plotted=False)
    assert found.folder is not None
    timings = {"selection": [[1, 0.25], [2, 0.5]], "exchange": 0.5, "evaluation": 1.0, "total": 2.0}
    (found.folder / "timings.json").write_text(json.dumps(timings, indent=1))
    encoder = found.folder / "encoder.safetensors"
    files = {encoder.name: encoder.read_bytes()}
    encoder.unlink()
    return found.folder, files


def _read_run(folder: Path, rng: Random) -> None:
    run = folders.load(folder)
    if rng.random() < DRAWN:
        report.render([run])


def _study(run: Path, out: Path) -> Files:
    record = collect.record(run)
    places = ("fig4", "fig5")
    cells = tuple(Cell(figure, "digits", record.method, {}, record.seed, record.digest) for figure in places)
    cells += (Cell("fig8", "digits", record.method, {"devices": 2}, record.seed, record.digest),)
    chosen = Selection(record.digest, "digits", record.seed, "uniform-explicit", 10, 0.5, 0.25, (0, 3, 7), 0.75)
    about = {
        "profile": "smoke",
        "pilot": 10,
        "numerics": 2,
        "milestones": {"digits explicit": [0.5]},
        "notes": ["made"],
    }
    bundle.write(Study(about, cells, {record.digest: record}, (chosen,)), out)
    return _files(out)


def _read_study(folder: Path, rng: Random) -> None:
    study = bundle.read(folder)
    if rng.random() < DRAWN:
        study_report.compose(study)
