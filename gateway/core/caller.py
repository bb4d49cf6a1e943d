"""Who asks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from gateway.core.limits import Scope
from gateway.core.route import ROLES, Model

UNKNOWN_ADDRESS = "ip:unknown"
"""The id that all anonymous callers share whose address a proxy does not tell."""
_NONE: Mapping[str, Scope] = MappingProxyType({})


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated or anonymous caller.

    `id` is the public id of its key, else `ip:<bucket>`; it may appear in logs. `models` limits
    what the caller may name (public ids), `None` does not.
    """

    id: str
    role: str = "free"
    models: frozenset[str] | None = None
    scopes: tuple[Scope, ...] = ()
    """The limited ones of its key, its user and its team, in this order."""
    model_scopes: Mapping[str, Scope] = _NONE
    """Model id -> the key's limits on that model."""
    limit_tag: str = ""
    """`team:<id>`, `user:<id>` or `key:<id>`: the outermost holder the key belongs to, limited or
    not, so that setting limits moves no counters. Empty when nothing is limited."""

    @property
    def is_admin(self) -> bool:
        """Whether operator surfaces and route pins are open to this caller."""
        return self.role == "admin"

    def may_use(self, model: Model) -> bool:
        """Whether the caller may name this model at all."""
        if ROLES.index(self.role) < ROLES.index(model.required_role):
            return False
        return self.models is None or model.id in self.models

    def scopes_for(self, model_id: str) -> tuple[Scope, ...]:
        """All that a request for this model counts against; the key's own limit on it last."""
        own = self.model_scopes.get(model_id)
        return (*self.scopes, own) if own else self.scopes
