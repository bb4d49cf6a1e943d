"""Environment variables that override routing.yaml, named as HybridInference names them.

A value that does not parse, or lies outside its bounds, is a warning; what the file says stays.
An empty variable counts as unset. Variables of features this version lacks are checked alike, so
that a mistake shows before the feature comes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.config.durations import YEAR_S, Seconds
from gateway.config.problems import Problems
from gateway.config.schema import RoutingFile, TimeoutOverrides

T = TypeVar("T", bound=Struct)

_SECTIONS = (
    ("CIRCUIT_FAILURE_THRESHOLD", "circuit", "failure_threshold"),
    ("CIRCUIT_COOLDOWN_SECONDS", "circuit", "cooldown_seconds"),
    ("CIRCUIT_MIN_AVAILABILITY", "circuit", "min_availability"),
    ("ROUTER_HEALTH_EWMA_ALPHA", "circuit", "ewma_alpha"),
    ("ROUTING_AFFINITY_ENABLED", "affinity", "enabled"),
    ("ROUTING_AFFINITY_MAX_AGE_SEC", "affinity", "max_age_seconds"),
    ("ROUTING_PREFILL_AWARE_ENABLED", "prefill", "enabled"),
    ("ROUTING_PREFILL_INTERVENE_TOKENS", "prefill", "intervene_tokens"),
    ("ROUTING_PREFILL_ELEPHANT_TOKENS", "prefill", "elephant_tokens"),
    ("ROUTING_PREFILL_ELEPHANT_LIMIT", "prefill", "elephant_limit"),
    ("ROUTING_PREFILL_AFFINITY_CEILING", "prefill", "affinity_ceiling"),
    ("ROUTING_PREFILL_HINT_TTL_SEC", "prefill", "hint_ttl_seconds"),
    ("ROUTING_PRIORITY_INTERACTIVE", "priorities", "interactive"),
    ("ROUTING_PRIORITY_LARGE", "priorities", "large"),
    ("ROUTING_PRIORITY_ELEPHANT", "priorities", "elephant"),
    ("UPSTREAM_CONCURRENCY_ENABLED", "upstream_concurrency", "enabled"),
    ("UPSTREAM_CONCURRENCY_INITIAL_LIMIT", "upstream_concurrency", "initial"),
    ("UPSTREAM_CONCURRENCY_MAX_LIMIT", "upstream_concurrency", "max"),
    ("UPSTREAM_CONCURRENCY_PROBE_SUCCESS_INTERVAL", "upstream_concurrency", "success_interval"),
    ("UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC", "upstream_concurrency", "acquire_timeout"),
)

_TIMEOUTS = (
    ("UPSTREAM_COMPLETION_TIMEOUT_S", "total"),
    ("STREAM_IDLE_TIMEOUT_SECONDS", "idle"),
    ("STREAM_FIRST_BYTE_TIMEOUT_SECONDS", "first_byte"),
)

_Positive = Annotated[int, Meta(ge=1)]
_Timeout = Annotated[float, Meta(le=YEAR_S)]
"""Below 0 it is off, as 0 is."""

_CHECKED_ONLY: tuple[tuple[str, Any], ...] = (
    ("STREAM_MAX_IDLE_S", Seconds),
    ("STREAM_MAX_FIRST_FRAME_IDLE_S", Seconds),
    ("REQUEST_TIMEOUT_SECONDS", Seconds),
    ("STREAM_REQUEST_TIMEOUT_SECONDS", _Timeout),
    ("WEB_CONCURRENCY", _Positive),
    ("UVICORN_WORKERS", _Positive),
    ("GUNICORN_WORKERS", _Positive),
    ("DB_ENABLED", bool),
)

_FLAGS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def apply_environment(file: RoutingFile, env: Mapping[str, str], problems: Problems) -> RoutingFile:
    """Return the file's content with the environment's overrides put in."""
    priorities = _override(file.prefill.priorities, "priorities", env, problems)
    prefill = _override(file.prefill, "prefill", env, problems)
    for name, kind in _CHECKED_ONLY:
        _value(name, kind, env, problems)
    return msgspec.structs.replace(
        file,
        circuit=_override(file.circuit, "circuit", env, problems),
        affinity=_override(file.affinity, "affinity", env, problems),
        prefill=msgspec.structs.replace(prefill, priorities=priorities),
        upstream_concurrency=_override(
            file.upstream_concurrency, "upstream_concurrency", env, problems
        ),
        timeouts=_override_timeouts(file.timeouts, env, problems),
        auth=_auth(file, env, problems),
    )


def wants_routewise(env: Mapping[str, str], problems: Problems) -> bool:
    """Say whether ENABLE_ROUTEWISE asks for RouteWise as the default strategy."""
    return _value("ENABLE_ROUTEWISE", bool, env, problems) is True


def _override(section: T, name: str, env: Mapping[str, str], problems: Problems) -> T:
    types = {info.name: info.type for info in msgspec.structs.fields(section)}
    given = {
        field: _value(variable, types[field], env, problems)
        for variable, owner, field in _SECTIONS
        if owner == name
    }
    return msgspec.structs.replace(
        section, **{field: value for field, value in given.items() if value is not None}
    )


def _override_timeouts(
    timeouts: TimeoutOverrides, env: Mapping[str, str], problems: Problems
) -> TimeoutOverrides:
    given = {field: _value(name, _Timeout, env, problems) for name, field in _TIMEOUTS}
    return msgspec.structs.replace(
        timeouts,
        **{field: max(0.0, value) for field, value in given.items() if value is not None},
    )


def _auth(file: RoutingFile, env: Mapping[str, str], problems: Problems) -> str:
    """Read USER_AUTH_ENABLED; an unreadable value must not open the door."""
    enabled = _value("USER_AUTH_ENABLED", bool, env, problems)
    if enabled is None:
        return "keys" if env.get("USER_AUTH_ENABLED", "").strip() else file.auth
    return "keys" if enabled else "none"


def _value(name: str, kind: Any, env: Mapping[str, str], problems: Problems) -> Any:
    """Return a variable's value, or `None` when it is unset or no good."""
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        value = msgspec.convert(_FLAGS.get(text.lower(), text.lower()), kind, strict=False)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("not finite")
    except msgspec.ValidationError:
        problems.warning(
            name, "the value is ignored", f"it must be {_describe(kind)}; the file's value stays"
        )
        return None
    return value


def _describe(kind: Any) -> str:
    meta = getattr(kind, "__metadata__", (Meta(),))[0]
    base = getattr(kind, "__origin__", kind)
    words = {bool: "true or false", int: "a whole number", float: "a number"}[base]
    if meta.ge is not None and meta.le is not None:
        return f"{words} from {meta.ge} to {meta.le}"
    if meta.le is not None:
        return f"{words}, at most {meta.le}"
    return f"{words}, at least {meta.ge}" if meta.ge is not None else words
