"""Unsupervised federated learning with device-to-device exchange.

import cfcl
result = cfcl.run(cfcl.load_config("digits"))
embeddings = result.encoder.embed(images)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cfcl.config import Config as Config
    from cfcl.data.fit import load as load_config
    from cfcl.errors import CfclError as CfclError
    from cfcl.runs.folders import load as load_run
    from cfcl.runs.suites import Result as Result
    from cfcl.runs.suites import resume as resume
    from cfcl.runs.suites import simulate as run
    from cfcl.use import load_encoder as load_encoder

# Names load on first use, so that `import cfcl` does not wait for torch.
_HOMES = {
    "CfclError": ("cfcl.errors", "CfclError"),
    "Config": ("cfcl.config", "Config"),
    "Result": ("cfcl.runs.suites", "Result"),
    "load_config": ("cfcl.data.fit", "load"),
    "load_encoder": ("cfcl.use", "load_encoder"),
    "load_run": ("cfcl.runs.folders", "load"),
    "resume": ("cfcl.runs.suites", "resume"),
    "run": ("cfcl.runs.suites", "simulate"),
}

__all__ = ["CfclError", "Config", "Result", "load_config", "load_encoder", "load_run", "resume", "run"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cfcl' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
