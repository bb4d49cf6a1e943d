"""The access log: one line per request, with all that is known and nothing that is secret."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from gateway.core.route import UpstreamKey
from gateway.telemetry.logs import JsonFormatter
from tests.fakes.builders import config, key, model, route
from tests.fakes.calls import Call
from tests.fakes.holds import Hold
from tests.fakes.rig import Rig
from tests.fakes.upstreams import DONE, ROLE, STOP, Answer, Upstreams, delta, event, status, stream

FIELDS = {
    "ts",
    "level",
    "msg",
    "request_id",
    "trace_id",
    "caller",
    "route",
    "model",
    "endpoint",
    "stream",
    "attempts",
    "attempt_log",
    "refused",
    "offload",
    "offload_endpoint",
    "status",
    "error_type",
    "limited_by",
    "ttft_ms",
    "total_ms",
    "overhead_ms",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "malformed_chunks",
    "client_cancelled",
    "bytes",
}
USAGE = event(
    {
        "model": "m",
        "choices": [],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }
)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.DEBUG)

    def lines() -> list[dict[str, Any]]:
        formatter = JsonFormatter()
        return [json.loads(formatter.format(record)) for record in caplog.records]

    return lines


def only(lines: list[dict[str, Any]]) -> dict[str, Any]:
    [line] = [line for line in lines if line["msg"] == "request"]
    return line


async def test_a_request_has_one_line_with_all_that_is_known(logged: Any) -> None:
    # Given a request that fails over and then streams
    good = Answer([ROLE, delta("x"), b"data: {broken\n\n", STOP, USAGE, DONE])
    rig = Rig(Upstreams(a=status(503), b=good), route("a"), route("b"))
    trace = "c3" * 16
    headers = {"traceparent": f"00-{trace}-{'d4' * 8}-01", "x-request-id": "r-1"}
    # When it is done
    call = await rig.call(stream=True, headers=headers).finished()
    await rig.settled()
    # Then its line says so
    line = only(logged())
    assert set(line) == FIELDS
    assert line["attempt_log"] == [
        {
            "endpoint": "m:a",
            "status": 503,
            "error_type": "http_503",
            "probe": False,
            "dropped": {},
            "pin": "",
            "queue_ms": 0.0,
            "rotated": [],
            "hedge": False,
        },
        {
            "endpoint": "m:b",
            "status": 200,
            "error_type": None,
            "probe": False,
            "dropped": {"a": "already_attempted"},
            "pin": "",
            "queue_ms": 0.0,
            "rotated": [],
            "hedge": False,
        },
    ]
    known = {
        "level": "info",
        "request_id": "r-1",
        "trace_id": trace,
        "caller": "ip:127.0.0.1",
        "route": "/v1/chat/completions",
        "model": "m",
        "endpoint": "m:b",
        "stream": True,
        "attempts": 2,
        "status": 200,
        "error_type": None,
        "tokens_in": 7,
        "tokens_out": 3,
        "tokens_cached": 2,
        "malformed_chunks": 1,
        "client_cancelled": False,
        "bytes": len(call.body),
    }
    assert {name: line[name] for name in known} == known
    assert 0 <= line["overhead_ms"] <= line["ttft_ms"] <= line["total_ms"]


@pytest.mark.parametrize(
    ("body", "status_", "error_type"),
    [(b"{", 400, "invalid_request"), (b'{"model":"x","messages":[]}', 404, "model_not_found")],
)
async def test_a_refused_request_has_a_line_too(
    body: bytes, status_: int, error_type: str, logged: Any
) -> None:
    rig = Rig(Upstreams(), route("a"))
    await Call(rig.app, body).finished()
    line = only(logged())
    assert (line["status"], line["error_type"], line["attempts"]) == (status_, error_type, 0)
    assert line["ttft_ms"] is line["overhead_ms"] is line["endpoint"] is None


async def test_the_overhead_ends_when_the_first_attempt_is_sent(logged: Any) -> None:
    # Given a first attempt that takes a while to fail
    hold, began = Hold(), time.perf_counter()
    rig = Rig(Upstreams(a=Answer(before=[hold]), b=stream("x")), route("a"), route("b"))
    call = rig.call(stream=True)
    await hold.reached.wait()
    most_ms = (time.perf_counter() - began) * 1000
    await asyncio.sleep(0.02)
    hold.go()
    await call.finished()
    await rig.settled()
    assert only(logged())["overhead_ms"] <= most_ms + 0.01
    assert only(logged())["ttft_ms"] > 20


async def test_a_client_that_leaves_is_logged_as_such(logged: Any) -> None:
    hold = Hold()
    rig = Rig(Upstreams(a=Answer([ROLE, hold])), route("a"))
    call = rig.call(stream=True)
    await hold.reached.wait()
    call.leave()
    await call.finished()
    await rig.settled()
    line = only(logged())
    assert (line["status"], line["client_cancelled"], line["error_type"]) == (499, True, None)


async def test_a_client_that_leaves_while_sending_is_logged_as_such(logged: Any) -> None:
    rig = Rig(Upstreams(), route("a"))
    call = Call(rig.app, b"half", ends=False)
    call.leave()
    await call.finished()
    line = only(logged())
    assert (line["status"], line["client_cancelled"]) == (499, True)


async def test_a_bug_is_logged_with_the_status_that_the_client_got(logged: Any) -> None:
    rig = Rig(Upstreams(a=Answer(before=[RuntimeError("!")])), route("a"))
    await rig.ask()
    line = only(logged())
    assert (line["status"], line["error_type"]) == (500, "internal_error")
    [told] = [line for line in logged() if line["msg"] == "unexpected_error"]
    assert told["request_id"] == line["request_id"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_no_prompt_no_answer_and_no_credential_is_in_any_line(
    streamed: bool, logged: Any
) -> None:
    # Given canaries in the prompt, the answer, the keys, the headers and an upstream's error
    secrets = [f"canary-{n}" for n in ("prompt", "answer", "caller", "upstream", "cookie", "tool")]
    prompt, answer, caller, upstream, cookie, tool = secrets
    settings = config(
        model(*(route(at, api_keys=(UpstreamKey(upstream),)) for at in "ab")),
        keys=[key(caller, "alice")],
    )
    failing = status(400, f"bad key {upstream} for {prompt}")
    rig = Rig(Upstreams(a=failing, b=stream(answer)), config=settings)
    # When requests succeed, fail and are refused
    headers = {"authorization": f"Bearer {caller}", "cookie": cookie, "x-route-pin": cookie}
    tools = [{"type": "function", "function": {"name": tool}}]
    asked = {"content": prompt, "tools": tools, "stream": streamed}
    await rig.call(headers=headers, **asked).finished()
    await rig.call(headers={"authorization": "Bearer canary-wrong"}, **asked).finished()
    await rig.call(headers=headers, model="canary-unknown", **asked).finished()
    await Call(rig.app, b'{"canary-broken', headers=headers).finished()
    await rig.settled()
    # Then no line holds one
    assert len([line for line in logged() if line["msg"] == "request"]) == 4
    assert "canary" not in json.dumps(logged())
