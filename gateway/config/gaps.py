"""Unset variables in models.yaml: who needs them, and what is served without.

A route is incomplete when it needs an unset variable itself, or inherits one in its model's
address or keys. A list of keys is incomplete only once no key is left in it. An incomplete route
that is `optional` is dropped; any other takes its model along, since the shares of the rest would
not be what the file says.
"""

from __future__ import annotations

from gateway.config.drafts import ModelDraft, RouteDraft, Surroundings
from gateway.config.expand import Missing
from gateway.config.problems import Problems, within
from gateway.config.upstream_keys import text_of

_INHERITED = ("base_url", "api_key", "api_keys")


def drop_incomplete(
    draft: ModelDraft, around: Surroundings, problems: Problems
) -> tuple[RouteDraft, ...]:
    """Report unset variables; return the routes that remain, none when the model goes."""
    name = draft.entry.id if draft.entry else draft.path
    model_goes = f"the model {name!r} is dropped"
    own = [one for one in draft.missing if not _is_inherited(one, draft)]
    for one in own:
        _report(one, model_goes, False, around, problems)
    kept: list[RouteDraft] = []
    lost = bool(own)
    for route in draft.routes:
        optional = route.entry is not None and route.entry.optional
        gaps = [one for one in draft.missing if _concerns(one, draft, route)]
        gaps += route.missing
        fatal = [one for one in gaps if not _leaves_a_key(one, draft, route)]
        for one in gaps:
            effect = model_goes
            if one not in fatal:
                effect = "this key is left out"
            elif optional:
                effect = f"this route of the model {name!r} is dropped"
            _report(one, effect, optional, around, problems)
        if not fatal:
            kept.append(route)
        elif not optional:
            lost = True
    return () if lost else tuple(kept)


def _is_inherited(missing: Missing, draft: ModelDraft) -> bool:
    return any(within(missing.path, f"{draft.path}.{key}") for key in _INHERITED)


def _concerns(missing: Missing, draft: ModelDraft, route: RouteDraft) -> bool:
    """Say whether a route inherits what its model lacks."""
    if within(missing.path, f"{draft.path}.base_url"):
        return "base_url" not in route.tree
    return (
        _is_inherited(missing, draft)
        and "api_key" not in route.tree
        and "api_keys" not in route.tree
    )


def _leaves_a_key(missing: Missing, draft: ModelDraft, route: RouteDraft) -> bool:
    for owner in (draft, route):
        if missing.path.startswith(f"{owner.path}.api_keys["):
            keys = owner.entry.api_keys if owner.entry else None
            return any(text_of(key).strip() for key in keys or ())
    return False


def _report(
    missing: Missing, effect: str, optional: bool, around: Surroundings, problems: Problems
) -> None:
    message = f"the variable {missing.name} is not set"
    if around.serving:
        problems.warning(missing.path, f"{message}: {effect}")
    elif around.allow_missing_env or optional:
        problems.warning(missing.path, message)
    else:
        problems.error(missing.path, message, f"set it, or write ${{{missing.name}:-default}}")
