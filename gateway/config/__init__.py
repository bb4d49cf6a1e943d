"""Configuration: files to values, with every problem reported at once.

`load` reads a folder; `Config` is what the rest of the gateway takes. Nothing here knows Redis,
HTTP or a routing strategy.
"""

from gateway.config.load import environment, load
from gateway.config.problems import Problem
from gateway.config.result import Config, KeyRecord, Loaded
from gateway.config.schema import (
    Affinity,
    Circuit,
    Prefill,
    Server,
    Settings,
    State,
)

__all__ = [
    "Affinity",
    "Circuit",
    "Config",
    "KeyRecord",
    "Loaded",
    "Prefill",
    "Problem",
    "Server",
    "Settings",
    "State",
    "environment",
    "load",
]
