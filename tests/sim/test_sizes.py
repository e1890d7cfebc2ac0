"""What cannot fit is refused before it begins."""

import subprocess
import sys

import pytest
import torch

from cfcl import config as configs
from cfcl import rng
from cfcl.data import datasets
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.models import Encoder, networks
from cfcl.sim import sizes, world
from tests.conftest import small

GIB = 2**30


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.load(small().data)


TOO_LARGE = [
    (
        ["partition.kind=overlapping", "partition.num_devices=1000000"],
        # 3 vectors of 17,648 floats for each of a million devices are 211,776 MB
        r"the models of partition\.num_devices=1000000 with model\.embedding_dim=16 take at least 197\.2 GiB, but "
        r"there are 16\.0 GiB of memory: lower one of them, or choose another model\.encoder",
    ),
    (["model.embedding_dim=100000", "partition.num_devices=400"], "with model.embedding_dim=100000 take at least"),
    (["model.encoder=slim-resnet18", "train.batch_size=100000"], r"train\.batch_size=100000 inside the encoder take"),
    (["graph.kind=complete", "partition.num_devices=50000", "exchange.method=fedavg"], "the 1,249,975,000 edges of"),
    (["graph.kind=complete", "partition.num_devices=50000"], r"exchange\.num_pulled=5 on 2,499,950,000 links"),
]


@pytest.mark.parametrize(("overrides", "complaint"), TOO_LARGE, ids=[row[0][-1] for row in TOO_LARGE])
def test_the_largest_part_is_named(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch, overrides: list[str], complaint: str
) -> None:
    monkeypatch.setattr(sizes, "machine_bytes", lambda: 16 * GIB)
    with pytest.raises(CfclError, match=complaint):
        sizes.check(configs.load("digits-study", overrides), digits)


def test_a_world_that_cannot_fit_is_not_built(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "machine_bytes", lambda: 100_000)
    with pytest.raises(CfclError, match=r"take at least 0\.0 GiB, but there are 0\.0 GiB of memory"):
        world.build(small(), dataset=digits)
    monkeypatch.setattr(sizes, "machine_bytes", lambda: None)
    world.build(small(), dataset=digits)


def test_thousands_of_devices_are_let_through(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "machine_bytes", lambda: 4 * GIB)
    many = ["partition.kind=overlapping", "partition.max_points_per_label=48", "partition.num_devices=10000"]
    sizes.check(configs.load("digits-study", [*many, "graph.degree=20"]), digits)


@pytest.mark.parametrize("encoder", ["small-cnn", "usps-cnn", "small-alexnet", "slim-resnet18", "conv"])
def test_parameters_are_counted_as_the_encoder_has_them(encoder: str) -> None:
    config = configs.load("digits-study", [f"model.encoder={encoder}", "model.embedding_dim=7"])
    shape = (3, 16, 16)
    assert sizes._network(config, shape, None)[0] == Encoder(config.model, shape, seed=0).num_parameters
    assert sizes._network(config, shape, torch.nn.Linear(3, 2)) == (8, 0)


@pytest.mark.parametrize("encoder", ["small-cnn", "usps-cnn", "small-alexnet", "slim-resnet18", "conv"])
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 33, 20)])
def test_outputs_are_counted_as_the_layers_make_them(encoder: str, shape: tuple[int, int, int]) -> None:
    network = networks.build(
        configs.load("digits-study", [f"model.encoder={encoder}"]).model, shape, rng.stream(0, "model")
    )
    made: list[tuple[int, ...]] = []
    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(lambda layer, given, found: made.append(tuple(found.shape[1:])))
    network(torch.zeros(2, *shape))
    assert networks.shapes(network, shape) == made


def test_a_run_does_not_wait_for_the_compiler() -> None:
    code = "import sys; from cfcl import config; from cfcl.sim import world; world.build(config.load('digits')); "
    done = subprocess.run([sys.executable, "-c", f"{code}print('torch._dynamo' in sys.modules)"], capture_output=True)
    assert done.stdout.split() == [b"False"], done.stderr


def test_outputs_are_counted_by_hand() -> None:
    # 8×8: as it is 64, 16 maps 1,024, pooled 256, ReLU 256, flat 256, hidden 64, ReLU 64, embedding 16
    assert sizes._network(configs.load("digits-study"), (1, 8, 8), None) == (17_648, 64 + 1024 + 3 * 256 + 2 * 64 + 16)


def test_devices_on_other_machines_do_not_count(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configs.load("digits-study")
    here = next(sizes._parts(config, digits, None))
    monkeypatch.setenv("WORLD_SIZE", "10")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert next(sizes._parts(config, digits, None)).bytes * 5 == here.bytes


def test_the_machine_tells_what_it_has() -> None:
    found = sizes.machine_bytes()
    assert found is None or found > 2**27
