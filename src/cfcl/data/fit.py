"""Settings that fit images of your own: the preset `own` chooses them; other configs hear of all misfits at once."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cfcl import config as configs
from cfcl.config import Config, PartitionConfig
from cfcl.data.notes import note
from cfcl.errors import CfclError

if TYPE_CHECKING:
    from cfcl.data.own import Survey

LARGEST, SMALLEST = 32, 8
"""Sides, in pixels, that images are brought between: as large as those of the published sets, which run in minutes."""
POINTS_PER_DEVICE = 10
LABELS_PER_DEVICE = 3
OWN = ("own", "own-paper", "own-study")


class Change(NamedTuple):
    """A setting that is to have another value."""

    setting: str
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.setting}={str(self.value).lower() if isinstance(self.value, bool) else self.value}"


Values = dict[str, Any]
Rule = Callable[[Values, "Survey", bool], Iterator[Change]]
"""What to change, given all settings as they are by now. The last argument is whether the choice is free: then what
would run, but badly, is changed as well."""


def load(spec: str | Path, overrides: Iterable[str] = ()) -> Config:
    """The run described by a preset name or a TOML file, with overrides; the preset `own` is fitted to its images.

    What was fitted is told in a note.
    """
    config = configs.load(spec, overrides)
    if str(spec) not in OWN or config.data.path is None:
        return config
    found, changes = fit(config)
    width = max((len(str(change)) for change in changes), default=0)
    lines = [f"{change!s:<{width}}  {change.why}" for change in changes]
    note(f"fitted to {config.data.path}; --set changes any of it:", *lines)
    return found


def fit(config: Config) -> tuple[Config, list[Change]]:
    """`config` with the settings that were not given fitted to the images at `data.path`, and what was changed."""
    seen = _survey(config)
    _check_supply(seen)
    left_open = {"data.dataset", *(["data.layout"] if config.data.layout == "auto" else [])}
    return _fitted(config, seen, (_name, _data, *RULES), fixed=_given(config) - left_open)


def fit_to(config: Config, seen: "Survey") -> tuple[Config, list[Change]]:
    """The same for images that are in memory, of which `seen` tells what there is to know."""
    return _fitted(config, seen, RULES, fixed=_given(config))


def _fitted(
    config: Config, seen: "Survey", rules: Iterable[Rule], *, fixed: Collection[str]
) -> tuple[Config, list[Change]]:
    changes = _changes(config, seen, rules, fixed=fixed, free=True)
    table = config.model_dump(exclude_none=True)
    for change in changes:
        section, _, key = change.setting.rpartition(".")
        (table[section] if section else table)[key] = change.value
    return configs.build(table, source=f"the config fitted to {seen.path}"), changes


def check(config: Config) -> None:
    """Refuse settings that do not fit images of your own, all in one line; a single one is left to its own check."""
    if config.data.dataset not in ("folder", "npz"):
        return
    seen = _survey(config)
    found = _changes(config, seen, RULES[1:], free=False)
    if found:  # only now: looking at every image takes time
        found = [*_changes(config, seen, RULES[:1], free=False), *found]
    if len(found) > 1:
        told = ", ".join(f"{change} ({change.why})" for change in found)
        raise CfclError(
            f"the settings do not fit the {seen.num_images:,} images of {seen.path}: set {told}; or use the preset "
            f"own, which fits them by itself: cfcl run own --set data.path={config.data.path}"
        )


def _check_supply(seen: "Survey") -> None:
    """Refuse what no setting could fit."""
    if seen.num_images < 4 and not seen.has_test:
        raise CfclError(
            f"{seen.path} holds {seen.num_images} images, but a run needs at least 4, two to train on and two for the "
            "test: give more images"
        )
    for number, name in enumerate(seen.names):
        if seen.devices is not None and int((seen.devices == number).sum()) < 2:
            raise CfclError(f"{seen.path / name} holds 1 image, but a device needs at least 2: add some, or remove it")


def _survey(config: Config) -> "Survey":
    # Slow to import, and only images of your own need it.
    from cfcl.data import own

    return own.survey(config.data)


def _changes(
    config: Config, seen: "Survey", rules: Iterable[Rule], *, fixed: Collection[str] = (), free: bool
) -> list[Change]:
    """What `rules` change, each with the changes before it in place; settings that are `fixed` stay."""
    values = {f"{section}.{key}".lstrip("."): value for section, key, value, _ in configs.fields(config)}
    found = []
    for rule in rules:
        for change in rule(values, seen, free):
            if change.setting not in fixed and values[change.setting] != change.value:
                values[change.setting] = change.value
                found.append(change)
    return found


def _given(config: Config) -> set[str]:
    """The settings that a preset, a file or an override names."""
    sections = {name: getattr(config, name) for name in type(config).model_fields}
    return {
        f"{name}.{key}"
        for name, section in sections.items()
        if isinstance(section, configs.Section)
        for key in section.model_fields_set
    }


def _data(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """Which kind of data, and what sub-folders stand for."""
    kind = "npz" if values["data.dataset"] == "npz" or seen.path.suffix.lower() == ".npz" else "folder"
    yield Change("data.dataset", kind, "by the suffix of data.path")
    some = f"{len(seen.names)} sub-folders ({', '.join(seen.names[:3])}{', ...' if len(seen.names) > 3 else ''})"
    why = {
        "flat": "the file has no sub-folders" if kind == "npz" else "no two sub-folders with images to tell apart",
        "classes": f"{some}, not called like devices; data.layout=devices takes them as devices, flat together",
        "devices": f"{some}, called like devices; data.layout=classes takes them as classes, flat together",
    }
    yield Change("data.layout", seen.layout, why[seen.layout])


def _name(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """The run is called after the folder unless the user called it otherwise."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", seen.path.resolve().name.removesuffix(".npz"))[:60].strip("-._")
    if values["name"] in OWN and name:
        yield Change("name", name + values["name"].removeprefix("own"), "after data.path")


def _images(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """One size for all, and grey where there is no colour."""
    looks = seen.looks()
    sides = sorted(side for look in looks for side in (look.height, look.width))
    small, large = sides[0] < SMALLEST, sides[-1] > LARGEST
    several = len({(look.height, look.width) for look in looks}) > 1
    if values["data.image_size"] is None and (several or (free and (small or large))):
        middle = round(sides[len(sides) // 2] / 4) * 4
        size = min(max(middle, SMALLEST), LARGEST)
        yield Change("data.image_size", size, f"images have sides of {sides[0]:,} to {sides[-1]:,} pixels")
    if free and all(look.grey for look in looks):
        yield Change("data.grey", True, "no image has colour")


def _held_out(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """A test split of two images at least."""
    if not seen.has_test and not _train(values, seen)[2]:
        for fraction in (0.25, 0.3, 0.4, 0.5):
            if _train({**values, "data.test_fraction": fraction}, seen)[2]:
                yield Change("data.test_fraction", fraction, f"of {seen.num_images} images, two are for the test")
                return


def _partition(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """How the images are split among how many devices."""
    labels, devices, num_train = _train(values, seen)
    num_classes, kind = 0 if labels is None else len(labels.unique()), values["partition.kind"]
    if num_train == 0:
        return
    if devices is not None and (free or (labels is None and kind != "iid")):
        yield Change("partition.kind", "given", "the data say which device holds what")
    elif labels is None or (free and num_classes == 1):
        yield Change("partition.kind", "iid", "there is one label only" if num_classes else "there are no labels")
    elif kind == "given" and devices is None:
        yield Change("partition.kind", "labels", "the data name no devices")
    yield from _devices(values, None if devices is None else len(devices.unique()), num_train, free)
    yield from _labels(values, num_classes, free)
    if values["partition.kind"] not in ("iid", "given") and _fewest(values, seen, free) is None:
        number = values["partition.num_devices"]
        yield Change("partition.kind", "iid", f"some labels have too few images for {number} devices")


def _devices(values: Values, num_given: int | None, num_train: int, free: bool) -> Iterator[Change]:
    number = values["partition.num_devices"]
    if values["partition.kind"] == "given" and num_given is not None:
        yield Change("partition.num_devices", num_given, "those that the data name")
    elif number > num_train // (POINTS_PER_DEVICE if free else 2):
        few = min(number, max(num_train // POINTS_PER_DEVICE, min(2, num_train // 2)))
        yield Change("partition.num_devices", few, f"there are {num_train:,} training images")


def _labels(values: Values, num_classes: int, free: bool) -> Iterator[Change]:
    """A few labels per device, so that devices differ, but no label is left out."""
    each, number = values["partition.labels_per_device"], values["partition.num_devices"]
    if values["partition.kind"] not in ("labels", "overlapping"):
        return
    if free:
        few = max(min(LABELS_PER_DEVICE, math.ceil(num_classes / 2)), math.ceil(num_classes / number))
        yield Change("partition.labels_per_device", few, f"there are {num_classes} labels")
    elif each > num_classes:
        yield Change("partition.labels_per_device", num_classes, f"there are {num_classes} labels")


def _graph(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """No more neighbours than there are."""
    most = values["partition.num_devices"] - 1
    if values["graph.kind"] in ("geometric", "erdos_renyi") and 0 < most < values["graph.degree"]:
        yield Change("graph.degree", float(most), f"one of {most + 1} devices has no more neighbours")


def _sizes(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """What a device offers and draws, against the points of the device that has fewest."""
    fewest = _fewest(values, seen, free)
    if fewest is None:
        return
    why, half = f"the smallest device has {fewest} points", max(1, fewest // 2)
    distinct = values["train.negatives"] == "batch" or values["train.objective"] != "triplet"
    if distinct and values["train.batch_size"] > fewest:
        yield Change("train.batch_size", fewest, why)
    if free or not _idle("exchange.num_candidates", values):
        yield Change("exchange.num_candidates", min(fewest, values["exchange.num_candidates"]), why)
    candidates = values["exchange.num_candidates"]
    for setting, limit in (("exchange.num_reserve", fewest), ("exchange.num_clusters", min(fewest, candidates))):
        if values[setting] > (min(half, limit) if free else limit) and (free or not _idle(setting, values)):
            yield Change(setting, min(half, limit), why)
    yield Change("exchange.num_pulled", min(candidates, values["exchange.num_pulled"]), why)


def _encoder(values: Values, seen: "Survey", free: bool) -> Iterator[Change]:
    """A network for images of this size."""
    if not free:
        return
    look = seen.looks()[0]
    side = values["data.image_size"] or min(look.height, look.width)
    name = "small-cnn" if side < 12 else "usps-cnn" if side < 24 else "small-alexnet"
    yield Change("model.encoder", name, f"images have {side} pixels a side")
    if not values["data.grey"] and not all(look.grey for look in seen.looks()):
        yield Change("model.standardise", True, "brightness and tint of photographs are no matter")


RULES: tuple[Rule, ...] = (_images, _held_out, _partition, _graph, _sizes, _encoder)


def _idle(setting: str, values: Values) -> bool:
    """Whether the method of the run makes no use of a setting."""
    chosen = configs.override(Config(), [f"exchange.{key}={values[f'exchange.{key}']}" for key in ("mode", "method")])
    return bool(configs.notes([setting], [chosen]))


def _train(values: Values, seen: "Survey") -> tuple[Any, Any, int]:
    """Labels and devices of the training images, and how many there are; 0 if either split has too few."""
    from cfcl.data.splits import MIN_SPLIT, mask_for_test

    if seen.has_test:
        return seen.labels, seen.devices, seen.num_images
    test = mask_for_test(seen.num_images, seen.labels, seen.devices, values["data.test_fraction"])
    size = int((~test).sum())
    whole = size >= MIN_SPLIT and seen.num_images - size >= MIN_SPLIT
    kept = [None if groups is None else groups[~test] for groups in (seen.labels, seen.devices)]
    return kept[0], kept[1], size if whole else 0


def _fewest(values: Values, seen: "Survey", free: bool) -> int | None:
    """Points of the device that has fewest; where the choice is free, for any seed. None if they cannot be split."""
    from cfcl import rng
    from cfcl.data import partition

    labels, devices, num_train = _train(values, seen)
    wanted = PartitionConfig(**{key: values[f"partition.{key}"] for key in PartitionConfig.model_fields})
    try:
        shares = partition.split(wanted, labels, num_train, rng.stream(values["seed"], "partition"), devices=devices)
    except CfclError:
        return None
    fewest = min(map(len, shares))
    if not free or wanted.kind != "labels":
        return fewest
    counts: Sequence[int] = sorted(labels.unique(return_counts=True)[1].tolist())
    holders = math.ceil(wanted.num_devices * wanted.labels_per_device / len(counts))
    least = min(fewest, sum(count // holders for count in counts[: wanted.labels_per_device]))
    return least if least >= partition.MIN_POINTS and counts[0] >= holders else None
