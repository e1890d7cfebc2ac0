"""What all exchanges of a run would bring, without training: method `cover` in mode `explicit` asks no model.

    python benchmarks/exchanges.py

USPS, validation images left out, seeds 120 and 121, on which nothing is reported. Fixed and adaptive budgets, and
reserves that are chosen anew among all that a receiver holds, its own points and what it has pulled, and pushed again.
*New*: items of a label that the receiver lacks. *Kinds*: the exponential of the entropy of their labels, per receiver.
Labels are asked here only.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from cfcl import config as configs
from cfcl import device
from cfcl.core.metrics import effective_number
from cfcl.device import Answer
from cfcl.device.transmitter import pixels
from cfcl.exchange import checks
from cfcl.exchange.messages import DataReserve
from cfcl.exchange.policies import Randomness
from cfcl.protocol.link import Counted, Direct
from cfcl.protocol.parties import Parties, together
from cfcl.protocol.phases import Deliver, Push, Request
from cfcl.protocol.steps import play
from cfcl.sim import world
from cfcl.sim.world import World, single_thread

COMMON = ("partition.kind=common", "partition.points_per_device=360")
DATA = {"80 % common": COMMON, "90 % common": (*COMMON, "partition.main_share=0.9"), "own kinds": ()}
SEEDS = (120, 121)
ADAPTIVE = "exchange.budget=adaptive"
CASES: list[tuple[str, int, tuple[str, ...], int]] = [
    *(("80 % common", n, some, 0) for n in (1, 2, 5) for some in ((), (ADAPTIVE,))),
    *((name, 2, some, 0) for name in ("90 % common", "own kinds") for some in ((), (ADAPTIVE,))),
    *(("80 % common", 2, some, every) for every in (1, 6, 12) for some in ((), (ADAPTIVE,))),
]
"""Data, items per link, further settings, and exchanges after which reserves are chosen anew; 0: never."""


class Brought(NamedTuple):
    """What the exchanges of a run have brought, over all devices."""

    items: float
    new: float
    kinds: float
    megabytes: float


def push_held(scene: World, host: Parties, link: Counted, step: int) -> None:
    """Every device pushes a reserve of what it holds."""
    setting, size = scene.setting, scene.config.exchange.num_reserve
    for i, state in host.devices.items():
        held = torch.cat([state.points.all(), state.pulled])
        draws = Randomness(scene.config.seed, i, step)
        chosen = checks.offer(setting.policy, pixels(held), size, scene.config.exchange, draws)
        radii = checks.measure(setting.policy, pixels(held), pixels(held[chosen]), scene.config.exchange)
        pushed = DataReserve(i, i, step, held[chosen], radii)
        for message in link.carry(DataReserve, [replace(pushed, target=j) for j in scene.graph.neighbours(i)], {}):
            host.devices[message.target] = device.store(host.devices[message.target], message)  # type: ignore[arg-type]


def exchanged(settings: Sequence[str], every: int) -> Brought:
    """All exchanges of a run with `settings`."""
    scene = world.build(configs.load("usps", ["data.validation=0.1", "exchange.method=cover", *settings]))
    labels, images = scene.dataset.train_labels, scene.dataset.train_images
    assert labels is not None
    held = [labels[part] for part in scene.parts]
    (host,) = together(
        scene.rules, [device.start(scene.setting, i, images, part) for i, part in enumerate(scene.parts)]
    )
    ledger = scene.ledger()
    link = Counted(Direct(), ledger)
    got: list[list[Tensor]] = [[labels[:0]] for _ in held]
    play(Push(), [host], link, 0)
    for number, step in enumerate(scene.setting.schedule.exchange_steps):
        if number and every and number % every == 0:
            push_held(scene, host, link, step)
        play(Request(), [host], link, step)
        for reply in play(Deliver(), [host], link, step).sent[0].reports:
            assert isinstance(reply, Answer)
            got[reply.items.target].append(held[reply.items.source][reply.positions])
    pulled = [torch.cat(some) for some in got]
    new = [some[~torch.isin(some, own)] for some, own in zip(pulled, held, strict=True)]
    kinds = [effective_number(torch.bincount(some).double() / len(some)) for some in new]
    spent = ledger.totals()
    return Brought(
        sum(map(len, pulled)),
        sum(map(len, new)),
        float(torch.stack(kinds).mean()),
        (spent["bytes_push"] + spent["bytes_pull"]) / 1e6,
    )


def main() -> None:
    print("| data | items per link | budget | reserves chosen anew | items | new | kinds | MB between devices |")
    print("|" + "---|" * 8)
    for data, number, further, every in CASES:
        with single_thread():
            runs = [
                exchanged([f"seed={seed}", f"exchange.num_pulled={number}", *DATA[data], *further], every)
                for seed in SEEDS
            ]
        items, new, kinds, megabytes = (sum(column) / len(runs) for column in zip(*runs, strict=True))
        budget = "adaptive" if further else "fixed"
        again = f"after {every}" if every else "never"
        print(f"| {data} | {number} | {budget} | {again} | {items:,.0f} | {new:,.0f} | {kinds:.2f} | {megabytes:.2f} |")


if __name__ == "__main__":
    main()
