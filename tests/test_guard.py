"""What a device that is on its guard takes in."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cfcl import device
from cfcl.device import DeviceState, Setting
from cfcl.exchange.messages import ActivationItems, DataItems, EmbeddingItems
from tests.conftest import small
from tests.played import played
from tests.test_device import SHAPE, begin, images, make_setting, prepare


def flat(*values: int) -> Tensor:
    """Images of one grey each."""
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, *SHAPE).contiguous()


def ready(*overrides: str, own: Tensor | None = None) -> tuple[Setting, DeviceState]:
    setting = make_setting(small(*overrides))
    return setting, prepare(setting, begin(setting, 0, images(20, 0) if own is None else own), 3)


def pulled(setting: Setting, state: DeviceState, *greys: tuple[int, tuple[int, ...]], step: int = 3) -> DeviceState:
    return device.absorb(setting, state, [DataItems(source, 0, step, flat(*some)) for source, some in greys], step)


def shown(state: DeviceState) -> list[tuple[int, int]]:
    """Who sent which grey."""
    return list(zip(state.sources.tolist(), state.pulled[:, 0, 0, 0].tolist(), strict=True))


def test_items_out_of_range_are_refused() -> None:
    own = flat(*range(100, 120))  # flat images: no contrast, no roughness
    setting, state = ready("defence.range=0.5", "exchange.num_candidates=20", own=own)
    found = pulled(setting, state, (1, (90, 91, 110)), (2, (128, 129, 100)), (3, (0,)))
    # 100 to 119, and half of 19 beyond: 90.5 to 128.5
    assert shown(found) == [(1, 91), (1, 110), (2, 128), (2, 100)]
    noisy = device.absorb(setting, state, [DataItems(1, 0, 3, images(2, 5))], 3)
    assert len(noisy.pulled) == 0
    assert len(device.absorb(make_setting(small()), state, [DataItems(1, 0, 3, images(2, 5))], 3).pulled) == 2


@pytest.mark.parametrize("normalise", ["true", "false"])
def test_long_embeddings_are_shortened(normalise: str) -> None:
    setting, state = ready("defence.clip=2", "exchange.mode=implicit", f"model.normalise={normalise}")
    assert state.candidates is not None
    middle = float(state.candidates.embeddings.norm(dim=1).double().quantile(0.5))
    axis = torch.eye(16)[:2]
    items = [EmbeddingItems(1, 0, 3, torch.cat([axis[:1] * 1e6, axis[1:] * 1.9 * middle]))]
    found = device.absorb(setting, state, items, 3).pulled
    torch.testing.assert_close(found, torch.cat([axis[:1] * 2 * middle, axis[1:] * 1.9 * middle]))
    if normalise == "true":
        assert middle == pytest.approx(1.0)


def test_long_activations_are_shortened_as_wholes() -> None:
    setting, state = ready("defence.clip=1.5", "exchange.mode=activations", "exchange.layer=features")
    assert state.candidates is not None
    own = state.candidates.payload
    most = 1.5 * float(own.flatten(1).norm(dim=1).double().quantile(0.5))
    found = device.absorb(setting, state, [ActivationItems(1, 0, 3, own[:2] * 1e6)], 3).pulled
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.tensor([most, most]))
    torch.testing.assert_close(found[0] / found[0].norm(), own[0] / own[0].norm())


def test_what_is_out_of_range_is_not_shortened_into_it() -> None:
    setting, state = ready("defence.clip=2", "defence.range=0.5", "exchange.mode=implicit")
    assert state.candidates is not None
    own = state.candidates.embeddings[:2]
    found = device.absorb(setting, state, [EmbeddingItems(1, 0, 3, torch.cat([own[:1] * 1e6, own[1:]]))], 3)
    assert torch.equal(found.pulled, own[1:])
    assert found.sources.tolist() == [1]


def test_a_cap_holds_the_newest_of_each_neighbour() -> None:
    setting, state = ready("defence.cap=2", "exchange.buffer=keep")
    state = pulled(setting, state, (1, (1, 2)), (3, (5,)))
    assert shown(state) == [(1, 1), (1, 2), (3, 5)]
    state = pulled(setting, replace(state, pulled_at=0), (1, (3,)), (3, (6,)))
    assert shown(state) == [(1, 2), (3, 5), (1, 3), (3, 6)]
    # another portion of the same exchange
    state = pulled(setting, state, (3, (7,)))
    assert shown(state) == [(1, 2), (1, 3), (3, 6), (3, 7)]


def test_a_share_bounds_who_sends_much() -> None:
    setting, state = ready("defence.share=0.5")
    state = pulled(setting, state, (1, (1, 2, 3, 4, 5, 6)), (2, (7,)), (3, (8, 9)))
    # three of six; four of seven would be more than a half
    assert shown(state) == [(1, 4), (1, 5), (1, 6), (2, 7), (3, 8), (3, 9)]


def test_who_sent_what_follows_a_limited_buffer() -> None:
    setting, state = ready("exchange.buffer=limit", "exchange.buffer_size=3")
    state = pulled(setting, state, (1, (1, 2)), (3, (5,)))
    state = pulled(setting, replace(state, pulled_at=0), (2, (9,)))
    assert shown(state) == [(1, 2), (3, 5), (2, 9)]
    purged = make_setting(small())
    assert shown(pulled(purged, replace(state, pulled_at=0), (1, (4,)))) == [(1, 4)]


WIDE = ("defence.range=1000", "defence.cap=1000", "defence.share=1", "aggregation.clip=1000")


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_defences_that_meet_nothing_change_no_byte(mode: str) -> None:
    plain = played(f"exchange.mode={mode}", "exchange.buffer=keep")
    guarded = played(f"exchange.mode={mode}", "exchange.buffer=keep", "defence.clip=1000", *WIDE)
    for name in ("metrics.jsonl", "costs.json"):
        assert plain.files[name] == guarded.files[name]
    assert torch.equal(plain.params, guarded.params)
