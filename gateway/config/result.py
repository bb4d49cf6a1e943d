"""What loading a configuration comes to. Plain values; nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.config.problems import Problem
from gateway.config.quota_schema import QuotaFetcher
from gateway.config.schema import Role, Settings
from gateway.core.limits import Limits
from gateway.core.route import Model, Route

UNLIMITED = Limits()


class KeyRecord(Struct, frozen=True, kw_only=True):
    """A caller's key, known by the SHA-256 of its secret (lower-case hex)."""

    id: str
    key_sha256: str
    role: Role = "free"
    models: frozenset[str] | None = None
    """Public model ids, aliases resolved; `None` is no restriction."""
    user: str | None = None
    team: str | None = None
    """As written; a user's team goes before it."""
    limits: Limits = UNLIMITED
    model_limits: Mapping[str, Limits] = {}
    """By public model id."""
    expires_ms: int | None = None
    """Unix time from which on the key is refused."""


class User(Struct, frozen=True, kw_only=True):
    """Somebody whose keys share limits."""

    team: str | None = None
    limits: Limits = UNLIMITED


class Config(Struct, frozen=True, kw_only=True):
    """A configuration that can be served."""

    models: Mapping[str, Model]
    """By id, in the order of the file."""
    names: Mapping[str, str]
    """Every id and alias -> id."""
    settings: Settings
    quota_fetchers: Mapping[str, QuotaFetcher] = {}
    """By provider."""
    keys: tuple[KeyRecord, ...] | None = None
    """`None` when there is no keys.yaml: requests are anonymous then."""
    users: Mapping[str, User] = {}
    """By id, those of keys.yaml."""
    teams: Mapping[str, Limits] = {}
    admin_key_sha256: str | None = None
    secret: str | None = None
    """What ids are keyed with before they enter Redis."""
    host_id: str = ""
    """Tells engines on this host from others', where Redis may be shared by several hosts."""
    digest: str
    """Equal on replicas with equal files and settings; says nothing of secrets."""

    @property
    def routes(self) -> list[Route]:
        """Those of all models."""
        return [route for model in self.models.values() for route in model.routes]

    def __repr__(self) -> str:
        """Name the configuration without its secrets."""
        return f"Config({self.digest}, models={list(self.models)})"


class Loaded(Struct, frozen=True, kw_only=True):
    """A configuration, unless a problem is an error, with everything found on the way."""

    config: Config | None
    problems: tuple[Problem, ...]
    models: int
    """How many models the files declare, served or not."""
    routes: int

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the configuration from being served."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems to be logged when it is served."""
        return tuple(problem for problem in self.problems if problem.severity == "warning")
