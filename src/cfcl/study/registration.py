"""What a study will do, written down and committed before its first run."""

import hashlib
import json
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

from cfcl import reading
from cfcl.config import NUMERICS
from cfcl.errors import CfclError
from cfcl.files import write_atomically
from cfcl.study import claims, plan
from cfcl.study.figures import FIGURES
from cfcl.study.profiles import PROFILES

HEAD = """\
# What this study does, settled before its first run. Claims, their measures and sizes are in the file of claims, named
# here by its checksum; runs are named by the digest of their settings. Written by `cfcl reproduce --registered FILE`,
# which afterwards refuses to run anything else.
"""


def text(profile_name: str) -> str:
    """The plan of a profile, as TOML."""
    profile = PROFILES[profile_name]
    figures = [name for name, figure in FIGURES.items() if figure.seeds(profile)]
    runs = plan.plan(profile, figures)
    scales, sentences = claims.load()
    parts = [
        HEAD,
        _lines(
            profile=profile_name,
            numerics=NUMERICS,
            claims_sha256=_sum(resources.files("cfcl.study").joinpath("claims.toml").read_text(encoding="utf-8")),
            claims=[claim.id for claim in sentences],
            pilot=profile.pilot,
            runs=len({cell.digest for cell, _ in runs}),
            runs_sha256=_sum("\n".join(sorted({cell.digest for cell, _ in runs}))),
        ),
        "\n# The smallest size worth naming, by measure.\n[sizes]\n",
        "".join(f"{name} = {scale.negligible} # {scale.unit}\n" for name, scale in scales.items()),
    ]
    for name, panel in profile.panels.items():
        head = {"preset": panel.preset, "changes": list(panel.changes), "methods": list(panel.methods)}
        steps = {} if panel.steps is None else {"steps": panel.steps}
        parts.append(f"\n[panels.{name}]\n{_lines(**head, **steps)}")
    for name in figures:
        seeds = {panel: list(FIGURES[name].seeds_of(profile, panel)) for panel in FIGURES[name].panels(profile)}
        spans = {panel: f"{some[0]}-{some[-1]}" for panel, some in seeds.items()}
        parts.append(f"\n[seeds.{name}]\n{_lines(**spans)}")
    return "".join(parts)


def check(file: Path, profile_name: str) -> dict[str, str]:
    """Its checksum and commit, if `file` has the plan of this profile and is committed; else it is refused.

    A file that is not there is written first.
    """
    wanted = text(profile_name)
    if not reading.exists(file):
        write_atomically(file, wanted.encode())
        raise CfclError(f"{str(file)!r} did not exist and has been written: commit it, and give the same command again")
    if reading.text(file) != wanted:
        raise CfclError(
            f"{str(file)!r} registers another study than profile {profile_name!r} of this cfcl: use the version that "
            "wrote it, or register the new study under another name before its first run"
        )
    return {"sha256": _sum(wanted), "commit": _commit(file)}


def _commit(file: Path) -> str:
    """The commit that last changed `file`."""
    place = file.resolve()
    changed = _git(place, "status", "--porcelain", "--", place.name)
    if changed or not (found := _git(place, "log", "-1", "--format=%H", "--", place.name)):
        raise CfclError(f"{str(file)!r} is not committed, so nothing shows when it was settled: commit it first")
    return found


def _git(place: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=place.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CfclError(
            f"{str(place)!r} is in no git repository that can be asked ({type(error).__name__}): register a study "
            "where its date can be seen"
        ) from None
    return done.stdout.strip()


def _lines(**values: Any) -> str:
    # JSON's strings, numbers and lists are TOML's, too.
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _sum(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
