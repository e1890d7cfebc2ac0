"""Runs that did not end, and encoders: what is left of a run for others to go on from."""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from spoiling import Files

from cfcl import config as configs
from cfcl import load_encoder
from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.objectives import Loss
from cfcl.protocol import snapshot
from cfcl.records import Record, Update
from cfcl.runs import checkpoints, folders, suites
from cfcl.sim import world
from cfcl.sim.world import World

MODES = (
    ("exchange.method=novel", "exchange.buffer=keep", "exchange.candidates=relay"),
    ("exchange.mode=implicit", "aggregation.rule=median"),
)
TINY = (
    "model.encoder=usps-cnn",
    "model.embedding_dim=2",
    "partition.num_devices=3",
    "graph.kind=line",
    "evaluation.log_every=1",
    "evaluation.max_train=20",
    "evaluation.num_neighbours=3",
    "evaluation.ridge=10.0",
    "checkpoint.every=1",
)
SEALED = 0.9
"""The share of spoilt checkpoints that get the checksum of what they are now, so that more is read than that."""
STEPS = ("00000000", "00000001", "00000099", "99999999", "\u0663" * 8)


def remember_worlds() -> None:
    """Build the data, graph and model of a config once: to read thousands of checkpoints of a run takes one world."""
    build = world.build

    @lru_cache(maxsize=8)
    def built(config: Config, torch_device: str) -> World:
        return build(config, torch_device=torch_device)

    def remembered(
        config: Config,
        *,
        torch_device: str = "cpu",
        dataset: Dataset | None = None,
        module: Any = None,
        loss: Loss | None = None,
    ) -> World:
        assert dataset is module is loss is None
        return built(config, torch_device)

    world.build = remembered


def unfinished(settings: Sequence[str], out: Path) -> list[Files]:
    """Folders of runs that were stopped before their last step, with the same bytes every time."""
    return [_stopped([*settings, *TINY, *mode], out / str(number)) for number, mode in enumerate(MODES)]


def _stopped(settings: Sequence[str], out: Path) -> Files:
    def stop(record: Record) -> None:
        if isinstance(record, Update) and record.step == 3:
            raise KeyboardInterrupt

    try:
        suites.simulate(configs.load("digits", settings), out=out, workers=1, plotted=False, watch=stop)
    except KeyboardInterrupt:
        (partial,) = out.glob("*.partial")
    found = {name: (partial / name).read_bytes() for name in (folders.CONFIG, folders.METRICS)}
    for file in checkpoints.files(partial):
        tree = snapshot.decode(file.read_bytes())
        tree["clocks"] = {"selection": [[0, 0.25]], "exchange": 0.5, "evaluation": 1.0, "total": 2.0}
        found |= sealed(Random(0), {file.name: snapshot.encode(tree)})
    return found


def some(rng: Random, runs: Sequence[Files]) -> Files:
    """One of the folders, with one checkpoint or two."""
    files = dict(rng.choice(runs))
    if rng.random() < 0.8:
        del files[min(name for name in files if name.startswith("checkpoint-"))]
    return files


def sealed(rng: Random, files: Files) -> Files:
    """The same, where most checkpoints have the checksum of what they are now, and some the number of another step."""
    found: dict[str, bytes] = {}
    for name, data in files.items():
        known = checkpoints.NAME.fullmatch(name)
        if known and rng.random() < SEALED:
            step = known[1] if rng.random() < 0.95 else rng.choice(STEPS)
            name = f"checkpoint-{step}-{hashlib.sha256(data).hexdigest()[:32]}.safetensors"
        found[name] = data
    return found


def go_on(folder: Path, rng: Random) -> None:
    """Does in a copy of `folder` what `cfcl resume` does there: refuses it and leaves it as it is, or ends the run."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        partial = shutil.copytree(folder, Path(place) / f"run{folders.PARTIAL}")
        notes: list[str] = []
        try:
            found = suites.resume(partial, workers=1, plotted=False, note=notes.append)
        except CfclError as error:
            if error.exit_code == CfclError.exit_code:
                assert contents(partial) == contents(folder), "what it refused is not as it was"
            raise
        finally:
            assert not any("\n" in note for note in notes), f"not one line: {notes}"
        assert found.folder is not None
        _loaded(found.folder)


def _loaded(folder: Path) -> None:
    try:
        folders.load(folder)
    except CfclError as error:
        raise AssertionError(f"what it wrote cannot be read: {error}") from None


def contents(folder: Path) -> dict[str, bytes]:
    """The files that hold anything; a lock, or records yet to come, do not."""
    return {file.name: data for file in folder.iterdir() if (data := file.read_bytes())}


def load(folder: Path, rng: Random) -> None:
    """Loads the encoder, and embeds an image."""
    encoder = load_encoder(folder / "encoder.safetensors")
    assert encoder.embed(torch.zeros(1, *encoder.image_shape)).shape == (1, encoder.embedding_dim)
