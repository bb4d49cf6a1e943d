"""What is compared: the gateway as of another commit, and this tree's in several settings."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.bench import machine
from tests.bench.concord import start_concord
from tests.bench.running import Gateway, Running, Setup

BEFORE = "before"
NAMES = (BEFORE, "plain", "plain, traced", "now", "now, traced")
PLAIN = {"affinity": {"enabled": False}, "prefill": {"enabled": False}}
NO_SECTIONS: Mapping[str, Any] = {}
PATIENT = {"socket_timeout_ms": 60_000, "lease_s": 600}
"""A machine that is slow for a moment must not look like a Redis that is away."""


class Variant(Struct, frozen=True):
    """A tree, and the settings that it runs under."""

    name: str
    tree: Path
    sections: Mapping[str, Any] = NO_SECTIONS
    """Of routing.yaml."""
    sampled: float = 0.0
    """The share of requests whose traces are recorded and exported, to an upstream that drops
    them; with 0 there is no tracing."""

    def gateway(self, under: Sequence[str] = ()) -> Gateway:
        """The same, perhaps run by another program, as the rest of the benchmark takes it."""
        return Gateway(self.name, lambda: "", lambda setup: self._start(setup, under), "")

    def _start(self, setup: Setup, under: Sequence[str]) -> AbstractContextManager[Running]:
        env: dict[str, str] = {}
        if self.sampled:
            env = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": setup.upstreams[1],
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": str(self.sampled),
            }
        sections = {"state": PATIENT, **self.sections}
        return start_concord(setup, tree=self.tree, under=under, env=env, **sections)


def variants(before: Path, now: Path, sampled: float) -> list[Variant]:
    """All of them; the first is what the others are compared with."""
    settings = [(before, NO_SECTIONS, 0.0)]
    settings += [(now, some, share) for some in (PLAIN, NO_SECTIONS) for share in (0.0, sampled)]
    return [Variant(name, *rest) for name, rest in zip(NAMES, settings, strict=True)]


def tree_of(commit: str, folder: Path) -> Path:
    """Put the gateway and its scripts, as of a commit, into a folder. Raises `Unfit`."""
    folder.mkdir()
    archive = ["git", "-C", str(machine.ROOT), "archive", commit, "gateway", "lua"]
    try:
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise machine.Unfit(f"cannot take the gateway of {commit} from git: {error}") from error
    return folder
