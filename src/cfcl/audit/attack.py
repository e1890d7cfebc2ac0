"""One layer under attack: an inverter, and beside it what takes no skill."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cfcl import rng
from cfcl.audit import nets
from cfcl.audit.findings import Reading
from cfcl.audit.nets import Inverter, Watch
from cfcl.audit.subjects import altered
from cfcl.config import AugmentConfig
from cfcl.core import blur, likeness, precision
from cfcl.models import as_input
from cfcl.use import TrainedEncoder

COPIES = 3
"""Altered copies of each public image, which the attacker adds to it."""


@dataclass(frozen=True, eq=False)
class Public:
    """What the attacker learns from."""

    name: str
    images: Tensor
    """As they are, as floats."""
    more: Tensor
    """The same and altered copies of them."""

    @classmethod
    def of(cls, name: str, images: Tensor, config: AugmentConfig) -> "Public":
        """Images of a set, with copies altered as the devices do it."""
        plain = as_input(images, torch.device("cpu"))
        copies = [altered(plain, config, "audit-copies", copy) for copy in range(COPIES)]
        return cls(name, plain, torch.cat([plain, *copies]))


@dataclass(frozen=True, eq=False)
class Judge:
    """The private images, and what is measured of images made in their place."""

    images: Tensor
    labels: Tensor | None
    classifier: nn.Module | None
    scale: float
    """The error of the mean public image."""

    def read(self, made: Tensor, *, layer: str, form: str, public: str, attack: str, size: int) -> Reading:
        """How near `made` comes to the images."""
        error = float(likeness.squared_error(made, self.images).mean())
        return Reading(
            layer=layer,
            form=form,
            public=public,
            attack=attack,
            bytes=size,
            error=error,
            relative=error / self.scale,
            ssim=float(likeness.ssim(made, self.images).mean()),
            recognised=self._recognised(made),
            matched=float(likeness.matched(made, self.images).double().mean()),
        )

    def _recognised(self, made: Tensor) -> float | None:
        if self.classifier is None or self.labels is None:
            return None
        return float((nets.apply(self.classifier, made).argmax(dim=1) == self.labels).double().mean())


@dataclass(frozen=True, eq=False)
class Layer:
    """A stage of the encoder, what an item of it weighs, and how its values may be blurred."""

    trained: TrainedEncoder
    name: str
    sizes: dict[str, int]
    """Bytes of an item as float32 and as uint8."""
    steps: int

    def values(self, images: Tensor) -> Tensor:
        """What the stage makes of images."""
        return self.trained.activations(images, self.name)

    def clip(self, public: Public) -> float:
        """The median length of its values: where a device would begin to clip."""
        return float(self.values(public.images).flatten(1).norm(dim=1).median())

    def attacked(
        self, public: Public, judge: Judge, noise: float = 0.0, clip: float = 1.0, watch: Watch = lambda: None
    ) -> Iterator[tuple[Reading, Tensor]]:
        """Readings of all attacks by somebody with these public images, each with what was made."""
        form = "float32" if noise == 0.0 else f"noise {noise:g}"
        sent, like = (
            _blurred(self.values(images), noise, clip, place)
            for place, images in enumerate((judge.images, public.more))
        )
        scale = _Scale.of(like)
        learned = scale.standard(like)
        invert = nets.fit(
            lambda: Inverter(tuple(learned.shape[1:]), tuple(public.images.shape[1:])),
            learned,
            public.more,
            functional.mse_loss,
            steps=self.steps,
            seed=0,
            name=f"{self.name} {form} {public.name}",
            watch=watch,
        )

        known = self.values(public.images)  # to which nobody adds noise
        plain = scale.standard(blur.clipped(known, clip) if noise else known).flatten(1)
        forms = {form: sent} if noise else {form: sent, "uint8": precision.from_codes(*precision.to_codes(sent))}
        for name, values in forms.items():
            private = scale.standard(values)
            size = self.sizes["uint8" if name == "uint8" else "float32"]
            for attack, made in (
                ("inverter", nets.apply(invert, private)),
                ("nearest", public.images[likeness.nearest(private.flatten(1), plain)]),
            ):
                head = {"layer": self.name, "form": name, "public": public.name, "attack": attack}
                yield judge.read(made, size=size, **head), made


@dataclass(frozen=True, eq=False)
class _Scale:
    """Makes every entry of a layer's values as large as the others."""

    mean: Tensor
    spread: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "_Scale":
        spread = values.std(dim=0)
        return cls(values.mean(dim=0), spread.clamp_min(max(1e-6, 0.05 * float(spread.mean()))))

    def standard(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.spread


def _blurred(values: Tensor, noise: float, clip: float, place: int) -> Tensor:
    if noise == 0.0:
        return values
    return blur.noised(blur.clipped(values, clip), noise * clip, rng.stream(0, "audit-noise", place))
