"""Limits as they are written, to limits as they are judged by, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.config.durations import YEAR_S
from gateway.config.keys_schema import Limited, MoneyLimit
from gateway.config.limit_schema import CountLimit, RateLimit
from gateway.config.problems import Problems, join
from gateway.core.limits import EndpointLimits, Limit, Limits

NANO_USD = 1_000_000_000
_COUNTS = ("rpm", "tpm", "max_parallel_requests")
_OF_ENDPOINTS = ("rpm", "tpm", "itpm", "otpm", "max_parallel_requests")
_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def build_limits(entry: Limited, path: str, problems: Problems) -> Limits:
    """Read the limits of an entry."""
    duration_ms = _duration_ms(entry, path, problems)
    return Limits(
        rpm=_limit(entry.rpm, 1),
        tpm=_limit(entry.tpm, 1),
        max_parallel_requests=_limit(entry.max_parallel_requests, 1),
        max_budget=_limit(entry.max_budget, NANO_USD),
        budget_duration_ms=duration_ms,
    )


def endpoint_limits(inherited: Callable[[str, Any], Any]) -> EndpointLimits:
    """Read a route's limits, by name, as far as it or its model has them."""
    return EndpointLimits(**{name: _limit(inherited(name, None), 1) for name in _OF_ENDPOINTS})


def write_limits(limits: Limits) -> dict[str, Any]:
    """Write limits as an entry would; what is not limited is left out."""
    written: dict[str, Any] = {
        name: _written(limit) for name in _COUNTS if (limit := getattr(limits, name))
    }
    if limits.max_budget:
        written["max_budget"] = _written(limits.max_budget, NANO_USD)
    if limits.budget_duration_ms:
        seconds = limits.budget_duration_ms // 1000
        unit = next(unit for unit, size in _UNITS_S.items() if seconds % size == 0)
        written["budget_duration"] = f"{seconds // _UNITS_S[unit]}{unit}"
    return written


def _limit(value: float | CountLimit | MoneyLimit | None, per_unit: int) -> Limit | None:
    if value is None:
        return None
    if isinstance(value, CountLimit | MoneyLimit):
        return Limit(
            round(value.limit * per_unit),
            is_shadow=value.mode == "shadow",
            is_fixed=isinstance(value, RateLimit) and value.window == "fixed",
        )
    return Limit(round(value * per_unit))


def _written(limit: Limit, per_unit: int = 1) -> float | dict[str, Any]:
    number = limit.most if per_unit == 1 else limit.most / per_unit
    words = {"mode": "shadow"} if limit.is_shadow else {}
    if limit.is_fixed:
        words["window"] = "fixed"
    return {"limit": number, **words} if words else number


def _duration_ms(entry: Limited, path: str, problems: Problems) -> int:
    text = entry.budget_duration
    if not text:
        return 0
    at = join(path, "budget_duration")
    if entry.max_budget is None:
        problems.error(at, "needs a max_budget beside it")
    seconds = int(text[:-1]) * _UNITS_S[text[-1]]
    if seconds > YEAR_S:
        problems.error(at, "is longer than a year")
    return seconds * 1000
