"""What an audit has found, and what it means in words and tables."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from cfcl.records import Interval

SEEN, TOLD = 0.5, 0.25
"""Shares from which on an image counts as seen, and its class as told: of what is told from the originals, and more
than is told from the mean image."""
OWN = "test half"
"""The public images that are half of the test split."""


@dataclass(frozen=True)
class Reading:
    """How far one attack gets on what one layer lets out in one form."""

    layer: str
    """A stage of the encoder, or `image`."""
    form: str
    """`float32`, `uint8`, or `noise 0.5` and so on."""
    public: str
    """The images that the attacker has."""
    attack: str
    """`inverter`, `nearest` public image, `mean` public image, or `none` for the image itself."""
    bytes: int
    """Of one item as it is pulled: two views of it in mode activations."""
    error: float
    """Mean squared error of a pixel in 0..1."""
    relative: float
    """The same as a share of the mean image's."""
    ssim: float
    recognised: float | None
    """Accuracy of a classifier that knows real images only; None without labels."""
    matched: float
    """Share that is nearer to its own original than to any other private image."""


@dataclass(frozen=True)
class Membership:
    """How well the encoder tells images that it learned from and others apart; 0.5 is not at all."""

    trained: Interval
    untrained: Interval
    """The same under the initial encoder, which has learned from none: what the two groups differ in anyway."""
    difference: Interval
    num_images: int
    """Of each group."""


@dataclass(frozen=True)
class Audit:
    """All of an audit."""

    run: str
    dataset: str
    method: str
    layer: str
    """What travelled in this run: `image`, `embedding`, another layer, or `nothing`."""
    num_private: int
    num_public: int
    steps: int
    clip: float | None
    """Length to which embeddings were cut before noise."""
    readings: tuple[Reading, ...]
    membership: Membership

    def as_json(self, indent: int | None = None) -> str:
        """The whole as JSON."""
        return json.dumps(asdict(self), indent=indent, allow_nan=False)

    def as_csv(self) -> str:
        """The readings, one a line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(Reading)])
        for reading in self.readings:
            cells = asdict(reading).values()
            writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])
        return text.getvalue()

    @property
    def original(self) -> Reading:
        """The image itself."""
        return next(reading for reading in self.readings if reading.attack == "none")

    @property
    def _chance(self) -> float:
        """The share whose class is told from the mean image."""
        return max((item.recognised or 0.0 for item in self.readings if item.attack == "mean"), default=0.0)

    def verdicts(self) -> list[str]:
        """What this run sent, one sentence on each layer, one on 8 bits, and one on membership."""
        forms = dict.fromkeys((item.layer, item.form) for item in self.readings if item.attack == "inverter")
        told = [self._verdict(*pair) for pair in forms if pair[1] != "uint8"]
        return [_sent(self.layer), *told, self._eight_bits(), _membership(self.membership)]

    def _verdict(self, layer: str, form: str) -> str:
        """What the best of the attacks gets, whatever the attacker has."""
        rivals = [item for item in self.readings if (item.layer, item.form) == (layer, form)]
        matched, error = max(item.matched for item in rivals), min(item.relative for item in rivals)
        share, whole = max(item.recognised or 0.0 for item in rivals), self.original.recognised
        kind = whole is not None and share >= TOLD * whole and share > self._chance
        word = (
            "the image can be seen"
            if matched >= SEEN
            else "its kind can often be told"
            if kind
            else "little can be seen"
        )
        told = (
            "" if whole is None else f"; a classifier recognises {_percent(share)}, and {_percent(whole)} of originals"
        )
        where = layer if form == "float32" else f"{layer} with {form}"
        return (
            f"{where}: {word}. At best {_percent(matched)} of the images made are nearest to their own original among "
            f"{self.num_private:,}; the error is {_percent(error)} of the mean image's{told}."
        )

    def _eight_bits(self) -> str:
        own = {
            (item.layer, item.form): item for item in self.readings if item.attack == "inverter" and item.public == OWN
        }
        pairs = [(item, own[layer, "uint8"]) for (layer, form), item in own.items() if form == "float32"]
        most = max(abs(one.matched - two.matched) for one, two in pairs)
        return (
            f"8 bits per value in place of floats change the share that is matched by {100 * most:.1f} points at most."
        )


def _sent(layer: str) -> str:
    if layer == "image":
        return "This run sent images as they are. The layers are what it could have sent in their place."
    if layer == "nothing":
        return "This run sent nothing of an image to neighbours. The layers are what it could have sent."
    return f"This run sent {layer}. The other layers are what it could have sent in its place."


def _membership(found: Membership) -> str:
    low, high = found.difference.low, found.difference.high
    verdict = "we found no evidence that the encoder" if low <= 0.0 else "the encoder"
    return (
        f"Membership: {verdict} gives away which images it learned from. AUC {_interval(found.trained)}, under the "
        f"untrained encoder {_interval(found.untrained)}, difference {low:+.3f} to {high:+.3f}."
    )


def _interval(found: Interval) -> str:
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def table(found: Audit) -> tuple[Sequence[str], list[list[str]]]:
    """Head and rows for people."""
    head = ("what travels", "form", "attack", "attacker has", "bytes", "error", "SSIM", "recognised", "matched")
    rows = [
        [
            item.layer,
            item.form,
            item.attack,
            item.public,
            f"{item.bytes:,}",
            _percent(item.relative),
            f"{item.ssim:.2f}",
            "–" if item.recognised is None else _percent(item.recognised),
            _percent(item.matched),
        ]
        for item in found.readings
    ]
    return head, rows
