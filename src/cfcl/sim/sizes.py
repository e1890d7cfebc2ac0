"""What a run takes at the very least, so that one that cannot fit is refused before it begins."""

import os
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

from torch import nn

from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.exchange import cost
from cfcl.methods import ALONE
from cfcl.models import networks

BYTES_PER_EDGE = 250
"""Its two ends, its two links, and its places in both rows of neighbours."""
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says what a container may take."""


class Part(NamedTuple):
    """Something that takes memory."""

    bytes: int
    what: str
    lower: str
    """The settings that make it smaller."""


def check(config: Config, dataset: Dataset, module: nn.Module | None = None) -> None:
    """Refuse a run that takes more than this machine has, by the part that takes most."""
    there = machine_bytes()
    if there is None:
        return
    parts = list(_parts(config, dataset, module))
    largest = max(parts)
    if sum(part.bytes for part in parts) > there:
        raise CfclError(
            f"{largest.what} take at least {_size(largest.bytes)}, but there are {_size(there)} of memory: lower "
            f"{largest.lower}"
        )


def machine_bytes() -> int | None:
    """The memory that this process may take; None where the system does not tell."""
    found = [int(text) for text in map(_first_line, LIMITS) if text.isdigit()]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if sys.platform == "linux":
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        found += [limit] if limit != resource.RLIM_INFINITY else []
    return min(found, default=None)


def _parts(config: Config, dataset: Dataset, module: nn.Module | None) -> Iterator[Part]:
    number, dim = config.partition.num_devices, config.model.embedding_dim
    devices, encoder = f"partition.num_devices={number}", f"model.embedding_dim={dim}"
    parameters, outputs = _network(config, dataset.image_shape, module)
    copies = 3 if config.train.optimiser == "adam" else 1  # weights and two moments
    models = 4 * copies * parameters * round(number * _share())
    yield Part(models, f"the models of {devices} with {encoder}", "one of them, or choose another model.encoder")
    batch = config.train.batch_size
    images = (2 if config.train.negatives == "batch" else 3) * batch * (prod(dataset.image_shape) + outputs)
    yield Part(4 * images, f"the images of train.batch_size={batch} inside the encoder", "it")
    edges = _num_edges(config)
    yield Part(BYTES_PER_EDGE * edges, f"the {edges:,} edges of {devices}", "it, or make the graph sparser")
    yield from _embeddings(config, dataset)
    yield from _items(config, dataset, round(2 * edges * _share()))
    if config.partition.kind == "common":
        each = config.partition.points_per_device or len(dataset.train_images)
        yield Part(8 * number * each, f"the points of {devices}", "it, or partition.points_per_device")
    if config.partition.kind == "overlapping":
        labels, points = max(1, dataset.num_classes), len(dataset.train_images)
        each = min(config.partition.max_points_per_label or points, points // labels)
        held = 8 * number * min(config.partition.labels_per_device, labels) * each
        yield Part(held, f"the points of {devices}", "it, or partition.max_points_per_label")


def _embeddings(config: Config, dataset: Dataset) -> Iterator[Part]:
    """What evaluations look at, all at once."""
    settings, dim = config.evaluation, config.model.embedding_dim
    judged = min(settings.max_train, len(dataset.train_images)) + len(dataset.test_images)
    compared = min(settings.num_health_devices, config.partition.num_devices)
    alike = compared * min(settings.num_health, len(dataset.test_images))
    yield Part(4 * dim * (judged + alike), f"evaluations with model.embedding_dim={dim}", "it, or evaluation.max_train")


def _items(config: Config, dataset: Dataset, links: int) -> Iterator[Part]:
    """What one exchange moves, at most: a link moves no more points than there are."""
    exchange = config.exchange
    if exchange.method in ALONE:
        return
    item = _item(config, dataset.image_shape)
    moved = links * min(exchange.num_pulled, len(dataset.train_images)) * item
    yield Part(moved, f"the items of exchange.num_pulled={exchange.num_pulled} on {links:,} links", "one of them")


def _item(config: Config, shape: tuple[int, int, int]) -> int:
    """Bytes of an item; of a module that is not ours, or a stage that is not there, nobody knows yet."""
    shapes = networks.stage_shapes(networks.build(config.model, shape).stages, shape)
    if config.exchange.mode == "activations" and config.exchange.layer not in shapes:
        return 0
    return cost.item_size(config.exchange, shape, shapes)


def _network(config: Config, shape: tuple[int, int, int], module: nn.Module | None) -> tuple[int, int]:
    """Parameters, and numbers that the layers make of one image; a foreign module may do as it likes with images."""
    if module is not None:
        return sum(parameter.numel() for parameter in module.parameters()), 0
    network = networks.build(config.model, shape)  # without memory
    outputs = sum(map(prod, networks.shapes(network, shape)))
    return sum(parameter.numel() for parameter in network.parameters()), outputs


def _num_edges(config: Config) -> int:
    number, kind = config.partition.num_devices, config.graph.kind
    if kind == "complete":
        return number * (number - 1) // 2
    if kind in ("geometric", "erdos_renyi"):
        return round(number * min(config.graph.degree, number - 1) / 2)
    return number - 1


def _share() -> float:
    """The share of the devices that live on this machine: torchrun may spread them over several."""
    whole = int(os.environ.get("WORLD_SIZE", "1"))
    return int(os.environ.get("LOCAL_WORLD_SIZE", str(whole))) / whole


def _first_line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _size(number: int) -> str:
    """A size for people."""
    return f"{number / 2**30:,.1f} GiB"
