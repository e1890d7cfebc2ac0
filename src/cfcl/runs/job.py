"""A process that does one run after another: configs come in as JSON lines, records go out as JSON lines."""

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from cfcl import config as configs
from cfcl.errors import CfclError
from cfcl.runs import suites


def main() -> None:
    """Entry point: `python -m cfcl.runs.job --out FOLDER`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-plots", dest="plots", action="store_false")
    options = parser.parse_args()
    for line in sys.stdin:
        _say(_run(json.loads(line), options))


def _run(text: str, options: argparse.Namespace) -> dict[str, Any]:
    """How the run ended, as a record."""
    try:
        wanted = configs.parse(text)
        result = suites.simulate(
            wanted, out=options.out, device=options.device, workers=1, plotted=options.plots, watch=_say
        )
        return {"kind": "done", "folder": str(result.folder)}
    except CfclError as error:
        return {"kind": "failed", "error": f"error: {error}"}
    except BrokenPipeError:
        raise  # whoever asked is gone
    except Exception as error:
        traceback.print_exc()
        return {"kind": "failed", "error": f"{type(error).__name__}: {error}"}


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
