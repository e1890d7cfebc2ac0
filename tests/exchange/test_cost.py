import pytest
import torch

from cfcl.config import CostConfig
from cfcl.exchange.cost import Ledger, size_of
from cfcl.exchange.messages import (
    SERVER,
    ActivationItems,
    DataItems,
    DataReserve,
    EmbeddingItems,
    EmbeddingReserve,
    GlobalModel,
    LocalModel,
    PullRequest,
)


def images(number: int) -> torch.Tensor:
    return torch.zeros(number, 1, 28, 28, dtype=torch.uint8)


def model(source: int, target: int = SERVER) -> LocalModel:
    return LocalModel(source, target, 0, torch.zeros(3), torch.zeros(0), 1.0)


def test_one_model_upload_takes_the_time_worked_out_by_hand() -> None:
    ledger = Ledger(CostConfig(), num_parameters=45_433)
    for device in range(10):
        ledger.charge(model(device))
    # 45,433 * 32 bits / 10^6 = 1.453856 s, devices in parallel
    assert ledger.settle() == pytest.approx(1.453856)
    assert ledger.totals()["bytes_up"] == 10 * 45_433 * 4


def test_one_datapoint_and_one_embedding_by_hand() -> None:
    ledger = Ledger(CostConfig(), num_parameters=1)
    ledger.charge(DataItems(0, 1, 0, images(1)))
    # 784 * 8 / 10^6 = 6.272 ms
    assert ledger.settle() == pytest.approx(6.272e-3)
    ledger.charge(EmbeddingItems(0, 1, 0, torch.zeros(1, 16)))
    # 16 * 32 / 10^6 = 0.512 ms
    assert ledger.settle() == pytest.approx(0.512e-3)
    assert ledger.seconds == pytest.approx(6.784e-3)


def test_fashion_mnist_exchange_by_hand() -> None:
    ledger = Ledger(CostConfig(), num_parameters=1)
    links = [(source, (source + shift) % 10) for source in range(10) for shift in range(1, 8)]
    for source, target in links:
        ledger.charge(DataReserve(source, target, 0, images(20)))
    # 70 links * 20 points * 784 bytes = 1.0976 MB; each device receives 7 reserves: 7 * 20 * 6.272 ms
    assert ledger.totals()["bytes_push"] == 1_097_600
    assert ledger.settle() == pytest.approx(0.87808)
    for source, target in links:
        ledger.charge(DataItems(source, target, 25, images(10)))
    # 70 * 10 * 784 = 0.5488 MB
    assert ledger.totals()["bytes_pull"] == 548_800
    assert ledger.settle() == pytest.approx(0.43904)


def test_an_exchange_lasts_as_long_as_its_slowest_receiver() -> None:
    ledger = Ledger(CostConfig(), num_parameters=1, rates={(2, 1): 0.5})
    ledger.charge(DataItems(0, 1, 0, images(1)))
    ledger.charge(DataItems(2, 1, 0, images(1)))
    ledger.charge(DataItems(1, 0, 0, images(2)))
    # device 1: 6.272 + 12.544 (half the rate) = 18.816 ms; device 0: 12.544 ms
    assert ledger.settle() == pytest.approx(18.816e-3)
    assert ledger.settle() == 0.0


def test_bytes_by_link_kind_and_direction() -> None:
    ledger = Ledger(CostConfig(), num_parameters=5)
    ledger.charge(EmbeddingReserve(0, 1, 0, torch.zeros(3, 4)))
    ledger.charge(EmbeddingItems(1, 0, 0, torch.zeros(2, 4)))
    ledger.charge(EmbeddingItems(1, 0, 9, torch.zeros(2, 4)))
    ledger.charge(model(0))
    ledger.charge(PullRequest(0, 1, 0, 2))
    assert ledger.table() == [
        {"source": 0, "target": -1, "kind": "model", "direction": "up", "bytes": 20},
        {"source": 0, "target": 1, "kind": "embedding", "direction": "push", "bytes": 48},
        {"source": 1, "target": 0, "kind": "embedding", "direction": "pull", "bytes": 64},
    ]


@pytest.mark.parametrize(("charged", "down", "seconds"), [(False, 0, 0.0), (True, 80, 80 * 8 / 2e6 / 2)])
def test_broadcast_is_charged_only_on_request(charged: bool, down: int, seconds: float) -> None:
    ledger = Ledger(CostConfig(charge_broadcast=charged, downlink_mbps=2.0), num_parameters=10)
    for device in range(2):
        ledger.charge(GlobalModel(SERVER, device, 0, torch.zeros(3), torch.zeros(0)))
    ledger.settle()
    assert ledger.totals()["bytes_down"] == down
    # two devices hear 40 bytes each, at the same time
    assert ledger.seconds == pytest.approx(seconds)


def test_step_time_and_energy_are_off_by_default_and_add_up() -> None:
    plain, priced = Ledger(CostConfig(), 10), Ledger(CostConfig(step_seconds=0.5, transmit_watts=2.0), 10)
    for ledger in (plain, priced):
        ledger.charge(model(0))
        ledger.charge(model(1))
        ledger.settle()
        ledger.charge_step()
    # 40 bytes = 0.32 ms; energy is paid by both senders: 2 W * 0.64 ms
    assert plain.totals()["seconds"] == pytest.approx(0.32e-3)
    assert plain.totals()["joules"] == 0.0
    assert priced.totals()["seconds"] == pytest.approx(0.50032)
    assert priced.totals()["joules"] == pytest.approx(1.28e-3)


def test_energy_goes_by_the_rate_of_each_link() -> None:
    config = CostConfig(transmit_watts=2.0, d2d_mbps=4.0, uplink_mbps=8.0, downlink_mbps=16.0, charge_broadcast=True)
    ledger = Ledger(config, num_parameters=100, rates={(2, 1): 0.5})
    ledger.charge(DataItems(0, 1, 0, images(1)))
    ledger.charge(DataItems(2, 1, 0, images(1)))
    ledger.charge(model(0))
    ledger.charge(GlobalModel(SERVER, 0, 0, torch.zeros(3), torch.zeros(0)))
    # 784 bytes are 6,272 bits: 1.568 ms at 4 Mbit/s, 12.544 ms at 0.5; 400 bytes: 0.4 ms up, 0.2 ms down; times 2 W
    assert ledger.totals()["joules"] == pytest.approx(2 * (1.568e-3 + 12.544e-3 + 0.4e-3 + 0.2e-3))
    # device 1 waits for both of its items, device 0 for its model both ways
    assert ledger.settle() == pytest.approx(14.112e-3)


def test_the_number_of_new_candidates_takes_four_bytes() -> None:
    told = [
        DataItems(0, 1, 0, images(2)[:0], 0),
        EmbeddingItems(0, 1, 0, torch.zeros(2, 4), 7),
        ActivationItems(0, 1, 0, torch.zeros(1, 2, 3), None, 7),
    ]
    # nothing; 8 values of 4 bytes; 6 values of 4 bytes
    assert [size_of(items, num_parameters=1) for items in told] == [4, 36, 28]


def test_a_request_is_free() -> None:
    assert size_of(PullRequest(0, 1, 0, 5), num_parameters=3) == 0
