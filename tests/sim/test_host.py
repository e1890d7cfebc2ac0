"""A run leaves the process that calls it as it found it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import cfcl
from cfcl import rng
from cfcl.models import Encoder
from cfcl.records import Record
from cfcl.sim import allocator, engines
from cfcl.sim.world import single_thread
from tests.conftest import small
from tests.played import play, played


@pytest.fixture
def _doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_doubles")
def test_another_default_type_changes_no_byte() -> None:
    overrides = ("evaluation.probe=sgd", "evaluation.every=9", "exchange.mode=implicit")
    mine = play(small(*overrides), workers=1)
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float32)
    assert mine.files == played(*overrides).files


@pytest.mark.parametrize("name", ["small-cnn", "usps-cnn", "small-alexnet", "slim-resnet18"])
def test_initial_weights_neither_use_nor_move_the_callers_random_numbers(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    encoder = Encoder(small(f"model.encoder={name}").model, (1, 8, 8), seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = Encoder(small(f"model.encoder={name}").model, (1, 8, 8), seed=0)
    assert torch.equal(again.initial.params, encoder.initial.params)


def test_initial_weights_are_those_that_torch_draws() -> None:
    torch.manual_seed(rng.derive(7, "model"))
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.Linear(256, 64), nn.Linear(64, 16)]
    expected = torch.cat([part.detach().flatten() for layer in layers for part in layer.parameters()])
    assert torch.equal(Encoder(small().model, (1, 8, 8), seed=7).initial.params, expected)


def test_encoders_that_are_built_at_once_have_the_weights_of_their_seeds() -> None:
    model = small("model.encoder=small-alexnet").model

    def weights(seed: int) -> torch.Tensor:
        return Encoder(model, (1, 8, 8), seed=seed % 5).initial.params

    alone = [weights(seed) for seed in range(5)]
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(found, alone[i % 5]) for i, found in enumerate(pool.map(weights, range(100))))


def test_runs_in_several_threads_give_every_thread_its_number_back() -> None:
    torch.set_num_threads(3)
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def other() -> None:
        with single_thread():
            begun.set()
            assert go_on.wait(10)
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    with single_thread():
        thread.start()
        assert begun.wait(10)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    go_on.set()
    thread.join()
    assert seen == [1, 3]
    fresh = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    fresh.start()
    fresh.join()
    assert seen == [1, 3, 3]


def test_a_run_that_fails_gives_the_number_of_threads_back() -> None:
    def watch(record: Record) -> None:
        raise KeyError(torch.get_num_threads())

    torch.set_num_threads(3)
    with pytest.raises(KeyError, match=r"^1$"):
        cfcl.run(small(), workers=1, watch=watch)
    assert torch.get_num_threads() == 3


def test_memory_is_kept_in_processes_of_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise AssertionError("the caller's memory is its own")

    monkeypatch.setattr(allocator, "keep_memory", refuse)
    with engines.start(small(), workers=1):
        pass
