"""An audit of a tiny run: the inverter sees through the first layer, and a mixed-up one would not pass."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import cfcl
from cfcl.audit import auditing, membership, shown, subjects
from cfcl.audit.attack import Judge
from cfcl.audit.auditing import Options, Pictures, travels
from cfcl.audit.findings import Audit, Membership, Reading
from cfcl.cli import app
from cfcl.config import AugmentConfig
from cfcl.core import likeness
from cfcl.errors import CfclError
from cfcl.records import Interval
from cfcl.sim import world
from cfcl.use import load_encoder
from tests.conftest import check_complaint, small

CONFIG = small("model.encoder=conv", "model.widths=[8, 8]", "exchange.mode=implicit", "train.steps=4")
OPTIONS = Options(images=200, steps=150, layers=("block1", "embedding"), noise=(3.0,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = cfcl.run(CONFIG, out=tmp_path_factory.mktemp("runs"), workers=1, plotted=False).folder
    assert found is not None
    return found


@pytest.fixture(scope="module")
def audited(folder: Path) -> tuple[Audit, Pictures]:
    return auditing.audit(folder, OPTIONS)


def reading(found: Audit, layer: str, form: str = "float32", attack: str = "inverter") -> Reading:
    (one,) = [item for item in found.readings if (item.layer, item.form, item.attack) == (layer, form, attack)]
    return one


def test_the_inverter_beats_the_mean_image_where_the_first_layer_travels(audited: tuple[Audit, Pictures]) -> None:
    found, pictures = audited
    first = reading(found, "block1")
    assert first.relative < 0.5
    assert first.matched > 0.5  # chance is one of two hundred
    assert first.relative < reading(found, "embedding").relative < reading(found, "embedding", "noise 3").relative
    # Had the reconstructions been handed out in another order, they would be worse than the mean image.
    rows = dict(pictures.rows)
    made, images = rows["block1"], rows["original"]
    own, mixed = (likeness.squared_error(some, images).mean() for some in (made, made.roll(1, dims=0)))
    mean = likeness.squared_error(rows["mean image"], images).mean()
    assert own < 0.6 * mean
    assert mixed > 0.9 * mean


def test_the_ends_of_the_scale(audited: tuple[Audit, Pictures]) -> None:
    found, _ = audited
    whole, nothing = reading(found, "image", "uint8", "none"), reading(found, "nothing", "–", "mean")
    assert (whole.error, whole.relative, whole.matched, whole.bytes) == (0.0, 0.0, 1.0, 64)
    assert whole.ssim == pytest.approx(1.0, abs=1e-5)
    assert (nothing.relative, nothing.bytes) == (1.0, 0)
    assert nothing.matched <= 0.01
    assert nothing.recognised is not None
    assert whole.recognised is not None
    assert nothing.recognised < 0.3 < whole.recognised


def test_bytes_are_those_of_the_dial(audited: tuple[Audit, Pictures]) -> None:
    found, _ = audited
    dim = CONFIG.model.embedding_dim
    # two views of eight maps of 4×4: 256 values, of four bytes or of one and a range of eight
    assert reading(found, "block1").bytes == 1024
    assert reading(found, "block1", "uint8").bytes == 264
    assert reading(found, "embedding").bytes == 4 * dim
    assert reading(found, "embedding", "uint8").bytes == dim + 8


def test_an_audit_is_the_same_again(folder: Path) -> None:
    quick = Options(images=40, steps=3, layers=("embedding",))
    assert auditing.audit(folder, quick)[0] == auditing.audit(folder, quick)[0]


def test_nobody_is_on_both_sides() -> None:
    scene = world.build(CONFIG)
    who = subjects.draw(scene.dataset, scene.parts, 50)
    total = sum(len(part) for part in scene.parts)
    assert (len(who.private), len(who.known)) == (50, total - 50)
    assert len(who.public) + len(who.outside) == len(scene.dataset.test_images)
    assert likeness.squared_error(who.private[:1].float().expand_as(who.known), who.known.float()).min() > 0


def test_too_few_test_images_are_refused() -> None:
    scene = world.build(CONFIG)
    few = cfcl.data.datasets.Dataset("mine", scene.dataset.train_images, None, scene.dataset.test_images[:8], None)
    with pytest.raises(CfclError, match="the test split of mine has 8 images"):
        subjects.draw(few, scene.parts, 50)


def test_an_encoder_that_learned_nothing_gives_nobody_away(folder: Path) -> None:
    scene = world.build(CONFIG)
    encoder, who = scene.setting.encoder, subjects.draw(scene.dataset, scene.parts, 60)
    trained = load_encoder(folder)
    untrained = trained.with_state(encoder.state_dict(encoder.initial))
    found = membership.measure(untrained, encoder, who, AugmentConfig(rotation=20.0, crop=0.3))
    assert found.trained == found.untrained
    assert (found.difference.mean, found.difference.low, found.difference.high) == (0.0, 0.0, 0.0)
    assert found.trained.low < found.trained.mean < found.trained.high
    assert found.num_images == 60


def test_images_that_an_encoder_draws_together_are_found_out() -> None:
    near = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).expand(8, 2, 2)
    # all views alike have a mean of length 1; views at right angles, half and half, one of sqrt(0.5)
    apart = torch.stack([near[0] if view % 2 else near[0].flip(0) for view in range(8)])
    torch.testing.assert_close(membership._nearness(near), torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(membership._nearness(apart), torch.tensor([0.70711, 0.70711]), atol=1e-4, rtol=0)


def test_without_labels_nothing_is_recognised() -> None:
    images = torch.rand(5, 1, 8, 8)
    found = Judge(images, None, None, 1.0).read(images, layer="a", form="b", public="c", attack="d", size=1)
    assert found.recognised is None


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), "image"),
        (("exchange.mode=implicit",), "embedding"),
        (("exchange.mode=activations", "exchange.layer=features"), "features"),
        (("exchange.method=fedavg",), "nothing"),
    ],
)
def test_what_travels(overrides: tuple[str, ...], expected: str) -> None:
    assert travels(small(*overrides)) == expected


def made(matched: float, recognised: float, low: float, chance: float = 0.1) -> Audit:
    def item(layer: str, form: str, attack: str, share: float, told: float) -> Reading:
        return Reading(layer, form, "test half", attack, 1, 0.1, 0.4, 0.5, told, share)

    even = Interval(0.5, 0.45, 0.55)
    return Audit(
        run="r", dataset="d", method="m", layer="block1", num_private=100, num_public=10, steps=1, clip=None,
        readings=(
            item("image", "uint8", "none", 1.0, 0.9),
            item("block1", "float32", "inverter", matched, recognised),
            item("block1", "uint8", "inverter", matched - 0.02, recognised),
            item("block1", "float32", "nearest", 0.01, 0.1),
            item("nothing", "–", "mean", 0.01, chance),
        ),
        membership=Membership(even, even, Interval(0.0, low, 0.1), 10),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("matched", "recognised", "word"),
    [
        (0.5, 0.2, "the image can be seen. At best 50 % of"),
        (0.49, 0.23, "its kind can often be told. At best 49 % of"),
        (0.49, 0.22, "little can be seen. At best 49 % of"),
    ],
)
def test_verdicts_by_hand(matched: float, recognised: float, word: str) -> None:
    sent, first, eight, member = made(matched, recognised, -0.01).verdicts()
    assert sent.startswith("This run sent block1.")
    assert first.startswith(f"block1: {word}")
    assert "change the share that is matched by 2.0 points at most" in eight
    assert member.startswith("Membership: we found no evidence that the encoder gives away")


def test_a_kind_is_not_told_by_chance() -> None:
    # 0.5 is above a quarter of 0.9, but a classifier that says the same of everything does as well on the mean image
    words = [made(0.1, 0.5, -0.01, chance=chance).verdicts()[1] for chance in (0.49, 0.5)]
    assert [word.split(". ")[0] for word in words] == [
        "block1: its kind can often be told",
        "block1: little can be seen",
    ]


def test_membership_counts_where_its_interval_is_above_zero() -> None:
    assert made(0.5, 0.5, 0.001).verdicts()[-1].startswith("Membership: the encoder gives away")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["audit", *words])


def test_the_command_leaves_a_page_a_sheet_and_tables(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    words = [str(folder), "--images", "40", "--steps", "3", "--layers", "features", "--out", str(out)]
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    assert "Membership:" in result.output
    assert {path.name for path in out.iterdir()} == set(shown.FILES)
    assert (out / "audit.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "audit.html").read_text()
    assert "neighbours got values of embedding" in page
    assert "http" not in page.replace("http-equiv", "")
    rows = (out / "audit.csv").read_text().splitlines()
    assert rows[0] == "layer,form,public,attack,bytes,error,relative,ssim,recognised,matched"
    assert len(rows) == 7  # the image, inverter and nearest on floats and on bytes, the mean
    check_complaint(invoke(*words), "audit.json", "give --force")
    again = invoke(*words, "--json", "--force")
    assert json.loads(again.stdout) == json.loads((out / "audit.json").read_text())


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--layers", "block9"], ["--layers 'block9'", "choose from block1, block2, features, embedding"]),
        (["--other", "cifar"], ["--other 'cifar'", "choose from digits"]),
        (["--other", "digits"], ["--other digits is the set that the devices hold", "choose another set, or none"]),
        (["--noise", "-1"], ["--noise -1", "above 0"]),
    ],
)
def test_bad_options_get_one_line(folder: Path, tmp_path: Path, words: list[str], parts: list[str]) -> None:
    check_complaint(invoke(str(folder), "--out", str(tmp_path / "audit"), *words), *parts)


def test_what_is_no_run_gets_one_line(tmp_path: Path) -> None:
    check_complaint(invoke(str(tmp_path), "--out", str(tmp_path / "audit")), "is no run folder")
