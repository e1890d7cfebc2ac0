"""Yardsticks for a comparison: computed once, and then taken from its folder."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.records import Yardstick
from cfcl.runs import yardsticks
from cfcl.sim import baselines, world
from cfcl.use import TrainedEncoder

Watch = Callable[[str], None]
Train = Callable[[Config], TrainedEncoder]
"""Makes a run, and gives its encoder."""
CENTRALISED = "centralised"


def centralised(config: Config) -> Config:
    """One model on all the data that sees as many images as the devices of `config` do together; judged at its end."""
    steps = config.train.steps * config.partition.num_devices
    alone = configs.with_method(config, CENTRALISED)
    # Without a mode, so that all methods of a comparison name the same run.
    return configs.override(alone, ["exchange.mode=explicit", f"train.steps={steps}", f"evaluation.every={steps}"])


def measure(config: Config, *, train: Train | None = None, watch: Watch = lambda name: None) -> tuple[Yardstick, ...]:
    """The yardsticks for the data and the encoder of `config`; with `train`, the centralised model is one of them."""
    return baselines.compute(config, world.data_of(config), more=_trained(config, train), watch=watch)


def kept(
    config: Config, folder: Path, *, train: Train | None = None, watch: Watch = lambda name: None
) -> tuple[Yardstick, ...]:
    """The same, kept in `folder` for the next time; nothing where few labels are not asked for, or there are none."""
    if not config.evaluation.labels_per_class:
        return ()
    dataset = world.data_of(config)
    if dataset.train_labels is None or dataset.test_labels is None:
        return ()
    found = known(config, folder, dataset.digest)
    if found and (train is None or any(row.name.startswith(CENTRALISED) for row in found)):
        return found
    found = baselines.compute(config, dataset, more=_trained(config, train), watch=watch)
    yardsticks.write(folder / yardsticks.FILE, found, key=_key(config, dataset.digest))
    return found


def known(config: Config, folder: Path, digest: str) -> tuple[Yardstick, ...]:
    """Those that are kept in `folder` for the data of this digest; nothing where there are none."""
    with suppress(CfclError):  # what cannot be read is made anew
        key, found = yardsticks.find(folder)
        if key == _key(config, digest):
            return found
    return ()


def _trained(config: Config, train: Train | None) -> list[tuple[str, baselines.View]]:
    """Features and embedding of the centralised model."""
    if train is None:
        return []
    encoder = train(centralised(config))
    return [
        (f"{CENTRALISED}, features", lambda images: torch.as_tensor(encoder.features(images))),
        (f"{CENTRALISED}, embedding", lambda images: torch.as_tensor(encoder.embed(images))),
    ]


def _key(config: Config, digest: str) -> str:
    """Names what yardsticks depend on."""
    evaluation = config.evaluation
    settings = {
        "data": digest,
        "model": config.model.model_dump(mode="json"),
        "seed": config.seed,
        "centralised": centralised(config).digest,
        "evaluation": [evaluation.max_train, evaluation.ridge, evaluation.labels_per_class],
        "numerics": configs.NUMERICS,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
