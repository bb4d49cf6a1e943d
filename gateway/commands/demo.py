"""The configuration that `concord up` serves when it is given none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

MODEL = """\
models:
  - id: demo
    name: Demo
    provider: openai_compat
    supports_tools: true
    route:
"""
ROUTE = """\
      - kind: openai_compat
        base_url: http://127.0.0.1:{port}/v1
"""
ELSEWHERE = ("MODELS_CONFIG_PATH", "MODELS_CONFIG", "ROUTING_CONFIG_PATH", "ROUTING_CONFIG")
"""Variables by which an environment puts other files in a folder's place."""
ROUTING = "# Nothing set: every default applies.\n"


def write_demo(folder: Path, ports: Sequence[int]) -> None:
    """Write one model, `demo`, with a route to each engine on this machine."""
    routes = "".join(ROUTE.format(port=port) for port in ports)
    (folder / "models.yaml").write_text(MODEL + routes)
    (folder / "routing.yaml").write_text(ROUTING)


def without_other_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would have other files served than the demo's own."""
    return {name: value for name, value in environ.items() if name not in ELSEWHERE}
