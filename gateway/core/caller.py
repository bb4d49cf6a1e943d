"""Who asks."""

from __future__ import annotations

from msgspec import Struct

from gateway.core.route import ROLES, Model

UNKNOWN_ADDRESS = "ip:unknown"
"""The id that all anonymous callers share whose address a proxy does not tell."""


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated or anonymous caller.

    `id` is the public id of its key, else `ip:<bucket>`; it may appear in logs. `models` limits
    what the caller may name (public ids), `None` does not.
    """

    id: str
    role: str = "free"
    models: frozenset[str] | None = None

    @property
    def is_admin(self) -> bool:
        """Whether operator surfaces and route pins are open to this caller."""
        return self.role == "admin"

    def may_use(self, model: Model) -> bool:
        """Whether the caller may name this model at all."""
        if ROLES.index(self.role) < ROLES.index(model.required_role):
            return False
        return self.models is None or model.id in self.models
