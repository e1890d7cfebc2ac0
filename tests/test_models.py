import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cfcl.config import ModelConfig
from cfcl.errors import CfclError
from cfcl.models import Encoder, Weights
from cfcl.use import TrainedEncoder, load_encoder

SHAPE = (1, 8, 8)


def images(number: int = 5) -> torch.Tensor:
    return torch.randint(0, 256, (number, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def encoder(*, normalise: bool = True, seed: int = 0) -> Encoder:
    return Encoder(ModelConfig(normalise=normalise), SHAPE, seed=seed)


@pytest.mark.parametrize(
    ("name", "shape", "embedding_dim", "expected"),
    [
        # conv 16*(9+1) = 160, linear 64*(16*16+1) = 16,448, linear 16*(64+1) = 1040
        ("small-cnn", (1, 8, 8), 16, 17_648),
        # conv 8*(9+1) = 80, linear 512*48 + 48*32 + 32*16 without bias
        ("usps-cnn", (1, 16, 16), 16, 26_704),
        # convs 8*26 = 208, 24*201 = 4824, 48*217 = 10,416, 32*433 = 13,856, 32*289 = 9248; linear 2112 + 4160 + 1040
        ("small-alexnet", (1, 28, 28), 16, 45_864),
        # stem 580; stages 14,560, 51,600, 205,600, 820,800 with two affine vectors a norm; linear 256*161 = 41,216
        ("slim-resnet18", (3, 32, 32), 256, 1_134_356),
        # convs 24*10 = 240, 48*217 = 10,416, 64*433 = 27,712; linear 64*(64*2*2+1) = 16,448, 32*65 = 2080
        ("conv", (1, 16, 16), 32, 56_896),
    ],
)
def test_parameters_by_hand(name: str, shape: tuple[int, int, int], embedding_dim: int, expected: int) -> None:
    config = ModelConfig.model_validate({"encoder": name, "embedding_dim": embedding_dim})
    model = Encoder(config, shape, seed=0)
    assert model.num_parameters == expected
    assert model.embed(model.initial, torch.zeros(3, *shape, dtype=torch.uint8)).shape == (3, embedding_dim)


def resnet(norm: str) -> Encoder:
    return Encoder(ModelConfig.model_validate({"encoder": "slim-resnet18", "norm": norm}), (3, 8, 8), seed=0)


def test_batch_norm_has_running_statistics_and_group_norm_none() -> None:
    # 20 norms: stem 20; stages 4*20, 5*40, 5*80, 5*160 channels = 1500, with a mean and a variance each
    assert (resnet("batch").initial.buffers.numel(), resnet("group").initial.buffers.numel()) == (3000, 0)


def test_a_training_step_moves_running_statistics_in_the_state_alone() -> None:
    model = resnet("batch")
    before = model.initial.buffers.clone()
    batch = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))

    _, buffers, said = model.gradient(model.initial, batch, lambda embeddings: (embeddings[0].sum(), "more"))
    assert said == "more"

    assert torch.equal(model.initial.buffers, before)
    assert not torch.equal(buffers, before)
    used = model.embed(Weights(model.initial.params, buffers), batch)
    assert not torch.allclose(used, model.embed(model.initial, batch))


def test_a_module_of_your_own_brings_its_weights_and_its_length(tmp_path: Path) -> None:
    mine = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5))
    model = Encoder(ModelConfig(normalise=False), SHAPE, seed=0, module=mine)
    torch.testing.assert_close(model.embed(model.initial, images()), mine(images().float() / 255).detach())
    assert model.embedding_dim == 5

    trained = TrainedEncoder(model, Weights(model.initial.params * 2, model.initial.buffers))
    trained.save(tmp_path / "mine.safetensors")

    loaded = load_encoder(tmp_path / "mine.safetensors", module=mine)
    assert torch.equal(loaded.embed(images()), trained.embed(images()))
    with pytest.raises(CfclError, match="is not an encoder written by cfcl"):
        load_encoder(tmp_path / "mine.safetensors")


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (torch.nn.Linear(3, 5), r"cannot take images of shape \(1, 8, 8\)"),
        (torch.nn.Conv2d(1, 2, 3), r"into a tensor of shape \(2, 2, 6, 6\).*flatten its output"),
    ],
)
def test_a_module_that_makes_no_embeddings_is_refused(module: torch.nn.Module, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        Encoder(ModelConfig(), SHAPE, seed=0, module=module)


def test_images_too_small_for_an_encoder_are_refused() -> None:
    with pytest.raises(CfclError, match=r"images of 4×4 are too small for model\.encoder='slim-resnet18'.*choose"):
        Encoder(ModelConfig(encoder="slim-resnet18"), (3, 4, 4), seed=0)


def test_the_initial_model_follows_the_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = encoder().initial, encoder().initial, encoder(seed=1).initial
    assert torch.equal(first.params, again.params)
    assert not torch.equal(first.params, other.params)
    assert torch.equal(before, torch.random.get_rng_state())


def test_normalised_embeddings_have_unit_length_and_free_ones_do_not() -> None:
    unit, free = encoder(), encoder(normalise=False)
    torch.testing.assert_close(unit.embed(unit.initial, images()).norm(dim=1), torch.ones(5))
    assert not torch.allclose(free.embed(free.initial, images()).norm(dim=1), torch.ones(5), atol=0.01)


def test_embeddings_depend_on_the_weights_handed_in() -> None:
    model = encoder()
    other = Weights(model.initial.params * 1.5 + 0.01, model.initial.buffers)
    first, second = model.embed(model.initial, images()), model.embed(other, images())
    assert not torch.allclose(first, second)
    assert torch.equal(first, model.embed(model.initial, images()))


def test_portions_do_not_change_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = encoder()
    whole = model.embed(model.initial, images())
    monkeypatch.setattr("cfcl.models.encoder.PORTION", 2)
    torch.testing.assert_close(model.embed(model.initial, images()), whole)


def test_gradient_agrees_with_finite_differences_along_itself() -> None:
    model = encoder()
    batch = images().float() / 255

    def loss(embeddings: torch.Tensor) -> torch.Tensor:
        return (embeddings[0] - embeddings[1]).square().sum() + embeddings[2, 0]

    gradient, _, _ = model.gradient(model.initial, batch, lambda embeddings: (loss(embeddings), None))
    direction = gradient / gradient.norm()
    step = 1e-3
    ahead, behind = (
        float(loss(model.embed(Weights(model.initial.params + sign * step * direction, model.initial.buffers), batch)))
        for sign in (1, -1)
    )
    assert float(gradient.norm()) == pytest.approx((ahead - behind) / (2 * step), rel=0.01)


def test_a_saved_encoder_embeds_the_same(tmp_path: Path) -> None:
    trained = TrainedEncoder(encoder(), encoder(seed=3).initial)
    trained.save(tmp_path / "encoder.safetensors")

    for place in (tmp_path, tmp_path / "encoder.safetensors"):
        loaded = load_encoder(place)
        assert torch.equal(loaded.embed(images()), trained.embed(images()))
    assert (loaded.image_shape, loaded.embedding_dim) == (SHAPE, 16)


def test_a_file_from_before_a_setting_existed_is_read(tmp_path: Path) -> None:
    model = encoder(seed=3)
    settings = ModelConfig().model_dump(include={"encoder", "embedding_dim", "norm", "standardise", "normalise"})
    description = json.dumps({"model": settings, "image_shape": SHAPE})
    save_file(model.state_dict(model.initial), tmp_path / "old.safetensors", metadata={"cfcl": description})
    found = load_encoder(tmp_path / "old.safetensors")
    assert torch.equal(found.embed(images()), model.embed(model.initial, images()))


def test_images_may_come_in_several_forms() -> None:
    trained = TrainedEncoder(encoder(), encoder().initial)
    expected, features = trained.embed(images()), trained.features(images())
    assert (expected.shape, features.shape) == ((5, 16), (5, 256))
    for form in (images().squeeze(1), images().numpy(), images().float() / 255, np.asarray(images()[:, 0])):
        torch.testing.assert_close(trained.embed(form), expected)
        torch.testing.assert_close(trained.features(form), features)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        (torch.zeros(2, 2, 9, 9), r"shape \(2, 2, 9, 9\) do not fit this encoder, which takes \(batch, 1, 8, 8\)"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.int64), "neither uint8 pixels nor floats"),
        (torch.full((2, 1, 8, 8), 7.0), "neither uint8 pixels nor floats"),
    ],
)
def test_images_that_do_not_fit_are_refused(form: torch.Tensor, complaint: str) -> None:
    with pytest.raises(CfclError, match=complaint):
        TrainedEncoder(encoder(), encoder().initial).embed(form)
    with pytest.raises(CfclError, match=complaint):
        TrainedEncoder(encoder(), encoder().initial).features(form)


def _write_garbage(path: Path) -> None:
    path.write_bytes(b"not safetensors at all")


def _write_foreign(path: Path) -> None:
    save_file({"x": torch.zeros(1)}, path)


def _write_other_shape(path: Path) -> None:
    description = json.dumps({"model": ModelConfig().model_dump(), "image_shape": SHAPE})
    save_file({"0.weight": torch.zeros(1)}, path, metadata={"cfcl": description})


@pytest.mark.parametrize("write", [_write_garbage, _write_foreign, _write_other_shape])
def test_files_that_are_no_encoder_are_refused(tmp_path: Path, write: object) -> None:
    assert callable(write)
    write(tmp_path / "bad.safetensors")
    with pytest.raises(CfclError, match="is not an encoder written by cfcl"):
        load_encoder(tmp_path / "bad.safetensors")


def test_a_missing_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CfclError, match="there is no encoder at"):
        load_encoder(tmp_path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_embeddings_on_cuda_agree_with_the_cpu() -> None:
    here, there = encoder(), Encoder(ModelConfig(), SHAPE, seed=0, device="cuda")
    torch.testing.assert_close(
        there.embed(there.initial, images()).cpu(), here.embed(here.initial, images()), atol=1e-4, rtol=1e-3
    )


def test_the_deep_network_starts_with_embeddings_that_differ() -> None:
    model = Encoder(ModelConfig(encoder="small-alexnet"), (1, 28, 28), seed=0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (20, 1, 28, 28), dtype=torch.uint8, generator=generator)
    dark = (noise.float() * torch.linspace(0.1, 1, 20).view(-1, 1, 1, 1)).byte()
    embeddings = model.embed(model.initial, dark)
    assert float(torch.cdist(embeddings, embeddings).mean()) > 0.01


def test_a_standardising_encoder_is_blind_to_brightness_contrast_and_tint() -> None:
    config = ModelConfig(encoder="small-cnn", standardise=True)
    model = Encoder(config, (3, 8, 8), seed=0)
    pixels = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    gain, shift = torch.tensor([0.9, 0.5, 0.7]).view(3, 1, 1), torch.tensor([0.05, 0.3, 0.1]).view(3, 1, 1)
    changed = model.embed(model.initial, pixels * gain + shift)
    torch.testing.assert_close(changed, model.embed(model.initial, pixels), atol=0.02, rtol=0)
    plain = Encoder(ModelConfig(encoder="small-cnn"), (3, 8, 8), seed=0)
    apart = plain.embed(plain.initial, pixels * gain + shift) - plain.embed(plain.initial, pixels)
    assert float(apart.norm(dim=1).min()) > 0.1
    assert bool(model.embed(model.initial, torch.zeros(2, 3, 8, 8)).isfinite().all())


STAGES = {
    "small-cnn": ("features", "embedding"),
    "usps-cnn": ("features", "embedding"),
    "small-alexnet": ("block1", "block2", "block3", "block4", "block5", "features", "embedding"),
    "slim-resnet18": ("block1", "block2", "block3", "block4", "features", "embedding"),
    "conv": ("block1", "block2", "block3", "features", "embedding"),
}


def of_kind(name: str, **fields: object) -> Encoder:
    return Encoder(ModelConfig.model_validate({"encoder": name, **fields}), (3, 8, 8), seed=0)


def coloured(number: int = 5) -> torch.Tensor:
    return torch.rand(number, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("standardise", [False, True])
def test_activations_at_any_stage_can_be_gone_on_from(name: str, standardise: bool) -> None:
    model = of_kind(name, standardise=standardise)
    assert model.stages == STAGES[name]
    expected = model.embed(model.initial, coloured())
    for stage in model.stages[:-1]:
        found = model.activations(model.initial, coloured(), stage)
        # over a wire they arrive in torch's own layout, and the bits must not tell
        for sent in (found, found.clone(memory_format=torch.contiguous_format)):
            with torch.no_grad():
                assert torch.equal(model._forward(sent, start=stage), expected)
    assert torch.equal(model.activations(model.initial, coloured(), "embedding"), expected)
    features, embeddings = model.features_and_embeddings(model.initial, coloured())
    assert torch.equal(features, model.features(model.initial, coloured()))
    assert torch.equal(embeddings, expected)
    assert (model.feature_dim, model.embedding_dim) == (features.shape[1], embeddings.shape[1])


@pytest.mark.parametrize(
    ("name", "stage", "shape"),
    [
        ("small-cnn", "features", (256,)),  # 16 maps of 4×4
        ("usps-cnn", "features", (128,)),  # 8 maps of 4×4
        ("small-alexnet", "block1", (8, 4, 4)),
        ("small-alexnet", "block2", (24, 2, 2)),
        ("small-alexnet", "block4", (32, 2, 2)),
        ("small-alexnet", "features", (32,)),
        ("slim-resnet18", "block1", (20, 8, 8)),
        ("slim-resnet18", "block3", (80, 2, 2)),
        ("slim-resnet18", "features", (160,)),
        ("conv", "block1", (24, 4, 4)),
        ("conv", "block2", (48, 4, 4)),  # pooled again, its side would be 2
        ("conv", "block3", (64, 4, 4)),
        ("conv", "features", (256,)),
    ],
)
def test_activations_have_the_shape_of_their_stage(name: str, stage: str, shape: tuple[int, ...]) -> None:
    model = of_kind(name)
    found = model.activations(model.initial, coloured(), stage)
    assert found.shape == (5, *shape)
    assert not found.requires_grad
    assert float(found.min()) >= 0  # every stage before the embedding ends with a ReLU or a maximum of one
    if stage == "features":
        assert torch.equal(model.features(model.initial, coloured()), found)


def test_gradients_flow_through_the_rest_of_the_network_alone() -> None:
    model = of_kind("small-alexnet")
    sent = model.activations(model.initial, coloured(), "block2")
    embeddings = model._forward(sent, start="block2")
    gradients = torch.autograd.grad(embeddings[0, 0], model._params, allow_unused=True)
    # two convolutions before, three after and three linear layers, each with weight and bias
    assert [gradient is not None for gradient in gradients] == [False] * 4 + [True] * 12


def test_stages_leave_no_trace_in_a_file() -> None:
    names = list(of_kind("small-cnn").state_dict(of_kind("small-cnn").initial))
    assert names == ["1.weight", "1.bias", "5.weight", "5.bias", "7.weight", "7.bias"]


def test_a_stage_that_is_not_there_is_refused() -> None:
    model = of_kind("small-cnn")
    with pytest.raises(CfclError, match=r"'block7' is no stage of small-cnn: choose one of features, embedding"):
        model.activations(model.initial, coloured(), "block7")


def test_a_module_of_your_own_is_one_stage_and_its_embeddings_are_its_features() -> None:
    model = Encoder(
        ModelConfig(), SHAPE, seed=0, module=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5))
    )
    assert model.stages == ("embedding",)
    assert torch.equal(model.features(model.initial, images()), model.embed(model.initial, images()))


class Mine(torch.nn.Module):
    def __init__(self, last: str) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 7))
        self.head = torch.nn.Linear(7, 3)
        self.last = last

    @property
    def stages(self) -> dict[str, torch.nn.Module]:
        return {"features": self.body, self.last: self.head}


def test_a_module_of_your_own_may_name_its_stages() -> None:
    mine = Mine("embedding")
    model = Encoder(ModelConfig(normalise=False), SHAPE, seed=0, module=mine)
    assert model.stages == ("features", "embedding")
    features = model.features(model.initial, images())
    torch.testing.assert_close(features, mine.body(images().float() / 255).detach())
    torch.testing.assert_close(model.embed(model.initial, images()), mine.head(features).detach())
    with pytest.raises(CfclError, match="stages are features, end, but the last one must be 'embedding'"):
        Encoder(ModelConfig(), SHAPE, seed=0, module=Mine("end"))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((16, 16), [(24, 8, 8), (48, 4, 4), (64, 4, 4), (256,)]),
        ((28, 28), [(24, 14, 14), (48, 7, 7), (64, 7, 7), (256,)]),
        ((12, 32), [(24, 6, 16), (48, 6, 16), (64, 6, 16), (256,)]),  # the shorter side decides
        ((4, 4), [(24, 4, 4), (48, 4, 4), (64, 4, 4), (256,)]),
    ],
)
def test_conv_pools_while_the_side_stays_at_four(size: tuple[int, int], expected: list[tuple[int, ...]]) -> None:
    model = Encoder(ModelConfig(encoder="conv"), (2, *size), seed=0)
    black = torch.zeros(3, 2, *size, dtype=torch.uint8)
    found = [tuple(model.activations(model.initial, black, stage).shape[1:]) for stage in model.stages[:-1]]
    assert found == expected


def test_conv_by_its_own_weights() -> None:
    model = Encoder(ModelConfig(encoder="conv", widths=(3, 6), grid=4, head=(5, 7)), (1, 9, 9), seed=0)
    own = iter(model.state_dict(model.initial).values())
    pixels = torch.rand(4, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    functional = torch.nn.functional
    # 9 -> 4, which stays; then the mean over a grid of 4×4 leaves it as it is
    hidden = functional.max_pool2d(functional.conv2d(pixels, next(own), next(own), padding=1).relu(), 2)
    hidden = functional.conv2d(hidden, next(own), next(own), padding=1).relu().flatten(1)
    torch.testing.assert_close(model.features(model.initial, pixels), hidden)
    for _ in range(2):
        hidden = functional.linear(hidden, next(own), next(own)).relu()
    hidden = functional.linear(hidden, next(own), next(own))
    torch.testing.assert_close(model.embed(model.initial, pixels), functional.normalize(hidden))
    assert list(own) == []


def test_conv_averages_to_its_grid() -> None:
    coarse = Encoder(ModelConfig(encoder="conv", grid=1, head=()), (1, 8, 8), seed=0)
    maps = coarse.activations(coarse.initial, images(), "block3")
    torch.testing.assert_close(coarse.features(coarse.initial, images()), maps.mean(dim=(2, 3)))
    # 240 + 10,416 + 27,712 for the convolutions, one linear layer 16*(64+1)
    assert coarse.num_parameters == 39_408


def test_conv_with_group_norm_needs_no_buffers_and_takes_any_width() -> None:
    model = Encoder(ModelConfig(encoder="conv", norm="group", widths=(6, 9)), (1, 8, 8), seed=0)
    plain = Encoder(ModelConfig(encoder="conv", widths=(6, 9)), (1, 8, 8), seed=0)
    assert model.initial.buffers.numel() == 0
    assert model.num_parameters - plain.num_parameters == 2 * (6 + 9)  # a scale and a shift per channel
    # blind to contrast, up to the epsilon inside: what it sees of half the light is the same
    pixels = images().float() / 255
    bright, dim = (model.activations(model.initial, some, "block2") for some in (pixels, pixels / 2))
    torch.testing.assert_close(bright, dim, atol=1e-3, rtol=1e-3)


def test_a_grid_finer_than_what_is_left_is_refused() -> None:
    with pytest.raises(CfclError, match=r"model\.grid=5 exceeds 4, the side .* images of 8×8: lower model\.grid"):
        Encoder(ModelConfig(encoder="conv", grid=5), (1, 8, 8), seed=0)
    with pytest.raises(CfclError, match=r"images of 3×3 are too small for model\.encoder='conv'"):
        Encoder(ModelConfig(encoder="conv"), (1, 3, 3), seed=0)
