"""What a device takes in of what neighbours send it, and what of that it holds, if it is on its guard.

It compares with its own candidates of the same exchange, which are in the same form and under the same model.
"""

from collections.abc import Sequence

from torch import Tensor

from cfcl.core import defence
from cfcl.device.state import DeviceState, Setting
from cfcl.exchange.messages import Items


def accepted(setting: Setting, state: DeviceState, items: Sequence[Items]) -> list[Tensor]:
    """The content of each message, without what is out of range, and shortened where it is too long."""
    wanted, contents = setting.config.defence, [item.content for item in items]
    if wanted.range is None and wanted.clip is None:
        return contents
    assert state.candidates is not None
    own = state.candidates.payload
    if wanted.range is not None:
        known = defence.traits(own)
        fits = [defence.within(defence.traits(some), known, slack=wanted.range) for some in contents]
        contents = [some[mask] for some, mask in zip(contents, fits, strict=True)]
    if wanted.clip is not None and not setting.explicit:
        most = wanted.clip * float(defence.lengths(own).quantile(0.5))
        contents = [defence.shortened(some, most) for some in contents]
    return contents


def held(setting: Setting, pulled: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
    """What stays of pulled items and of who sent them."""
    wanted = setting.config.defence
    if wanted.cap is None and wanted.share is None:
        return pulled, sources
    stays = defence.fair(sources, cap=wanted.cap, share=wanted.share)
    return pulled[stays.to(pulled.device)], sources[stays]
