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
        if not (self.is_public and _is_open(loaded.config)):
            return loaded
        return _refused(
            loaded,
            "without it requests are anonymous, which is for loopback only, not for --host",
            "add keys.yaml, or say `auth: none` in routing.yaml",
        )

    def read_again(self, running: Config) -> Loaded:
        """Read what is to take the running one's place, whose doors no lost file may open."""
        loaded = self.read()
        asks_for_keys = running.settings.auth == "keys" and running.keys is not None
        if not (asks_for_keys and _is_open(loaded.config)):
            return loaded
        return _refused(
            loaded,
            "is gone, and without it requests are anonymous",
            "put it back, or say `auth: none` in routing.yaml",
        )


def _is_open(config: Config | None) -> bool:
    """Whether requests are anonymous although nobody has said so."""
    return config is not None and config.settings.auth == "keys" and config.keys is None


def _refused(loaded: Loaded, message: str, hint: str) -> Loaded:
    problem = Problem(severity="error", file="keys.yaml", path="", message=message, hint=hint)
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
