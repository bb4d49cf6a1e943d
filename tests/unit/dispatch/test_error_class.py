"""What kind of failure it is to its endpoint's cooldown."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gateway.core.outcome import ErrorClass
from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.failures import (
    broken,
    empty,
    from_error,
    from_exception,
    from_response,
    timed_out,
)
from gateway.dispatch.kinds import Kind
from gateway.protocols.error_body import read_error


def failure(route: Route, status: int, **error: Any) -> UpstreamFailure:
    body = json.dumps({"error": {"message": "No.", **error}}).encode()
    return from_response(route, httpx.Response(status), body)


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (302, ErrorClass.INTERNAL_SERVER),
        (400, ErrorClass.BAD_REQUEST),
        (401, ErrorClass.AUTHENTICATION),
        (402, ErrorClass.PAYMENT),
        (403, ErrorClass.OTHER),
        (404, ErrorClass.NOT_FOUND),
        (407, ErrorClass.OTHER),
        (408, ErrorClass.TIMEOUT),
        (409, ErrorClass.OTHER),
        (413, ErrorClass.OTHER),
        (422, ErrorClass.OTHER),
        (429, ErrorClass.RATE_LIMIT),
        (499, ErrorClass.OTHER),
        (500, ErrorClass.INTERNAL_SERVER),
        (502, ErrorClass.BAD_GATEWAY),
        (503, ErrorClass.SERVICE_UNAVAILABLE),
        (504, ErrorClass.TIMEOUT),
        (529, ErrorClass.INTERNAL_SERVER),
    ],
)
def test_is_that_of_the_status(route: Route, status: int, error_class: ErrorClass) -> None:
    assert failure(route, status).error_class is error_class


@pytest.mark.parametrize("code", ["content_policy_violation", "content_filter"])
def test_a_refusal_of_content_is_known_by_its_code(route: Route, code: str) -> None:
    refused = failure(route, 400, code=code)

    assert refused.error_class is ErrorClass.CONTENT_POLICY_VIOLATION
    assert (refused.to_client("m").status, refused.describes_request) == (400, True)


def test_a_refusal_of_content_is_not_known_by_its_words(route: Route) -> None:
    worded = failure(route, 400, message="content_policy_violation", type="content_filter")

    assert worded.error_class is ErrorClass.BAD_REQUEST


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_prompt_that_is_too_long_is_the_requests_fault_under_any_status(
    route: Route, status: int
) -> None:
    too_long = failure(route, status, code="context_length_exceeded")

    assert too_long.error_class is ErrorClass.BAD_REQUEST


def test_an_unpaid_bill_is_known_by_its_wording_too(route: Route) -> None:
    assert failure(route, 400, code="insufficient_credits").error_class is ErrorClass.PAYMENT


def test_without_a_status_it_is_that_of_the_place_where_it_failed(route: Route) -> None:
    assert timed_out(route, "first_byte_timeout").error_class is ErrorClass.TIMEOUT
    assert from_exception(route, httpx.ReadTimeout("")).error_class is ErrorClass.TIMEOUT
    assert broken(route, "cut").error_class is ErrorClass.INTERNAL_SERVER
    assert empty(route).error_class is ErrorClass.INTERNAL_SERVER


@pytest.mark.parametrize("kind", [Kind.CONNECT, Kind.KEYS_RESERVED, Kind.KEYS_EXHAUSTED])
def test_an_attempt_of_which_nothing_was_sent_says_nothing(route: Route, kind: Kind) -> None:
    assert UpstreamFailure(route, kind, error_type="t").error_class is ErrorClass.OTHER


@pytest.mark.parametrize(
    ("frame", "error_class"),
    [
        ({"message": "No.", "code": 429}, ErrorClass.RATE_LIMIT),
        ({"message": "No.", "type": "overloaded_error"}, ErrorClass.INTERNAL_SERVER),
        ({"message": "No."}, ErrorClass.INTERNAL_SERVER),
    ],
)
def test_an_error_frame_is_of_the_class_that_it_names(
    route: Route, frame: dict[str, Any], error_class: ErrorClass
) -> None:
    error = read_error(json.dumps({"error": frame}).encode())
    assert error

    assert from_error(route, error).error_class is error_class


@pytest.mark.parametrize("status", [401, 402, 429])
def test_a_failure_of_one_key_among_several_says_nothing_of_the_endpoint(
    route: Route, status: int
) -> None:
    failed = failure(route, status)
    failed.is_of_key = True

    assert failed.error_class is ErrorClass.OTHER
