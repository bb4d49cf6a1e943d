"""The shape of keys.yaml. The field docs become the reference in config/README.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.config.limit_schema import MODE, ZERO, Count, CountLimit, Mode, RateLimit
from gateway.config.schema import Role

_NAME = {"form": "1 to 128 of A-Z a-z 0-9 . _ @ / -"}
_DURATION = {
    "form": "a whole number and s, m, h or d, such as 30d",
    "null_means": "",
}
_DATE = {"form": "a date with a time and an offset, such as 2027-01-31T00:00:00Z"}
Dollars = Annotated[float, Meta(ge=0.000_001, le=1_000_000)]
"""In billionths, the sum of two such is exact in Lua."""
HOLDER_ID = r"^[A-Za-z0-9._@/-]{1,128}\Z"
HolderId = Annotated[str, Meta(pattern=HOLDER_ID, extra=_NAME)]


class MoneyLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A budget that says more than its number."""

    limit: Annotated[Dollars, Meta(description="US dollars.", extra=ZERO)]
    mode: Annotated[Mode, MODE] = "enforce"


class Limited(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits: a number, or `{limit: number, mode: shadow}` to see what it would refuse."""

    rpm: Annotated[
        Count | RateLimit | None, Meta(description="Requests per minute.", extra=ZERO)
    ] = None
    tpm: Annotated[
        Count | RateLimit | None,
        Meta(description="Tokens per minute, of prompts and of answers.", extra=ZERO),
    ] = None
    max_parallel_requests: Annotated[
        Count | CountLimit | None, Meta(description="Requests at a time.", extra=ZERO)
    ] = None
    max_budget: Annotated[
        Dollars | MoneyLimit | None,
        Meta(description="US dollars per budget_duration.", extra=ZERO),
    ] = None
    budget_duration: Annotated[
        Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,8}[smhd]\Z")] | None,
        Meta(
            description="After how long the budget is whole again: 30s, 1h, 30d. Never by default, "
            "or with null.",
            extra=_DURATION,
        ),
    ] = None


class KeyRules(Limited, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key says of its caller, in keys.yaml and under /admin/keys."""

    id: Annotated[
        HolderId, Meta(description="Public name of the caller; appears in logs and limits.")
    ]
    role: Annotated[Role, Meta(description="free, pro, internal or admin.")] = "free"
    models: Annotated[
        tuple[str, ...] | None,
        Meta(description="Ids or aliases the caller may name; all of its role's without."),
    ] = None
    user: Annotated[HolderId | None, Meta(description="Id of an entry of users.")] = None
    team: Annotated[
        HolderId | None, Meta(description="Id of an entry of teams (default: the user's).")
    ] = None
    model_limits: Annotated[
        dict[str, Any] | None,
        Meta(description="Id or alias of a model -> limits of this key on it, beside its others."),
    ] = None
    expires: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="When the key stops being valid: 2027-01-31T00:00:00Z.", extra=_DATE),
    ] = None


class KeyEntry(KeyRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One caller's key."""

    key: Annotated[
        str | None, Meta(description="The secret, best as `${VARIABLE}`. Or give key_sha256.")
    ] = None
    key_sha256: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}\Z", extra={"form": "64 hex digits"})] | None,
        Meta(description="SHA-256 of the secret in hex, so that the file holds no secret."),
    ] = None


class UserEntry(Limited, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody whose keys share limits."""

    id: Annotated[HolderId, Meta(description="Public name of the user.")]
    team: Annotated[HolderId | None, Meta(description="Id of the one team, if any.")] = None


class TeamEntry(Limited, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Users and keys that share limits."""

    id: Annotated[HolderId, Meta(description="Public name of the team.")]


class KeysFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """keys.yaml."""

    keys: Annotated[tuple[KeyEntry, ...], Meta(description="One entry per key.")]
    users: Annotated[tuple[UserEntry, ...], Meta(description="One entry per user.")] = ()
    teams: Annotated[tuple[TeamEntry, ...], Meta(description="One entry per team.")] = ()
