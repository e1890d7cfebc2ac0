"""How often a vector of one image leaves its device, at most: what an accountant of privacy counts."""

from typing import NamedTuple

from cfcl import device
from cfcl.protocol.parties import Rules


class Releases(NamedTuple):
    """Vectors of one image that leave its device over a run."""

    pulled: int
    """In answers to pulls: one per exchange, since all neighbours get the same noise."""
    pushed: int
    """In reserves."""


def most(rules: Rules) -> Releases:
    """The largest numbers that the schedule of an exchange allows, as if one image were chosen every time."""
    setting = rules.setting
    views = 1 if setting.layer is None else 2
    sizes: dict[int, set[int]] = {}
    for transmitter, receiver in rules.graph.links:
        if size := device.reserve_due(setting, transmitter, receiver):
            sizes.setdefault(receiver, set()).add(size)
    reserves = max(map(len, sizes.values()), default=0)  # reserves of other sizes have noise of their own
    pulls = [step for step in setting.schedule.pull_steps if rules.anyone_pulls(step)]
    return Releases(views * len(pulls), views * reserves * len(setting.schedule.push_steps))
