"""An encoder as a scikit-learn transformer: fit on images without labels, transform images into vectors.

from cfcl.sklearn import CfclEncoder
make_pipeline(CfclEncoder(), LogisticRegression()).fit(images, labels)
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cfcl import config as configs
from cfcl import rng
from cfcl.config import Config
from cfcl.data import fit as fits
from cfcl.data.own import Survey
from cfcl.data.pictures import Look
from cfcl.data.splits import MIN_SPLIT, Dataset
from cfcl.errors import CfclError
from cfcl.runs import suites
from cfcl.use import TrainedEncoder, arrays, intake, load_encoder
from cfcl.use.arrays import Array
from cfcl.use.intake import Shape

KEY = "sklearn"
SEEN = 256
"""Training images behind the label-free measures of a run."""


class BadInput(CfclError, ValueError):  # noqa: N818
    """What was handed over does not fit: a ValueError, as scikit-learn has it."""


class CfclEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns an encoder from images without labels, on simulated devices that exchange some of their data.

    `preset` is a preset of cfcl or a TOML file, and `settings` change single settings of it, such as
    `"train.steps=100"`. What neither says is fitted to the images, as the preset `own` does. `image_shape` is that of
    flat rows: (height, width), or with 1 or 3 channels before or after them; without it, rows are grey squares. `space`
    says what `transform` gives: embeddings, or the wider features before the projection head. The same `seed` gives the
    same encoder. `device` is where torch computes.
    """

    def __init__(
        self,
        preset: str = "own",
        *,
        settings: Sequence[str] = (),
        image_shape: Sequence[int] | None = None,
        seed: int = 0,
        space: Literal["embedding", "features"] = "embedding",
        device: str = "cpu",
    ) -> None:
        self.preset = preset
        self.settings = settings
        self.image_shape = image_shape
        self.seed = seed
        self.space = space
        self.device = device

    def fit(self, X: Any, y: Any = None, *, devices: Any = None) -> Self:  # noqa: N803
        """Learn from images `X`: [n, h, w], [n, h, w, c], [n, c, h, w], or rows of pixels; labels `y` are not used.

        Pixels are uint8, floats in 0..1, or any other numbers, of which the largest is white and 0, or the smallest if
        that is negative, black. `devices` says which device holds each image; without it they are dealt out at random.
        """
        with _bad_input():
            self._check_params()
            values = self._values(X, reset=True)
            self.scale_ = arrays.scale_of(values)
            images = arrays.pixels(values, self.image_shape_, self.scale_)
            owners = _owners(devices, len(images))
            self.config_ = self._config(len(images), owners)
            size = self.config_.data.image_size
            if size is not None:
                images = intake.batch(images, (self.image_shape_[0], size, size))
            seen = images[rng.places(len(images), SEEN, self.config_.seed, "sklearn")]
            dataset = Dataset("X", images, None, seen, None, owners)
            self.encoder_ = suites.simulate(self.config_, dataset=dataset, device=self.device).encoder
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of float32 for each image; values outside of what `fit` saw count as black or white."""
        check_is_fitted(self)
        with _bad_input():
            images = arrays.pixels(self._values(X, reset=False), self.image_shape_, self.scale_)
            found = self.encoder_.embed(images) if self.space == "embedding" else self.encoder_.features(images)
        result: NDArray[np.float32] = found.cpu().numpy()
        return result

    def save(self, path: str | Path) -> None:
        """Write all of it to one safetensors file, which is an encoder for every command of cfcl too; no pickle."""
        check_is_fitted(self)
        with _bad_input():
            names = getattr(self, "feature_names_in_", None)
            state = {
                "params": _plain(self.get_params()),
                "config": configs.to_toml(self.config_),
                "image_shape": list(self.image_shape_),
                "scale": list(self.scale_),
                "num_features": int(self.n_features_in_),
                "names": None if names is None else names.tolist(),
            }
            self.encoder_.with_extra(**{KEY: state}).save(path)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> Self:
        """The fitted transformer in a file that `save` wrote; torch computes on `device`."""
        encoder = load_encoder(path, device=device)
        try:
            if KEY not in encoder.extra:
                raise ValueError("it holds an encoder alone")
            return cls._restored(encoder.extra[KEY], encoder, device)
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, CfclError) as error:
            raise BadInput(
                f"{str(path)!r} is no file of a CfclEncoder ({error!s:.200}): give one that CfclEncoder.save wrote"
            ) from None

    @classmethod
    def _restored(cls, state: dict[str, Any], encoder: TrainedEncoder, device: str) -> Self:
        params: dict[str, Any] = {**state["params"], "device": device}
        tuples = {key: tuple(value) for key, value in params.items() if isinstance(value, list)}
        found = cls(**(params | tuples))
        found._check_params()
        low, high = map(float, state["scale"])
        found.scale_ = low, high
        found.image_shape_ = arrays.parse_shape(state["image_shape"])
        found.n_features_in_ = int(state["num_features"])
        if not low < high or not math.isfinite(high - low):
            raise ValueError(f"scale={low:g}, {high:g} has no range")
        if not 0 < found.n_features_in_ <= math.prod(found.image_shape_):
            raise ValueError(f"num_features={found.n_features_in_} does not fit image_shape={found.image_shape_}")
        if state["names"] is not None:
            found.feature_names_in_ = np.array([str(name) for name in state["names"]], dtype=object)
        found.config_ = configs.parse(state["config"])
        found.encoder_ = encoder
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []  # float32, whatever comes
        return tags

    @property
    def _n_features_out(self) -> int:
        dim: int = self.encoder_.embedding_dim if self.space == "embedding" else self.encoder_.feature_dim
        return dim

    def _check_params(self) -> None:
        if self.space not in ("embedding", "features"):
            raise CfclError(f"space={self.space!r:.60} is not an option: choose 'embedding' or 'features'")
        if isinstance(self.settings, str) or not all(isinstance(item, str) for item in self.settings):
            raise CfclError(f"settings={self.settings!r:.60} is no list of texts: give such as ('train.steps=100',)")

    def _values(self, X: Any, *, reset: bool) -> Array:  # noqa: N803
        """The images as rows of numbers, channels first, of the shape that `fit` saw."""
        shape = None
        if _num_axes(X) > 2:
            X, shape = arrays.rows(np.asarray(X))  # noqa: N806
        values: Array = validate_data(self, X, reset=reset, ensure_min_samples=MIN_SPLIT if reset else 1)
        if reset:
            self.image_shape_ = self._shape(shape, values.shape[1])
        elif shape not in (None, self.image_shape_):
            raise CfclError(f"X holds images of shape {shape}, and `fit` saw {self.image_shape_}: resize them")
        flat = shape is None and self.image_shape is not None
        return arrays.channels_first(values, self.image_shape) if flat else values

    def _shape(self, seen: Shape | None, num_features: int) -> Shape:
        """Channels, height and width: as given, as `seen`, or inferred from the length of rows."""
        if self.image_shape is None:
            return seen or arrays.infer(num_features)
        shape = arrays.parse_shape(self.image_shape)
        if seen not in (None, shape) or num_features != math.prod(shape):
            what = f"images of shape {seen}" if seen else f"rows of {num_features:,} features"
            raise CfclError(
                f"X holds {what}, and image_shape={tuple(self.image_shape)} has {math.prod(shape):,} values: make them "
                "match"
            )
        return shape

    def _config(self, num_images: int, owners: torch.Tensor | None) -> Config:
        """The settings, with those that nobody gave fitted to the images."""
        channels, height, width = self.image_shape_
        seen = Survey(
            path=Path("X"),
            num_images=num_images,
            labels=None,
            devices=owners,
            has_test=True,  # all of them are for training
            layout="flat",
            names=(),
            looks=lambda: [Look(height, width, channels == 1)],
        )
        return fits.fit_to(configs.load(self.preset, [*self.settings, f"seed={self.seed}"]), seen)[0]


def _num_axes(X: Any) -> int:  # noqa: N803
    """Of an array, or of what can be one; 2 of what cannot, about which scikit-learn then complains."""
    try:
        found: int = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
    except ValueError:  # rows of different lengths
        return 2
    return found


def _owners(devices: Any, num_images: int) -> torch.Tensor | None:
    """Devices by number, whatever they are called."""
    if devices is None:
        return None
    names = np.asarray(devices)
    if names.shape != (num_images,):
        raise CfclError(
            f"devices has the shape {names.shape}, but each of the {num_images} images has one: give {num_images} names"
        )
    return torch.from_numpy(np.unique(names, return_inverse=True)[1].astype(np.int64))


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them."""
    found = {key: list(value) if isinstance(value, Sequence | np.ndarray) else value for key, value in params.items()}
    texts = {key: str(params[key]) for key in ("preset", "space", "device")}
    shape = None if params["image_shape"] is None else [int(side) for side in params["image_shape"]]
    return {**found, **texts, "image_shape": shape, "seed": int(params["seed"])}


@contextmanager
def _bad_input() -> Iterator[None]:
    """Our complaints as errors that scikit-learn knows."""
    try:
        yield
    except CfclError as error:
        raise BadInput(str(error)) from None
