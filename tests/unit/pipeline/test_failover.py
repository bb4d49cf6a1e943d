"""Which endpoint answers after others have failed, and what the client is told if none does."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest

from gateway.core.outcome import Outcome
from gateway.errors import StateUnavailable
from tests.fakes.builders import route
from tests.fakes.rig import ADMIN, Rig
from tests.fakes.upstreams import (
    DONE,
    ROLE,
    STOP,
    Answer,
    Upstreams,
    delta,
    event,
    status,
    stream,
    unreachable,
    whole,
)

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
CUT = httpx.ReadError("reset")
PIN = {"authorization": f"Bearer {ADMIN}"}


def good(streamed: bool) -> Answer:
    return stream("yes") if streamed else whole("yes")


def error(call: Any) -> dict[str, Any]:
    return json.loads(call.body)["error"]


@STREAMED
async def test_failed_endpoints_are_followed_by_the_rest_in_declaration_order(
    streamed: bool,
) -> None:
    # Given four routes, of which the first three fail in different ways
    upstreams = Upstreams(a=status(503), b=unreachable(), c=status(400), d=good(streamed))
    rig = Rig(upstreams, *map(route, "abcd"))
    # When a request comes
    call = await rig.ask(stream=streamed)
    # Then each was tried once, in the order of the config, also past the 400
    assert upstreams.asked == ["a", "b", "c", "d"]
    assert rig.store.orders == ["draw", "declared", "declared", "declared"]
    # And the client sees only the answer
    assert call.status == 200
    assert b"yes" in call.body
    assert call.headers["x-concord-attempts"] == "4"
    assert call.headers["x-concord-endpoint"] == "m:d"
    # And each outcome was told
    assert rig.store.outcomes == [
        ("a", Outcome.FAILURE, 503),
        ("b", Outcome.CONNECT, 0),
        ("c", Outcome.NEUTRAL, 400),
        ("d", Outcome.SUCCESS, 200 if not streamed else 0),
    ]
    rig.assert_all_ended_once()


@STREAMED
async def test_an_endpoint_that_admit_strikes_out_is_passed_over_and_logged(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(Upstreams(a=status(500), c=good(streamed)), *map(route, "abc"))
    rig.store.closed["b"] = "circuit_open"
    with caplog.at_level(logging.INFO, "concord"):
        call = await rig.ask(stream=streamed)
    assert call.status == 200
    assert rig.upstreams.asked == ["a", "c"]
    attempts = next(r.fields for r in caplog.records if r.getMessage() == "request")["attempt_log"]
    assert [attempt["dropped"] for attempt in attempts] == [
        {"b": "circuit_open"},
        {"a": "already_attempted", "b": "circuit_open"},
    ]


async def test_nothing_follows_once_output_has_reached_the_client() -> None:
    # Given a stream that breaks after its first token, and a healthy second route
    broken = Answer([ROLE, delta("hello"), CUT])
    rig = Rig(Upstreams(a=broken, b=stream("never")), route("a"), route("b"))
    # When it is asked for
    call = await rig.ask(stream=True)
    # Then the token came, then an error event, and no [DONE]
    assert call.status == 200
    assert b"hello" in call.body
    assert b"never" not in call.body
    last = call.body.rstrip().rpartition(b"data: ")[2]
    assert json.loads(last)["error"]["code"] == "upstream_error"
    assert call.is_complete
    # And the second route was never asked
    assert rig.upstreams.asked == ["a"]
    rig.assert_all_ended_once()


async def test_a_second_attempt_that_breaks_after_output_is_not_followed_by_a_third() -> None:
    broken = Answer([ROLE, delta("hello"), CUT])
    rig = Rig(Upstreams(a=status(500), b=broken, c=stream("never")), *map(route, "abc"))
    call = await rig.ask(stream=True)
    assert rig.upstreams.asked == ["a", "b"]
    assert b"hello" in call.body
    assert b"never" not in call.body
    assert DONE not in call.body
    rig.assert_all_ended_once()


@STREAMED
async def test_a_pinned_request_never_fails_over(streamed: bool) -> None:
    # Given an admin who pins to the second route, which fails
    rig = Rig(Upstreams(a=good(streamed), b=status(503)), route("a"), route("b"))
    # When the request comes
    call = rig.call(stream=streamed, headers={**PIN, "x-route-pin": "b"})
    await call.finished()
    await rig.settled()
    # Then only that route was asked
    assert rig.upstreams.asked == ["b"]
    assert rig.store.orders == ["pinned"]
    assert call.status == 503
    rig.assert_all_ended_once()


@STREAMED
@pytest.mark.parametrize(
    ("first", "second", "surfaced"),
    [
        (unreachable(), status(400), 400),
        (unreachable(), status(429), 502),
        (unreachable(), status(403), 502),
        (status(500), status(422), 422),
        (status(400), status(404), 400),
        (status(429), status(500), 429),
    ],
    ids=["connect-400", "connect-429", "connect-403", "500-422", "400-404", "429-500"],
)
async def test_the_surfaced_error_is_the_first_unless_a_later_one_describes_the_request(
    streamed: bool, first: Answer, second: Answer, surfaced: int
) -> None:
    rig = Rig(Upstreams(a=first, b=second), route("a"), route("b"))
    call = await rig.ask(stream=streamed)
    assert call.status == surfaced
    assert "error" in json.loads(call.body)
    assert call.headers["content-type"] == "application/json"
    rig.assert_all_ended_once()


@pytest.mark.parametrize(
    ("primary", "backup", "is_asked"),
    [
        (262144, 262144, False),
        (262144, 131072, False),
        (131072, 262144, True),
        (262144, None, True),
    ],
)
async def test_a_prompt_refused_as_too_long_skips_routes_that_are_no_wider(
    primary: int, backup: int | None, is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a route that refuses a prompt for its length
    refused = status(400, "This model's maximum context length is 262144 tokens.")
    rig = Rig(
        Upstreams(a=refused, b=whole("yes")),
        route("a", context_length=primary),
        route("b", context_length=backup),
    )
    # When a request comes
    with caplog.at_level(logging.INFO, "concord"):
        call = await rig.ask()
    # Then the other is asked only if its window is wider or unknown
    assert ("b" in rig.upstreams.asked) is is_asked
    assert call.status == (200 if is_asked else 400)
    skips = [r for r in caplog.records if r.getMessage() == "context_window_fallback_skipped"]
    assert len(skips) == (not is_asked)
    rig.assert_all_ended_once()


async def test_when_nothing_is_admitted_the_reasons_are_told_and_nobody_is_asked() -> None:
    rig = Rig(Upstreams(), route("a"), route("b"))
    rig.store.closed = {"a": "circuit_open", "b": "probe_in_flight"}
    rig.store.retry_after_ms = 12_001
    call = await rig.ask()
    assert call.status == 503
    assert error(call)["code"] == "no_healthy_upstream"
    assert "(1 circuit_open, 1 probe_in_flight)" in error(call)["message"]
    assert call.headers["retry-after"] == "13"
    assert "x-concord-attempts" not in call.headers


async def test_when_the_rest_is_not_admitted_the_first_failure_is_told() -> None:
    rig = Rig(Upstreams(a=status(429, "slow down")), route("a"), route("b"))
    rig.store.closed = {"b": "circuit_open"}
    call = await rig.ask()
    assert call.status == 429
    assert error(call)["message"] == "slow down"
    rig.assert_all_ended_once()


async def test_without_the_store_the_client_is_told_to_come_again() -> None:
    rig = Rig(Upstreams(), route("a"))
    rig.store.raising["admit"] = [StateUnavailable()]
    call = await rig.ask()
    assert call.status == 503
    assert error(call)["code"] == "state_unavailable"
    assert call.headers["retry-after"] == "1"
    rig.assert_all_ended_once()


async def test_an_error_frame_before_output_is_failed_over_and_after_it_ends_the_stream() -> None:
    frame = event({"error": {"message": "overloaded", "code": 529}})
    early, late = Answer([ROLE, frame]), Answer([ROLE, delta("x"), frame])
    rig = Rig(Upstreams(a=early, b=late, c=stream("never")), *map(route, "abc"))
    call = await rig.ask(stream=True)
    assert rig.upstreams.asked == ["a", "b"]
    assert call.body.count(b'"role"') == 1
    assert b"overloaded" in call.body
    assert DONE not in call.body


async def test_a_failed_attempt_leaves_no_trace_in_the_next_one() -> None:
    # Given a first attempt whose role chunk was held back when it broke
    first = Answer([delta("", role="first"), CUT])
    rig = Rig(Upstreams(a=first, b=Answer([ROLE, delta("x"), STOP, DONE])), route("a"), route("b"))
    call = await rig.ask(stream=True)
    assert b"first" not in call.body
    assert call.body == ROLE + delta("x") + STOP + DONE

    import httpx

    return httpx.ReadError("reset")


async def test_a_stream_cut_before_its_output_is_a_failure_and_no_empty_answer() -> None:
    rig = Rig(Upstreams(a=Answer([ROLE, CUT])), route("a"))
    call = await rig.ask(stream=True)
    assert call.status == 502
    assert ROLE not in call.body
