"""A process that does one run after another: configs come in as JSON lines, records go out as JSON lines."""

import argparse
import json
import sys
import traceback
from pathlib import Path

from cfcl import config as configs
from cfcl.errors import CfclError
from cfcl.records import Done, Failed, Record, Warned
from cfcl.runs import suites
from cfcl.sim import allocator
from cfcl.sim.workers import end_with


def main() -> None:
    """Entry point: `python -m cfcl.runs.job --parent PID --out FOLDER`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-plots", dest="plots", action="store_false")
    options = parser.parse_args()
    end_with(options.parent)
    allocator.keep_memory()
    try:
        for line in sys.stdin:
            _say(_run(json.loads(line), options))
    except KeyboardInterrupt:  # whoever asked wants no more; what was measured is saved
        sys.exit(130)


def _run(text: str, options: argparse.Namespace) -> Done | Failed:
    """How the run ended."""
    try:
        wanted = configs.parse(text)
        result = suites.simulate(
            wanted, out=options.out, device=options.device, workers=1, plotted=options.plots, watch=_say, note=_warn
        )
        return Done(str(result.folder))
    except CfclError as error:
        return Failed(f"error: {error}")
    except BrokenPipeError:
        raise  # whoever asked is gone
    except Exception as error:
        traceback.print_exc()
        return Failed(f"{type(error).__name__}: {error}")


def _warn(text: str) -> None:
    _say(Warned(text))


def _say(record: Record) -> None:
    print(record.to_line(), flush=True)


if __name__ == "__main__":
    main()
