"""Parties that share nothing: each has its own data, setting and encoder, and only bytes pass between them."""

from cfcl import device
from cfcl.config import Config
from cfcl.protocol import faults
from cfcl.protocol.link import Bytes, Counted
from cfcl.protocol.parties import Parties, Run, start_server
from cfcl.protocol.steps import plainly, play, rounds
from cfcl.sim import attacks, world
from cfcl.sim.world import single_thread


def play_isolated(config: Config) -> Run:
    """A whole run, without records."""
    scenes = [world.build(config) for _ in range(config.partition.num_devices + 1)]
    homes = [
        Parties(scene.rules, {i: device.start(scene.setting, i, scene.dataset.train_images, scene.parts[i])})
        for i, scene in enumerate(scenes[1:])
    ]
    server = Parties(scenes[0].rules, {}, start_server(scenes[0].rules, range(len(homes))))
    run = Run(0, [server, *homes], scenes[0].ledger())
    link = faults.around(Counted(Bytes(), run.ledger), scenes[0].rules, run.faults)
    send = attacks.build(scenes[0].setting).around(plainly)
    with single_thread():
        while run.step <= config.train.steps:
            for item in rounds(scenes[0].rules, run.step):
                for phase in item.phases:
                    refusals = play(phase, run.hosts, link, run.step, send).refusals
                    assert config.faults.active or refusals == []
                if item.charged(config.cost):
                    run.ledger.settle()
                if item.name == "update":
                    run.ledger.charge_step()
            run.step += 1
    return run
