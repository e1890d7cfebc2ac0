"""Yardsticks for a comparison: computed once, and then taken from its folder."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.records import Yardstick
from cfcl.runs import yardsticks
from cfcl.sim import baselines, world

Watch = Callable[[str], None]


def measure(config: Config, *, watch: Watch = lambda name: None) -> tuple[Yardstick, ...]:
    """The yardsticks for the data and the encoder of `config`."""
    return baselines.compute(config, world.data_of(config), watch=watch)


def kept(config: Config, folder: Path, *, watch: Watch = lambda name: None) -> tuple[Yardstick, ...]:
    """The same, kept in `folder` for the next time; nothing where few labels are not asked for, or there are none."""
    if not config.evaluation.labels_per_class:
        return ()
    dataset = world.data_of(config)
    if dataset.train_labels is None or dataset.test_labels is None:
        return ()
    if found := known(config, folder, dataset.digest):
        return found
    found = baselines.compute(config, dataset, watch=watch)
    yardsticks.write(folder / yardsticks.FILE, found, key=_key(config, dataset.digest))
    return found


def known(config: Config, folder: Path, digest: str) -> tuple[Yardstick, ...]:
    """Those that are kept in `folder` for the data of this digest; nothing where there are none."""
    with suppress(CfclError):  # what cannot be read is made anew
        key, found = yardsticks.find(folder)
        if key == _key(config, digest):
            return found
    return ()


def _key(config: Config, digest: str) -> str:
    """Names what yardsticks depend on."""
    evaluation = config.evaluation
    settings = {
        "data": digest,
        "model": config.model.model_dump(mode="json"),
        "seed": config.seed,
        "evaluation": [evaluation.max_train, evaluation.ridge, evaluation.labels_per_class],
        "numerics": configs.NUMERICS,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
