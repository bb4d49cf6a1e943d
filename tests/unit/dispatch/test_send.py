"""Whole answers over a scripted transport."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway.core.outcome import Outcome
from gateway.core.request import Usage
from gateway.core.route import Route, UpstreamKey
from gateway.dispatch.answer import Completion
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.kinds import Kind
from gateway.dispatch.send import Dispatcher
from tests.unit.dispatch.upstream_doubles import STREAM, ScriptedTransport, Step, make_chat, relay

JSON = {"content-type": "application/json"}


def answer(content: str | None = "hi", finish: str | None = "stop", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    body = {"id": "c", "model": "theirs", "choices": [choice], "usage": usage, **fields}
    return json.dumps(body).encode()


async def complete(route: Route, *steps: Step, **script: Any) -> Completion:
    transport = ScriptedTransport(*steps, **{"headers": JSON, **script})
    try:
        return await Dispatcher({"http1": transport}).complete(route, make_chat(), request_id="r")
    finally:
        assert transport.body.closed


async def failure(route: Route, *steps: Step, **script: Any) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as failed:
        await complete(route, *steps, **script)
    return failed.value


async def test_an_answer_comes_back_with_the_clients_model(route: Route) -> None:
    body = answer()

    completion = await complete(route, body[:9], 0.01, body[9:])

    assert completion.body == body.replace(b"theirs", b"public")
    assert completion.usage == Usage(prompt_tokens=3, completion_tokens=1)


async def test_a_compressed_answer_is_understood(route: Route) -> None:
    headers = {**JSON, "content-encoding": "gzip"}

    completion = await complete(route, gzip.compress(answer()), headers=headers)

    assert json.loads(completion.body)["model"] == "public"


@pytest.mark.parametrize(
    ("steps", "error_type"),
    [
        ((b"{",), "malformed_answer"),
        ((b"<html>",), "malformed_answer"),
        ((b"",), "malformed_answer"),
        ((b"{}",), "answer_without_choices"),
        ((answer(choices=[]),), "answer_without_choices"),
        ((answer()[:20], httpx.ReadError("cut")), "ReadError"),
        ((answer()[:20],), "malformed_answer"),
    ],
)
async def test_what_is_no_answer_is_broken(route: Route, steps: Any, error_type: str) -> None:
    failed = await failure(route, *steps)

    assert (failed.kind, failed.error_type) == (Kind.BROKEN, error_type)


async def test_an_answer_above_the_bound_is_broken(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dispatch.body.MAX_ANSWER_BYTES", 1000)

    failed = await failure(route, *[b" " * 400] * 4)

    assert (failed.kind, failed.error_type) == (Kind.BROKEN, "answer_too_large")


async def test_an_error_under_200_is_classified_by_its_code(route: Route) -> None:
    failed = await failure(route, b'{"error": {"message": "m", "code": 429}}')

    assert (failed.kind, failed.status) == (Kind.ERROR_FRAME, 429)


@pytest.mark.parametrize("status", [201, 302, 400, 503])
async def test_another_status_is_a_failure(route: Route, status: int) -> None:
    failed = await failure(route, answer(), status=status)

    assert (failed.kind, failed.status) == (Kind.STATUS, status)


async def test_an_empty_answer_carries_itself(route: Route) -> None:
    failed = await failure(route, answer(""))

    assert failed.kind is Kind.EMPTY
    assert failed.completion is not None
    assert json.loads(failed.completion.body)["model"] == "public"
    assert failed.completion.usage == Usage(prompt_tokens=3, completion_tokens=1)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_some_reasons_explain_an_empty_answer(route: Route, finish: str) -> None:
    completion = await complete(route, answer(None, finish))

    assert json.loads(completion.body)["choices"][0]["finish_reason"] == finish


async def test_the_whole_attempt_is_bounded(with_timeouts: Callable[..., Route]) -> None:
    steps = [step for byte in answer() for step in (bytes([byte]), 0.02)]

    failed = await failure(with_timeouts(total=0.1), *steps)

    assert (failed.kind, failed.error_type) == (Kind.TIMEOUT, "total_timeout")


async def test_the_first_byte_timeout_is_for_streams(with_timeouts: Callable[..., Route]) -> None:
    assert await complete(with_timeouts(first_byte=0.01, idle=0.01), 0.1, answer())


async def test_a_silent_error_body_is_not_waited_for(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dispatch.body.ERROR_TIMEOUT_S", 0.05)

    failed = await failure(route, b"overloaded", None, status=503)

    assert failed.to_client("m").message == "overloaded"


async def test_a_cancellation_stays_one(route: Route) -> None:
    task = asyncio.create_task(complete(route, None))
    await asyncio.sleep(0.02)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions"),
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/openai/v2", "https://h/openai/v2/chat/completions"),
        ("https://h/x?api-version=1", "https://h/x/chat/completions?api-version=1"),
    ],
)
async def test_the_address_is_made_from_the_base(route: Route, base_url: str, url: str) -> None:
    transport = ScriptedTransport(answer(), headers=JSON)
    keyless = replace(route, base_url=base_url, api_keys=())

    await Dispatcher({"http1": transport}).complete(keyless, make_chat(), request_id="r")

    assert str(transport.requests[0].url) == url
    assert "authorization" not in transport.requests[0].headers
    assert transport.requests[0].headers["accept"] == "application/json"


@pytest.mark.parametrize(
    "values",
    [
        {"base_url": "http://h\x00/v1"},
        {"base_url": "http://h:port/v1"},
        {"base_url": "http://[::1/v1"},
        {"base_url": "http://h\ud83d/v1"},
        {"base_url": f"http://h/{'x' * 70_000}"},
        {"api_keys": (UpstreamKey("\ud83d"),)},
        {"upstream_model": "\ud83d"},
        {"extra_body": {"stop": "\ud83d"}},
        {"extra_body": {"seed": 10**5000}},
    ],
    ids=["nul", "port", "bracket", "surrogate", "length", "key", "model", "body", "number"],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_route_that_no_request_can_be_made_for_fails_to_connect(
    route: Route, values: dict[str, Any], streamed: bool
) -> None:
    transport = ScriptedTransport(answer(), headers=JSON)
    broken = replace(route, **values)

    asked = (
        relay(transport, broken, STREAM)
        if streamed
        else Dispatcher({"http1": transport}).complete(broken, make_chat(), request_id="r")
    )
    with pytest.raises(UpstreamFailure) as failed:
        await asked

    assert (failed.value.kind, failed.value.outcome) == (Kind.CONNECT, Outcome.CONNECT)
    assert transport.requests == []


@pytest.mark.parametrize("error", [httpx.InvalidURL("no"), UnicodeError("label empty or too long")])
async def test_an_address_that_a_transport_refuses_fails_to_connect(
    route: Route, error: Exception
) -> None:
    with pytest.raises(UpstreamFailure) as failed:
        await relay(ScriptedTransport(before=error), route, STREAM)

    assert failed.value.kind is Kind.CONNECT
