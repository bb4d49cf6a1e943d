"""What a caller is told whose limits leave no room."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admission.refusals import refusal
from gateway.core.limits import Limit, Limits, Scope
from gateway.errors import BudgetSpent, CallerLimited
from gateway.state.caller_store import Need
from tests.fakes.caller_store import refused

LIMITS = Limits(rpm=Limit(60), tpm=Limit(900), max_parallel_requests=Limit(4), max_budget=Limit(9))
SCOPES = (
    Scope(kind="key", id="alice", limits=LIMITS),
    Scope(kind="team", id="ac me", limits=LIMITS),
    Scope(kind="model", id="alice:m", limits=LIMITS),
)


def told(limit: str, *, window_ms: int = 60_000, **values: Any) -> CallerLimited:
    reply = refused(limit, **values)
    need = Need(tokens=500, nanousd=7)
    return refusal(reply, SCOPES, need, window_ms=window_ms, retry_after_ms=reply.retry_after_ms)


@pytest.mark.parametrize(
    ("limit", "message", "name"),
    [
        (
            "key:alice rpm",
            "The limit of 60 requests per minute of key 'alice' is reached. Try again in 12 s.",
            "key:alice rpm",
        ),
        (
            "team:ac%20me tpm",
            "The limit of 900 tokens per minute of team 'ac me' has 100 left, and the request may "
            "need 500. Try again in 12 s.",
            "team:ac%20me tpm",
        ),
        (
            "key:alice parallel",
            "The limit of 4 requests at a time of key 'alice' is reached. Try again in 12 s.",
            "key:alice max_parallel_requests",
        ),
        (
            "key:alice budget",
            "What is left of the budget of key 'alice' is held by requests under way. Try again "
            "in 12 s.",
            "key:alice max_budget",
        ),
        (
            "model:alice:m rpm",
            "The limit of 60 requests per minute of key and model 'alice:m' is reached. Try again "
            "in 12 s.",
            "model:alice:m rpm",
        ),
    ],
)
def test_names_the_limit_and_when_to_come_again(limit: str, message: str, name: str) -> None:
    error = told(limit, left=100)
    assert (error.message, error.limit) == (message, name)
    assert (error.status, error.code, error.type) == (
        429,
        "rate_limit_exceeded",
        "rate_limit_error",
    )
    assert (error.retry_after_s, error.should_retry) == (12, None)


def test_an_empty_budget_is_no_matter_of_trying_again() -> None:
    error = told("key:alice budget", status="spent")
    assert isinstance(error, BudgetSpent)
    assert (error.status, error.code, error.should_retry) == (429, "insufficient_quota", False)
    assert error.message == "The budget of key 'alice' is used up. Try again in 12 s."


def test_a_request_too_dear_for_what_is_left_is_told_so() -> None:
    error = told("key:alice budget", status="spent", left=50_000_000, retry_after_ms=0)
    assert error.message == (
        "The request may cost $0.000000007, and $0.05 are left of the budget of key 'alice': ask "
        "for fewer max_tokens."
    )


@pytest.mark.parametrize("status", ["refused", "spent"])
def test_what_will_never_fit_has_no_date(status: str) -> None:
    error = told("key:alice budget", status=status, retry_after_ms=0)
    assert (error.retry_after_s, error.should_retry) == (None, False)
    assert "Try again" not in error.message


@pytest.mark.parametrize(("ms", "seconds"), [(1, 1), (1000, 1), (1001, 2), (59_001, 60)])
def test_the_date_is_rounded_up_to_whole_seconds(ms: int, seconds: int) -> None:
    assert told("key:alice rpm", retry_after_ms=ms).retry_after_s == seconds


def test_another_window_is_not_called_a_minute() -> None:
    assert "60 requests per 2.5 s of" in told("key:alice rpm", window_ms=2500).message
