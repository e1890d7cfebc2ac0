"""The transformer does what scikit-learn asks of one, and what it says of itself."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import cfcl
from cfcl.errors import CfclError
from cfcl.sklearn import CfclEncoder
from cfcl.use import arrays

pytestmark = [
    pytest.mark.filterwarnings("ignore:at step .* the encoder collapses"),
    pytest.mark.filterwarnings("ignore:.*is no square number"),
]

TINY = ("train.steps=2", "evaluation.num_health=4", "evaluation.every=100")
X, Y = load_digits(return_X_y=True)
X, Y = X[:120], Y[:120]
IMAGES = X.reshape(-1, 8, 8)


def encoder(*settings: str, **params: Any) -> CfclEncoder:
    return CfclEncoder(settings=(*TINY, *settings), **params)


@pytest.fixture(scope="module")
def fitted() -> CfclEncoder:
    """For reading only."""
    return encoder().fit(X)


# No exceptions: every check that scikit-learn has is passed.
@parametrize_with_checks([encoder()], expected_failed_checks=lambda estimator: {})  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_scikit_learn_is_content(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_same_seed_gives_the_same_vectors(fitted: CfclEncoder) -> None:
    assert np.array_equal(encoder().fit_transform(X, Y), fitted.transform(X))
    assert not np.allclose(encoder(seed=1).fit_transform(X), fitted.transform(X))


def test_labels_change_nothing(fitted: CfclEncoder) -> None:
    assert np.array_equal(encoder().fit(X, Y).transform(X), fitted.transform(X))


def test_every_layout_of_images_is_the_same_image(fitted: CfclEncoder) -> None:
    wanted = fitted.transform(X)
    for images in (IMAGES, IMAGES[:, None], IMAGES[..., None], IMAGES.tolist()):
        assert np.array_equal(encoder().fit(images).transform(images), wanted)
        assert np.array_equal(fitted.transform(images), wanted)
    assert (fitted.n_features_in_, fitted.image_shape_) == (64, (1, 8, 8))


def test_colour_images_in_both_layouts() -> None:
    colour = np.random.default_rng(0).integers(0, 256, (40, 8, 10, 3), dtype=np.uint8)
    first = encoder().fit(colour)
    assert first.image_shape_ == (3, 8, 10)
    wanted = first.transform(colour)
    for other, shape in (
        (colour.transpose(0, 3, 1, 2), None),
        (colour.reshape(40, -1), (8, 10, 3)),
        (colour.transpose(0, 3, 1, 2).reshape(40, -1), (3, 8, 10)),
    ):
        assert np.array_equal(encoder(image_shape=shape).fit_transform(other), wanted)
    np.testing.assert_allclose(first.transform(colour), first.encoder_.embed(colour), rtol=0, atol=1e-6)


def test_what_is_black_and_white_by_hand() -> None:
    floats = [np.array([values], dtype=np.float64) for values in ([0, 0.2, 0.5], [0, 4, 16], [-1, 0, 3], [-2, -2, -2])]
    # shares stay; 16 is white; -1 is black and 3 white; all alike and below 0: black, and 0 would be white
    scales = [(0.0, 1.0), (0.0, 16.0), (-1.0, 3.0), (-2.0, -1.0)]
    assert [arrays.scale_of(values) for values in floats] == scales
    assert arrays.scale_of(np.array([[3, 7]], dtype=np.uint8)) == (0.0, 255.0)
    # 0.2 * 255 = 51; 4 / 16 * 255 = 63.75; (0 + 1) / 4 * 255 = 63.75; the fourth pixel is not there, and black
    found = [
        arrays.pixels(values, (1, 2, 2), scale).flatten().tolist() for values, scale in zip(floats, scales, strict=True)
    ]
    assert found == [[0, 51, 128, 0], [0, 64, 255, 0], [0, 64, 255, 0], [0, 0, 0, 0]]
    # beyond what was seen in training: cut off
    assert arrays.pixels(np.array([[-5.0, 99.0]]), (1, 1, 2), (0.0, 16.0)).flatten().tolist() == [0, 255]


def test_transform_keeps_the_scale_of_fit(fitted: CfclEncoder) -> None:
    dark = X / 4  # the largest is 4 now, and 16 is white all the same
    assert fitted.scale_ == (0.0, 16.0)
    wanted = fitted.encoder_.embed((dark / 16 * 255).round().astype(np.uint8).reshape(-1, 1, 8, 8))
    assert np.array_equal(fitted.transform(dark), wanted)


def test_devices_hold_what_they_are_said_to_hold() -> None:
    names = np.array(["attic", "cellar", "hall"])[np.arange(len(X)) % 3]
    found = encoder().fit(X, devices=names)
    assert (found.config_.partition.kind, found.config_.partition.num_devices) == ("given", 3)
    dealt = encoder("partition.num_devices=3").fit(X)
    assert dealt.config_.partition.kind == "iid"
    assert not np.allclose(found.transform(X), dealt.transform(X))


def test_it_is_a_step_of_a_pipeline() -> None:
    pipeline = make_pipeline(encoder(space="features"), LogisticRegression(max_iter=50, tol=0.1))
    assert cross_val_score(pipeline, X, Y, cv=2).shape == (2,)
    search = GridSearchCV(pipeline, {"cfclencoder__space": ["embedding", "features"]}, cv=2).fit(IMAGES, Y)
    assert len(search.cv_results_["params"]) == 2
    named = make_pipeline(encoder(), LogisticRegression(max_iter=50, tol=0.1))
    assert named.fit(X, Y, cfclencoder__devices=np.arange(len(X)) % 4)[0].config_.partition.num_devices == 4


def test_names_of_what_comes_out(fitted: CfclEncoder) -> None:
    names = [f"cfclencoder{place}" for place in range(32)]
    assert fitted.get_feature_names_out().tolist() == names
    pandas = pytest.importorskip("pandas")
    table = clone(fitted).set_output(transform="pandas").fit(X).transform(X)
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == names
    assert fitted.transform(X).dtype == np.float32


def test_features_are_wider_than_embeddings(fitted: CfclEncoder) -> None:
    wide = clone(fitted).set_params(space="features").fit(X)
    assert np.array_equal(wide.transform(X), wide.encoder_.features(arrays.pixels(X, (1, 8, 8), (0.0, 16.0))))
    assert wide.transform(X).shape == (120, wide.encoder_.feature_dim)
    assert len(wide.get_feature_names_out()) == wide.encoder_.feature_dim > 32


def test_small_and_large_images_are_resized() -> None:
    small, large = np.random.default_rng(0).random((20, 5, 5)), np.random.default_rng(0).random((20, 40, 50))
    assert encoder().fit(small).encoder_.image_shape == (1, 8, 8)
    assert encoder().fit(large).encoder_.image_shape == (1, 32, 32)
    assert encoder("data.image_size=12").fit(large).transform(large).shape == (20, 32)


def test_a_saved_one_comes_back(tmp_path: Path, fitted: CfclEncoder) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=[f"p{place}" for place in range(64)])
    before = encoder(image_shape=(8, 8), seed=3, space="features").fit(table)
    before.save(tmp_path / "x.safetensors")

    after = CfclEncoder.load(tmp_path / "x.safetensors")

    assert np.array_equal(after.transform(table), before.transform(table))
    assert after.get_params() == before.get_params()
    assert after.config_ == before.config_
    assert after.feature_names_in_.tolist() == list(table.columns)
    with pytest.raises(ValueError, match="feature names"):
        after.transform(table.rename(columns={"p3": "other"}))
    assert np.array_equal(clone(after).fit(table).transform(table), before.transform(table))
    pixels = arrays.pixels(X, (1, 8, 8), (0.0, 16.0))
    assert np.array_equal(cfcl.load_encoder(tmp_path / "x.safetensors").features(pixels), before.transform(table))


def test_files_that_are_none_of_its_own_get_one_line(tmp_path: Path, fitted: CfclEncoder) -> None:
    file = tmp_path / "x.safetensors"
    fitted.encoder_.save(file)
    with pytest.raises(CfclError, match=r"^[^\n]*x\.safetensors' is no file of a CfclEncoder \(it holds an encoder"):
        CfclEncoder.load(file)
    fitted.save(file)
    good = cfcl.load_encoder(file).extra["sklearn"]
    wrong: list[dict[str, Any]] = [
        {"scale": [1, 1]}, {"scale": [0, "x"]}, {"scale": [0, float("inf")]}, {"num_features": 65}, {"num_features": 0},
        {"params": {"magic": 3}}, {"params": {"space": "outer"}}, {"image_shape": [8]}, {"config": "[train"},
        {"names": 3},
    ]  # fmt: skip
    for change in wrong:
        fitted.encoder_.with_extra(sklearn={**good, **change}).save(file)
        with pytest.raises(CfclError, match=r"^[^\n]*is no file of a CfclEncoder[^\n]*CfclEncoder\.save wrote$"):
            CfclEncoder.load(file)
    with pytest.raises(CfclError, match="there is no encoder at"):
        CfclEncoder.load(tmp_path / "absent")


BAD: list[tuple[dict[str, Any], Any, dict[str, Any], str]] = [
    ({"preset": "digit"}, X, {}, "neither a preset nor a file"),
    ({"settings": "train.steps=3"}, X, {}, r"settings='train.steps=3' is no list of texts: give such as"),
    ({"settings": ("train.steps=0",)}, X, {}, r"train.steps=0"),
    ({"space": "outer"}, X, {}, "space='outer' is not an option: choose 'embedding' or 'features'"),
    ({"image_shape": (7, 9)}, X, {}, r"rows of 64 features, and image_shape=\(7, 9\) has 63 values: make them match"),
    ({"image_shape": (4, 4, 4)}, X, {}, r"image_shape=\(4, 4, 4\) is no height and width"),
    ({"image_shape": 8}, X, {}, "image_shape=8 is no height and width"),
    ({"image_shape": (4, 16)}, IMAGES, {}, r"images of shape \(1, 8, 8\)"),
    ({"device": "warp"}, X, {}, "device 'warp' cannot be used"),
    ({"seed": -1}, X, {}, "seed=-1"),
    ({}, np.zeros((20, 3072)), {}, r"may be 32×32 pixels in colour: give image_shape=\(3, 32, 32\) or \(32, 32, 3\)"),
    ({}, np.zeros((20, 8, 8, 5)), {}, r"X of shape \(20, 8, 8, 5\) holds no images"),
    ({}, np.zeros((20, 8, 8, 1, 1)), {}, "holds no images"),
    ({}, np.array([[-1e308, 1e308, 0, 0]] * 2), {}, "too far apart: rescale them"),
    ({}, X, {"devices": [1, 2]}, r"devices has the shape \(2,\), but each of the 120 images has one"),
    ({}, X, {"devices": np.arange(120)}, "holds 1 training image, but a device needs at least 2"),
]


@pytest.mark.parametrize(("params", "images", "more", "complaint"), BAD, ids=[row[3] for row in BAD])
def test_bad_input_gets_one_line(params: dict[str, Any], images: Any, more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        CfclEncoder(**{"settings": TINY, **params}).fit(images, **more)
    assert isinstance(caught.value, CfclError)
    assert len(str(caught.value).splitlines()) == 1


def test_other_images_than_those_of_fit_are_refused(fitted: CfclEncoder) -> None:
    with pytest.raises(ValueError, match="features"):
        fitted.transform(X[:, :63])
    with pytest.raises(ValueError, match=r"images of shape \(1, 4, 16\), and `fit` saw \(1, 8, 8\): resize them"):
        fitted.transform(X.reshape(-1, 4, 16))


def test_rows_that_are_no_square_are_filled_up_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="X has 10 features, which is no square number: they fill .* 4×4"):
        found = encoder().fit(X[:, :10])
    assert (found.image_shape_, found.n_features_in_) == ((1, 4, 4), 10)
    assert found.transform(X[:, :10]).shape == (120, 32)


def test_import_does_not_wait_for_scikit_learn() -> None:
    code = "import sys, cfcl, cfcl.cli; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
