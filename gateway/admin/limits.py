"""How much of limits is taken, of callers and of endpoints, and when they are whole again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from gateway.admin.keys import CallerKeys
from gateway.auth.holders import caller_of
from gateway.config.limits import NANO_USD
from gateway.config.result import Config
from gateway.core.limits import EndpointLimits, Limit, Scope
from gateway.state.caller_store import CallerStore, scope_name
from gateway.state.standing import Use


class LimitUse(Struct, frozen=True, kw_only=True):
    """One limit: numbers are requests, tokens, requests at a time, or US dollars."""

    limit: str
    """As the configuration calls it."""
    mode: str
    most: float
    taken: float
    """With what is reserved for requests under way."""
    left: float
    reset_s: float | None
    """In how long it is whole again; `None` when it is, or when that cannot be told."""
    would_have_refused: int
    """Requests, in mode shadow."""


class CallerLimitUse(LimitUse, frozen=True, kw_only=True):
    """One limit of a caller's."""

    scope: str
    """`key:<id>`, `user:<id>`, `team:<id>` or `model:<key id>:<model>`."""


class CallerUse(Struct, frozen=True, kw_only=True):
    """All limits that a key's requests count against."""

    caller: str
    tag: str
    """Whose requests are counted in one place; empty without limits."""
    under_way: int
    """How many of these requests there are now."""
    limits: list[CallerLimitUse]


class CallerUses:
    """Reads under one configuration."""

    def __init__(self, config: Config, keys: CallerKeys, store: CallerStore) -> None:
        self._config = config
        self._keys = keys
        self._store = store
        self._window_ms = round(config.settings.limits.window_seconds * 1000)

    async def of(self, key_id: str) -> CallerUse:
        """One key's. Raises `NoSuchKey`."""
        record = await self._keys.record(key_id)
        caller = caller_of(record, self._config.users, self._config.teams)
        scopes = (*caller.scopes, *caller.model_scopes.values())
        if not scopes:
            return CallerUse(caller=key_id, tag="", under_way=0, limits=[])
        tag = caller.limit_tag
        await self._store.reap(tag)  # places of the dead are nobody's
        under_way, uses = await self._store.uses(tag, scopes, window_ms=self._window_ms)
        by_name = {scope_name(scope): scope for scope in scopes}
        shown = [_of_caller(use, by_name[use.scope]) for use in uses]
        return CallerUse(caller=key_id, tag=tag, under_way=under_way, limits=shown)


def uses_of(limits: EndpointLimits, uses: Sequence[Use]) -> list[LimitUse]:
    """An endpoint's."""
    return [_shown(use, getattr(limits, use.limit)) for use in uses]


def _of_caller(use: Use, scope: Scope) -> CallerLimitUse:
    shown = _shown(use, getattr(scope.limits, use.limit))
    return CallerLimitUse(scope=f"{scope.kind}:{scope.id}", **structs.asdict(shown))


def _shown(use: Use, limit: Limit) -> LimitUse:
    unit = NANO_USD if use.limit == "max_budget" else 1
    return LimitUse(
        limit=use.limit,
        mode="shadow" if limit.is_shadow else "enforce",
        most=limit.most / unit,
        taken=use.taken / unit,
        left=max(limit.most - use.taken, 0) / unit,
        reset_s=use.reset_ms / 1000 if use.reset_ms else None,
        would_have_refused=use.would_have_refused,
    )
