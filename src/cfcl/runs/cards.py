"""What a card needs besides records: the encoder, the data, and measures that take both."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import torch

from cfcl import config as configs
from cfcl import reading
from cfcl.config import Config
from cfcl.core import metrics
from cfcl.data import catalogue
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.runs import baselines, card, folders
from cfcl.runs.card import ClassAccuracy, Facts
from cfcl.runs.folders import Run
from cfcl.shown import as_markdown
from cfcl.sim import evaluation, world
from cfcl.sim.baselines import compute as yardsticks_of
from cfcl.use import TrainedEncoder, load_encoder

Watch = Callable[[str], None]


def write_beside(folder: Path, encoder: TrainedEncoder) -> None:
    """Put the card of a run into its folder: what records and the encoder say, and nothing that takes time."""
    run = folders.load(folder)
    write_atomically(folder / card.FILE, card.render(run, facts(run, encoder)).encode())


def make(
    run: Run,
    *,
    out: Path | None = None,
    measured: bool = False,
    data_dir: Path | None = None,
    watch: Watch = lambda name: None,
) -> str:
    """The card of a run with all that can be known here, accuracies by class included where the data are.

    `measured` asks for yardsticks, which take a while; those that a comparison has kept are taken from its folder. The
    card is for the file `out`, from where its links go.
    """
    encoder, why = None, ""
    try:
        encoder = load_encoder(run.folder)
    except CfclError as error:
        why = str(error)
    found = facts(run, encoder)
    kept = baselines.known(run.config, run.folder.parent, found.data) if found.data else ()
    found = replace(found, yardsticks=kept)
    config = located(run.config, data_dir)
    try:
        dataset = data_of(config, run, found.data)
        if measured:
            found = replace(found, yardsticks=kept or yardsticks_of(config, dataset, watch=watch))
        if encoder is None:
            raise CfclError(why)
        watch("accuracies by class")
        found = replace(found, by_class=by_class(config, encoder, dataset))
    except CfclError as error:
        if measured:
            raise
        found = replace(found, no_classes=f"not known, since {as_markdown(str(error))}")
    here = run.folder if out is None else out.parent
    return card.render(run, found, config_at=quote(os.path.relpath(run.folder / folders.CONFIG, here)))


def write(text: str, out: Path) -> None:
    """Write a card to a file, whole or not at all."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode())
    except OSError as error:
        raise CfclError(f"cannot write {str(out)!r} ({error.strerror or error}): choose another --out") from None


def facts(run: Run, encoder: TrainedEncoder | None) -> Facts:
    """What the encoder and the catalogue say."""
    name = run.setup.dataset or run.config.data.dataset
    # Images that were handed over, or are in a folder, may have the name of a published set.
    licence = catalogue.licence(name) if name == run.config.data.dataset else None
    if encoder is None:
        return Facts(licence=licence)
    return Facts(
        image_shape=encoder.image_shape,
        embedding_dim=encoder.embedding_dim,
        feature_dim=encoder.feature_dim,
        encoder=encoder.digest,
        data=None if encoder.origin is None else encoder.origin.data,
        licence=licence,
    )


def by_class(config: Config, encoder: TrainedEncoder, dataset: Dataset) -> tuple[ClassAccuracy, ...]:
    """How many images of each class a probe with all labels gets right: on embeddings, and on features."""
    if dataset.train_labels is None or dataset.test_labels is None:
        raise CfclError(f"{dataset.name} has no labels, without which there are no classes: give labelled data")
    train, test = dataset.train_images[evaluation.known(config, dataset)], dataset.test_images
    classes, ridge = dataset.num_classes, config.evaluation.ridge
    with world.single_thread():
        embedded = evaluation.labelled(config, dataset, encoder.embed(train), encoder.embed(test))
        wide = evaluation.labelled(config, dataset, encoder.features(train), encoder.features(test))
        hits = {
            "embedding": metrics.probe_hits(*embedded, num_classes=classes, ridge=ridge),
            "features": metrics.quick_hits(*evaluation.standardised(wide), num_classes=classes, ridge=ridge),
        }
    return tuple(
        _class(dataset, label, hits, dataset.test_labels == label)
        for label in torch.unique(dataset.test_labels).tolist()
    )


def _class(dataset: Dataset, label: int, hits: dict[str, torch.Tensor], chosen: torch.Tensor) -> ClassAccuracy:
    name = dataset.classes[label] if label < len(dataset.classes) else str(label)
    found = {space: some[chosen].double().mean().item() for space, some in hits.items()}
    return ClassAccuracy(name, int(chosen.sum()), found)


def located(config: Config, data_dir: Path | None) -> Config:
    """The settings with the place where the data are now."""
    if data_dir is not None:
        return configs.override(config, [f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}"])
    gone = config.data.dir is not None and not reading.is_folder(reading.expanded(config.data.dir))
    return configs.override(config, ["data.dir=none"]) if gone else config


def data_of(config: Config, run: Run, digest: str | None) -> Dataset:
    """The data of a run, if they are on this machine and still the same."""
    found = world.data_of(config)
    if (digest is not None and found.digest != digest) or run.setup.dataset not in (None, found.name):
        raise CfclError(
            f"the data {found.name!r} here are not those that the run learned from: restore them, or run it again"
        )
    return found
