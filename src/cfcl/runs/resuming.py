"""Going on with a run: which folder, from which checkpoint, and whether it is still the same run."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.protocol import snapshot
from cfcl.protocol.snapshot import Tree
from cfcl.records import Record
from cfcl.runs import checkpoints, folders
from cfcl.runs.checkpoints import Note
from cfcl.runs.folders import Writer
from cfcl.sim.simulation import Simulation, Snapshot

FORMAT = 3
"""Of checkpoints: to be raised when a run's state changes its form."""
EMPTY = hashlib.sha256().hexdigest()


def save(simulation: Simulation, writer: Writer, found: Snapshot) -> None:
    """Write a checkpoint; the records before it are on disk first."""
    size, digest = writer.position()
    about = {**_about(simulation, writer), "records": size, "records_digest": digest}
    checkpoints.write(writer.partial, found.step, snapshot.encode({**found.tree, "about": about}))


def opened(config: Config, out: Path, note: Note, *, anew: bool) -> Writer:
    """A new folder below `out`, unless an unfinished one of the same run is there, or `out` is one."""
    if out.name.endswith(folders.PARTIAL):
        return Writer.reopen(out)
    # Of objects that were handed over nobody knows whether they are the same again.
    found = None if anew else Writer.find(config, out)
    if found is not None:
        note(f"going on with the unfinished run of the same settings in {str(found.partial)!r}")
    return found or Writer.begin(config, out)


def known(simulation: Simulation, writer: Writer, note: Note) -> tuple[tuple[Record, ...], Tree | None]:
    """The records up to the newest checkpoint that is whole, and the checkpoint; nothing if there is none."""
    now = _about(simulation, writer)
    for file, data in checkpoints.readable(writer.partial, note):
        try:
            tree = snapshot.decode(data)
            about = _told(tree, now)
            _refuse_change(about, now)
            simulation.check(tree)
            if tree["step"] != checkpoints.step_of(file):
                raise ValueError(f"it is of step {tree['step']}")
            return writer.keep(about["records"], about["records_digest"], step=tree["step"]), tree
        except ValueError as error:
            reason = " ".join(str(error).split())
            note(f"checkpoint {file.name} cannot be used ({reason}): the one before it is tried")
    if checkpoints.files(writer.partial):
        raise CfclError(
            f"no checkpoint in {str(writer.partial)!r} can be used: remove that folder, and run it from the start"
        )
    return writer.keep(0, EMPTY, step=0), None


def _about(simulation: Simulation, writer: Writer) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    return {
        "format": FORMAT,
        "numerics": configs.NUMERICS,
        "config": configs.to_toml(writer.config),
        **simulation.world.fingerprints,
    }


def _told(tree: Tree, now: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says that it is of, in this version's form; ValueError if it does not."""
    about = tree.get("about")
    for name in ("format", "numerics"):
        if not isinstance(about, dict) or type(about.get(name)) is not int:
            raise ValueError(f"it does not tell its {name}")
        if about[name] != now[name]:
            raise CfclError(
                f"the checkpoint is of {name} {about[name]!r:.20}, and this version of cfcl has {now[name]}: use the "
                "version that began the run, or remove its folder and run it from the start"
            )
    assert isinstance(about, dict)
    for name, like in {**now, "records": 0, "records_digest": ""}.items():
        if type(about.get(name)) is not type(like):
            raise ValueError(f"it does not tell its {name}")
    return about


def _refuse_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with anything but what the run began with."""
    began, wanted = (configs.parse(about["config"], source="the checkpoint") for about in (before, now))
    if changed := folders.differing(began, wanted):
        raise CfclError(f"the run began with other settings ({', '.join(changed)}): undo the change of its config.toml")
    for name in now:
        if name != "config" and before[name] != now[name]:
            raise CfclError(
                f"{name} is not what the run began with: restore it (a dataset, module or loss given in Python "
                "must be given again), or remove the folder and run it from the start"
            )
