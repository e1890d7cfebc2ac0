"""Runs for tests, each played once per process: what a run writes is all that is looked at."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load

import cfcl
from cfcl.config import Config
from tests.conftest import small

Row = dict[str, Any]
FILES = ("card.md", "config.toml", "metrics.jsonl", "costs.json", "encoder.safetensors")


@dataclass(frozen=True)
class Played:
    """What a run left behind."""

    files: dict[str, bytes]
    """The files that depend on nothing but the config."""
    timings: Row
    environment: Row

    @property
    def rows(self) -> list[Row]:
        return [json.loads(line) for line in self.files["metrics.jsonl"].splitlines()]

    @property
    def costs(self) -> list[Row]:
        found: list[Row] = json.loads(self.files["costs.json"])
        return found

    @property
    def params(self) -> torch.Tensor:
        """The final encoder as one vector."""
        return torch.cat([tensor.flatten() for _, tensor in sorted(self.encoder.items())])

    @property
    def encoder(self) -> dict[str, torch.Tensor]:
        """The final encoder's tensors by name."""
        return load(self.files["encoder.safetensors"])

    def of(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row["kind"] == kind]


def play(config: Config, workers: int = 0) -> Played:
    """A run of `config` by the reference loop, or by the fast engine in so many processes."""
    with TemporaryDirectory() as folder:
        if workers == 0:
            result = cfcl.run(config, engine="loop", out=Path(folder), plotted=False)
        else:
            result = cfcl.run(config, workers=workers, out=Path(folder), plotted=False)
        assert result.folder is not None
        files = {name: (result.folder / name).read_bytes() for name in FILES}
        timings, environment = (
            json.loads((result.folder / f"{name}.json").read_text()) for name in ("timings", "environment")
        )
    return Played(files, timings, environment)


@cache
def reference(config: Config) -> Played:
    """The reference loop's run of `config`."""
    return play(config)


def played(*overrides: str) -> Played:
    """The reference loop's run of the small config with `overrides`."""
    return reference(small(*overrides))
