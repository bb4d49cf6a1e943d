"""From a key to its caller: which limits it counts against, and where these are kept together."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.result import KeyRecord, User
from gateway.core.caller import Caller
from gateway.core.limits import Limits, Scope


def caller_of(record: KeyRecord, users: Mapping[str, User], teams: Mapping[str, Limits]) -> Caller:
    """The caller that a key stands for.

    A listed user's team goes before the key's: all keys of a user count in one place. Users and
    teams that are not listed have no limits.
    """
    user = users.get(record.user or "")
    team_id = user.team if user else record.team
    holders = (
        ("key", record.id, record.limits),
        ("user", record.user, user.limits if user else None),
        ("team", team_id, teams.get(team_id or "")),
    )
    scopes = tuple(
        Scope(kind=kind, id=id, limits=limits)
        for kind, id, limits in holders
        if id and limits and not limits.is_empty
    )
    model_scopes = {
        model_id: Scope(kind="model", id=f"{record.id}:{model_id}", limits=limits)
        for model_id, limits in record.model_limits.items()
        if not limits.is_empty
    }
    tag = ""
    if scopes or model_scopes:
        tag = next(f"{kind}:{id}" for kind, id, _ in reversed(holders) if id)
    return Caller(
        id=record.id,
        role=record.role,
        models=record.models,
        scopes=scopes,
        model_scopes=model_scopes,
        limit_tag=tag,
    )
