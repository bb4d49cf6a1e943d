"""The table, row by row, with bodies as providers send them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from gateway.core.outcome import Outcome
from gateway.core.route import Route
from gateway.dispatch.classify import TABLE, UpstreamFailure, judge
from gateway.dispatch.failures import (
    broken,
    empty,
    from_error,
    from_exception,
    from_response,
    timed_out,
)
from gateway.dispatch.kinds import KeyFault, Kind
from gateway.protocols.error_body import ErrorBody, read_error

TOO_LONG = {
    "vllm": {
        "object": "error",
        "message": "This model's maximum context length is 8192 tokens. However, you requested "
        "9000 tokens in the messages. Please reduce the length of the messages.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
    "sglang": {
        "object": "error",
        "message": "The input (9000 tokens) is longer than the model's context length (8192 "
        "tokens).",
        "type": "BadRequestError",
        "code": 400,
    },
    "tensorrt": {"error": "Prompt length (9000) is longer than the maximum model length of 8192"},
    "openai": {
        "error": {
            "message": "Your input exceeds the context window of this model.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
    "anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 212345 tokens > 200000 maximum",
        },
    },
    "gemini": [
        {
            "error": {
                "code": 400,
                "message": "The input token count (1200000) exceeds the maximum number of tokens "
                "allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        }
    ],
    "kimi": {
        "error": {
            "message": "Invalid request: Your request exceeded model token limit: 131072",
            "type": "invalid_request_error",
        }
    },
    "xai": {"error": "This model's maximum prompt length is 131072 but the request has 140000."},
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size. try increasing it",
            "type": "exceed_context_size_error",
        }
    },
    "openrouter": {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": "This endpoint's maximum context length is 8192 tokens."},
        }
    },
}
UNPAID = {
    "anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Your credit balance is too low to access the Anthropic API. Please go to "
            "Plans & Billing to upgrade or purchase credits.",
        },
    },
    "openai": {
        "error": {
            "message": "Billing hard limit has been reached",
            "type": "invalid_request_error",
            "param": None,
            "code": "billing_hard_limit_reached",
        }
    },
    "quota": {
        "error": {
            "message": "You exceeded your current quota, please check your plan.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
        }
    },
    "dashscope": {
        "error": {
            "message": "Access denied, please make sure your account is in good standing.",
            "type": "Arrearage",
            "code": "Arrearage",
        }
    },
}


def failure(route: Route, status: int, body: Any = None, **headers: str) -> UpstreamFailure:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return from_response(route, httpx.Response(status, headers=named), content)


def frame(route: Route, body: Any) -> UpstreamFailure:
    error = read_error(json.dumps(body).encode())
    assert error is not None
    return from_error(route, error)


@pytest.mark.parametrize(
    ("status", "outcome", "describes", "shown", "code"),
    [
        (401, Outcome.AUTH, False, 502, "upstream_auth_error"),
        (407, Outcome.AUTH, False, 502, "upstream_auth_error"),
        (403, Outcome.NEUTRAL, False, 502, "upstream_auth_error"),
        (400, Outcome.NEUTRAL, True, 400, "upstream_error"),
        (404, Outcome.NEUTRAL, True, 404, "upstream_error"),
        (413, Outcome.NEUTRAL, True, 413, "upstream_error"),
        (422, Outcome.NEUTRAL, True, 422, "upstream_error"),
        (402, Outcome.NEUTRAL, False, 402, "upstream_error"),
        (409, Outcome.NEUTRAL, False, 409, "upstream_error"),
        (408, Outcome.FAILURE, False, 408, "upstream_error"),
        (429, Outcome.FAILURE, False, 429, "rate_limit_exceeded"),
        (500, Outcome.FAILURE, False, 500, "upstream_error"),
        (502, Outcome.FAILURE, False, 502, "upstream_error"),
        (503, Outcome.FAILURE, False, 503, "upstream_error"),
        (529, Outcome.FAILURE, False, 529, "upstream_error"),
        (405, Outcome.NEUTRAL, False, 502, "upstream_error"),
        (451, Outcome.NEUTRAL, False, 502, "upstream_error"),
        (204, Outcome.FAILURE, False, 502, "upstream_error"),
        (302, Outcome.FAILURE, False, 502, "upstream_error"),
        (999, Outcome.FAILURE, False, 502, "upstream_error"),
    ],
)
def test_a_status_tells_what_counts_and_what_is_shown(
    route: Route, status: int, outcome: Outcome, describes: bool, shown: int, code: str
) -> None:
    failed = failure(route, status, b"")
    error = failed.to_client("public")

    assert (failed.kind, failed.status, failed.outcome) == (Kind.STATUS, status, outcome)
    assert failed.describes_request is describes
    assert not failed.context_refusal
    assert (error.status, error.code) == (shown, code)


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [
        (KeyFault.KEY, (401, 402, 403, 429)),
        (KeyFault.TRANSIENT, (408, 425, *range(500, 600))),
        (None, (200, 201, 204, 302, 400, 404, 407, 409, 413, 415, 422, 451, 499, 999)),
    ],
)
def test_a_status_tells_whether_another_key_may_serve(
    route: Route, fault: KeyFault | None, statuses: Sequence[int]
) -> None:
    assert {failure(route, status, b"").key_fault for status in statuses} == {fault}


def test_an_answer_that_breaks_off_may_be_the_keys_and_silence_is_not(route: Route) -> None:
    assert broken(route, "cut").key_fault is KeyFault.TRANSIENT
    assert from_error(route, ErrorBody(message="oops")).key_fault is KeyFault.TRANSIENT
    assert from_exception(route, httpx.ReadError("cut")).key_fault is KeyFault.TRANSIENT
    for failed in (
        timed_out(route, "late"),
        empty(route),
        from_exception(route, httpx.ConnectError("refused")),
    ):
        assert failed.key_fault is None


@pytest.mark.parametrize("kind", [Kind.KEYS_RESERVED, Kind.KEYS_EXHAUSTED])
def test_without_a_key_nothing_was_sent(route: Route, kind: Kind) -> None:
    failed = UpstreamFailure(route, kind, error_type=kind.value, retry_after_ms=6001)
    error = failed.to_client("public")

    assert failed.outcome is (Outcome.NEUTRAL if kind is Kind.KEYS_RESERVED else Outcome.FAILURE)
    assert not failed.was_sent
    assert not failed.was_worked_on
    assert (error.status, error.code, error.retry_after_s) == (503, f"upstream_{kind}", 7)


def test_a_failure_of_one_key_among_others_says_nothing_of_the_endpoint(route: Route) -> None:
    failed = failure(route, 429, b"")
    failed.is_of_key = True

    assert failed.outcome is Outcome.NEUTRAL
    assert failed.to_client("public").status == 429


@pytest.mark.parametrize("body", TOO_LONG.values(), ids=TOO_LONG)
def test_a_prompt_too_long_is_recognised(route: Route, body: Any) -> None:
    failed = failure(route, 400, body)
    error = failed.to_client("public")

    assert failed.context_refusal
    assert failed.describes_request
    assert failed.outcome is Outcome.NEUTRAL
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert error.should_retry is False


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_refusals_wording_under_another_status_is_none(route: Route, status: int) -> None:
    assert not failure(route, status, TOO_LONG["vllm"]).context_refusal


@pytest.mark.parametrize(
    "message",
    [
        "Unrecognized request argument supplied: context_length",
        "invalid parameters schema",
        "max_tokens is too large",
    ],
)
def test_the_name_of_a_parameter_is_no_refusal(route: Route, message: str) -> None:
    failed = failure(route, 400, {"error": {"message": message, "code": "invalid_parameter"}})

    assert failed.describes_request
    assert not failed.context_refusal


def test_an_echo_of_the_prompt_is_no_refusal(route: Route) -> None:
    echo = {"loc": ["body"], "msg": "Field required", "input": "maximum context length"}

    failed = failure(route, 422, {"detail": [echo]})

    assert not failed.context_refusal
    assert failed.to_client("public").message == "Field required"


@pytest.mark.parametrize("body", UNPAID.values(), ids=UNPAID)
def test_a_billing_complaint_is_about_our_account(route: Route, body: Any) -> None:
    failed = failure(route, 400, body)
    error = failed.to_client("public")

    assert failed.outcome is Outcome.FAILURE
    assert not failed.describes_request
    assert (error.status, error.code) == (502, "upstream_auth_error")
    assert "credit" not in error.message


def test_an_exhausted_quota_is_not_worth_a_repeat(route: Route) -> None:
    error = failure(route, 429, UNPAID["quota"]).to_client("public")

    assert (error.status, error.code, error.should_retry) == (429, "insufficient_quota", False)


@pytest.mark.parametrize(
    ("body", "status", "outcome", "shown"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429, Outcome.FAILURE, 429),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, 429, Outcome.FAILURE, 429),
        ({"error": {"message": "m", "type": "overloaded_error"}}, 529, Outcome.FAILURE, 529),
        ({"error": {"message": "m", "type": "server_error"}}, 500, Outcome.FAILURE, 500),
        ({"error": {"message": "m", "code": 401}}, 401, Outcome.AUTH, 502),
        ({"error": {"message": "m", "type": "authentication_error"}}, 401, Outcome.AUTH, 502),
        ({"error": {"message": "m", "type": "invalid_request_error"}}, 400, Outcome.NEUTRAL, 400),
        ({"error": {"message": "m"}}, None, Outcome.FAILURE, 502),
        ({"error": "m"}, None, Outcome.FAILURE, 502),
    ],
)
def test_an_error_frame_is_judged_by_the_code_it_carries(
    route: Route, body: Any, status: int | None, outcome: Outcome, shown: int
) -> None:
    failed = frame(route, body)

    assert (failed.kind, failed.status, failed.outcome) == (Kind.ERROR_FRAME, status, outcome)
    assert failed.describes_request is (status == 400)
    assert failed.to_client("public").status == shown


def test_a_refusal_in_a_frame_counts_only_with_a_code(route: Route) -> None:
    message = "This model's maximum context length is 8192 tokens."

    assert frame(route, {"error": {"message": message, "code": 400}}).context_refusal
    assert not frame(route, {"error": {"message": message}}).context_refusal
    assert not frame(route, {"error": {"message": message, "code": 500}}).context_refusal


@pytest.mark.parametrize(
    ("error", "kind", "outcome", "shown", "code"),
    [
        (httpx.ConnectError("x"), Kind.CONNECT, Outcome.CONNECT, 502, "upstream_error"),
        (httpx.ConnectTimeout("x"), Kind.CONNECT, Outcome.CONNECT, 502, "upstream_error"),
        (httpx.PoolTimeout("x"), Kind.CONNECT, Outcome.CONNECT, 502, "upstream_error"),
        (httpx.UnsupportedProtocol("x"), Kind.CONNECT, Outcome.CONNECT, 502, "upstream_error"),
        (httpx.ReadTimeout("x"), Kind.TIMEOUT, Outcome.FAILURE, 504, "upstream_timeout"),
        (httpx.WriteTimeout("x"), Kind.TIMEOUT, Outcome.FAILURE, 504, "upstream_timeout"),
        (httpx.ReadError("x"), Kind.BROKEN, Outcome.FAILURE, 502, "upstream_error"),
        (httpx.WriteError("x"), Kind.BROKEN, Outcome.FAILURE, 502, "upstream_error"),
        (httpx.RemoteProtocolError("x"), Kind.BROKEN, Outcome.FAILURE, 502, "upstream_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_exception_tells_whether_anything_was_sent(
    route: Route, error: httpx.HTTPError, kind: Kind, outcome: Outcome, shown: int, code: str
) -> None:
    failed = from_exception(route, error)
    client = failed.to_client("public")

    assert (failed.kind, failed.outcome, failed.status) == (kind, outcome, None)
    assert failed.error_type == type(error).__name__
    assert (client.status, client.code) == (shown, code)


def test_silence_cuts_and_emptiness_count(route: Route) -> None:
    failures = [timed_out(route, "idle_timeout"), broken(route, "stream_cut"), empty(route)]

    assert [failed.outcome for failed in failures] == [Outcome.FAILURE] * 3
    assert [failed.to_client("m").status for failed in failures] == [504, 502, 502]
    assert not any(failed.describes_request for failed in failures)


def test_the_last_row_matches_everything() -> None:
    assert all(judge(kind, status, None) for kind in Kind for status in (None, 0, 200, 700))
    assert judge(Kind.STATUS, None, None) is TABLE[-1]
