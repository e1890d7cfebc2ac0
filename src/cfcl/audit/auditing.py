"""An audit from beginning to end: read a run, attack every layer, test for membership."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from cfcl.audit import membership, nets, subjects
from cfcl.audit.attack import Judge, Layer, Public
from cfcl.audit.findings import OWN, Audit, Reading
from cfcl.audit.subjects import Subjects
from cfcl.config import Config
from cfcl.core import likeness
from cfcl.errors import CfclError
from cfcl.exchange import cost
from cfcl.methods import ALONE
from cfcl.models import as_input
from cfcl.runs import cards, folders
from cfcl.sim import world
from cfcl.use import TrainedEncoder, load_encoder

SHOWN = 12
"""Private images on the sheet."""
ATTACKS = ("none", "inverter", "nearest", "mean")
"""The order of rows on it."""

Watch = Callable[[str, int, int], None]
"""Hears what is being done, and how much of how much is."""


@dataclass(frozen=True)
class Options:
    """How an audit is made."""

    images: int = 1000
    steps: int = 400
    layers: tuple[str, ...] = ()
    """All, if none is named."""
    other: str | None = None
    """A second set that the attacker may have instead."""
    noise: tuple[float, ...] = ()
    """On embeddings, or on the layer that travelled; none: that of the run, if it had any."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """What some private images were turned into, in rows with titles."""

    rows: tuple[tuple[str, Tensor], ...]


def audit(
    folder: Path, options: Options, *, data_dir: Path | None = None, watch: Watch = lambda what, done, total: None
) -> tuple[Audit, Pictures]:
    """What neighbours could find out from what the devices of a finished run sent, or might have sent."""
    run, trained = folders.load(folder), load_encoder(folder)
    config, layers = cards.located(run.config, data_dir), _layers(trained, options.layers)
    digest = None if trained.origin is None else trained.origin.data
    scene = world.build(config, dataset=cards.data_of(config, run, digest))
    with world.single_thread():
        who = subjects.draw(scene.dataset, scene.parts, options.images)
        publics = [Public.of(OWN, who.public, config.augment)]
        if options.other is not None:
            images = subjects.other(options.other, config.data, trained.image_shape)
            publics.append(Public.of(options.other, images, config.augment))
        plan = _Plan(config, trained, layers, publics, options)
        counter = _Counter(watch, plan.total(labelled=who.labels is not None))
        judge = _judge(scene.dataset.num_classes, who, publics[0], options.steps, counter)
        found, pictures = plan.play(judge, counter)
        counter.what = "membership"
        member = membership.measure(trained, scene.setting.encoder, who, config.augment)
    return Audit(
        run=folders.run_name(run.config),
        dataset=scene.dataset.name,
        method=config.method,
        layer=travels(config),
        num_private=len(who.private),
        num_public=len(who.public),
        steps=options.steps,
        clip=plan.clip if plan.noises else None,
        readings=tuple(found),
        membership=member,
    ), Pictures(tuple(pictures))


def travels(config: Config) -> str:
    """What of an image goes to neighbours in a run of `config`."""
    exchange = config.exchange
    if exchange.method in ALONE:
        return "nothing"
    return {"explicit": "image", "implicit": "embedding", "activations": exchange.layer}[exchange.mode]


class _Counter:
    """Counts steps for whoever watches."""

    def __init__(self, watch: Watch, total: int) -> None:
        self._watch, self._total, self._done, self.what = watch, total, 0, ""

    def __call__(self) -> None:
        self._done += 1
        self._watch(self.what, self._done, self._total)


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which layers are attacked with what."""

    config: Config
    trained: TrainedEncoder
    layers: Sequence[str]
    publics: Sequence[Public]
    options: Options

    @property
    def noises(self) -> tuple[float, ...]:
        """Levels of noise on the layer that travels."""
        own = self.config.privacy.noise
        return self.options.noise or ((own,) if own > 0 else ())

    @property
    def noisy(self) -> str:
        """The layer that gets noise."""
        travelled = travels(self.config)
        return travelled if travelled in self.layers else self.layers[-1]

    @cached_property
    def clip(self) -> float:
        """Length to which vectors are cut before noise."""
        own = self.config.privacy.clip
        return own if own is not None else self._layer(self.noisy).clip(self.publics[0])

    def total(self, *, labelled: bool) -> int:
        """Steps of all networks together."""
        return self.options.steps * (labelled + len(self.layers) * len(self.publics) + len(self.noises))

    def play(self, judge: Judge, counter: _Counter) -> tuple[list[Reading], list[tuple[str, Tensor]]]:
        """All readings, and what some images were turned into."""
        explicit = self.config.exchange.model_copy(update={"mode": "explicit"})
        size = cost.item_size(explicit, self.trained.image_shape, {})
        own = self.publics[0]
        mean = own.images.mean(dim=0, keepdim=True).expand_as(judge.images)
        whole = judge.read(judge.images, layer="image", form="uint8", public="–", attack="none", size=size)
        nothing = judge.read(mean, layer="nothing", form="–", public=OWN, attack="mean", size=0)
        found = [
            (whole, judge.images),
            *(pair for one in self.publics for name in self.layers for pair in self._attack(name, one, judge, counter)),
            *(pair for noise in self.noises for pair in self._attack(self.noisy, own, judge, counter, noise)),
            (nothing, mean),
        ]
        ordered = sorted(found, key=lambda pair: ATTACKS.index(pair[0].attack))
        titles = [self._title(reading) for reading, _ in ordered]
        rows = [(title, made[:SHOWN]) for title, (_, made) in zip(titles, ordered, strict=True) if title]
        return [reading for reading, _ in found], rows

    def _attack(
        self, name: str, public: Public, judge: Judge, counter: _Counter, noise: float = 0.0
    ) -> list[tuple[Reading, Tensor]]:
        counter.what = f"{name}, {public.name}" + (f", noise {noise:g}" if noise else "")
        clip = self.clip if noise else 1.0
        return list(self._layer(name).attacked(public, judge, noise, clip, watch=counter))

    def _title(self, reading: Reading) -> str:
        """What a row of the sheet is called; nothing for what is not shown."""
        if reading.attack in ("none", "mean"):
            return "original" if reading.attack == "none" else "mean image"
        if reading.attack == "nearest":
            last = (reading.layer, reading.form) == (self.layers[-1], "float32")
            return f"nearest of {reading.public}" if last else ""
        other = "" if reading.public == OWN else f" ({reading.public})"
        noise = "" if reading.form == "float32" else f", {reading.form}"
        return "" if reading.form == "uint8" else f"{reading.layer}{noise}{other}"

    def _layer(self, name: str) -> Layer:
        mode = "implicit" if name == "embedding" else "activations"
        shapes, base = self.trained.shapes, self.config.exchange
        sizes = {
            form: cost.item_size(
                base.model_copy(update={"mode": mode, "layer": name, "precision": form}),
                self.trained.image_shape,
                shapes,
            )
            for form in ("float32", "uint8")
        }
        if name == "embedding":  # which travels as floats today; in 8 bits it would be a byte each, and a range
            sizes["uint8"] = sizes["float32"] // 4 + 8
        return Layer(self.trained, name, sizes, self.options.steps)


def _layers(trained: TrainedEncoder, wanted: Sequence[str]) -> list[str]:
    known = list(trained.shapes)
    for name in wanted:
        if name not in known:
            raise CfclError(f"--layers {name!r:.60} is no stage of this encoder: choose from {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def _judge(num_classes: int, who: Subjects, public: Public, steps: int, counter: _Counter) -> Judge:
    """What measures reconstructions; its classifier learns from real images of devices, without the private ones."""
    cpu = torch.device("cpu")
    images = as_input(who.private, cpu)
    mean = public.images.mean(dim=0, keepdim=True).expand_as(images)
    found = Judge(images, who.labels, None, float(likeness.squared_error(mean, images).mean()))
    if who.known_labels is None:
        return found
    counter.what = "classifier"
    classifier = nets.fit(
        lambda: nets.classifier(tuple(images.shape[1:]), num_classes),
        as_input(who.known, cpu),
        who.known_labels,
        functional.cross_entropy,
        steps=steps,
        seed=0,
        name="classifier",
        watch=counter,
    )
    return replace(found, classifier=classifier)
