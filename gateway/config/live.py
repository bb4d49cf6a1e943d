"""The configuration of a running replica: where it is read from, also again and again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from gateway.config.load import load
from gateway.config.problems import Problem
from gateway.config.result import Config, Loaded


class Source(Struct, frozen=True, kw_only=True):
    """A folder and all that decides how it reads."""

    folder: Path
    env: Mapping[str, str]
    redis_url: str
    is_public: bool
    """Whether it is served beyond loopback, where callers must be told apart."""

    def read(self) -> Loaded:
        """Read it anew; that it must not be served in public is a problem, too."""
        loaded = load(self.folder, self.env, redis_url=self.redis_url, serving=True)
        config = loaded.config
        if config is None or config.settings.auth == "none" or config.keys is not None:
            return loaded
        if not self.is_public:
            return loaded
        problem = Problem(
            severity="error",
            file="keys.yaml",
            path="",
            message="without it requests are anonymous, which is for loopback only, not for --host",
            hint="add keys.yaml, or say `auth: none` in routing.yaml",
        )
        return structs.replace(loaded, config=None, problems=(*loaded.problems, problem))


def keep_what_needs_restart(config: Config, running: Config) -> tuple[Config, tuple[str, ...]]:
    """Leave as they run the settings that connections and leases were made with.

    Returns the configuration to serve, and the paths that differ and wait for a restart.
    """
    if config.settings.state == running.settings.state:
        return config, ()
    names = structs.fields(config.settings.state)
    waiting = tuple(
        f"state.{field.name}"
        for field in names
        if getattr(config.settings.state, field.name) != getattr(running.settings.state, field.name)
    )
    settings = structs.replace(config.settings, state=running.settings.state)
    return structs.replace(config, settings=settings), waiting
