"""Simulated engines that come with a configuration: `engines.yaml` beside its other files.

`concord up` starts them; no other command reads the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from gateway.commands.cluster import CannotStart
from gateway.commands.ports import HIGHEST
from gateway.config.problems import Problems
from gateway.config.source import parse_yaml
from gateway.config.validate import read

ENGINES_FILE = "engines.yaml"
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class Engine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of them. What is not given is as `concord engine` has it."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]+$")]
    port: Annotated[int, Meta(ge=1, le=HIGHEST)]
    ttft_ms: Amount | None = None
    prefill_tokens_per_s: Amount | None = None
    tokens_per_s: Amount | None = None
    slots: Annotated[int, Meta(ge=0)] | None = None
    output_tokens: Annotated[int, Meta(ge=0)] | None = None

    def command(self) -> list[str]:
        """The arguments that start it."""
        given = {name: value for name, value in structs.asdict(self).items() if value is not None}
        return ["engine", *(f"--{name.replace('_', '-')}={value}" for name, value in given.items())]


class EnginesFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """engines.yaml."""

    engines: tuple[Engine, ...]


def read_engines(folder: Path) -> Sequence[Engine]:
    """The engines of a folder, none where it has no such file. Raises `CannotStart`."""
    path = folder / ENGINES_FILE
    if not path.is_file():
        return ()
    problems = Problems(ENGINES_FILE)
    tree = parse_yaml(path.read_text("utf-8"), problems)
    found = read(tree, EnginesFile, "", problems) if tree is not None else None
    if problems.found or found is None:
        raise CannotStart("\n".join([f"{path} cannot be used", *map(str, problems.found)]))
    return found.engines
