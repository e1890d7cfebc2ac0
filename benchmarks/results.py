"""Where benchmarks keep what they found: dated files with machine, versions and command."""

import json
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def keep(name: str, found: dict[str, Any]) -> Path:
    """Write `found` beside what it was measured on."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
    record = {
        "command": f"python {' '.join(sys.argv)}",
        "processor": _processor(),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in ("cfcl", "torch", "numpy")},
        "found": found,
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        flags = next(line for line in lines if line.startswith("flags")).split()
        best = next((flag for flag in ("avx512f", "avx2", "avx") if flag in flags), "no vectors")
        return f"{model}, {best}"
    except (OSError, StopIteration):
        return platform.processor()
