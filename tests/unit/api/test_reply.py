"""The client's end of a request: one status, one end, and comments in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Message

from gateway.api import responses
from gateway.api.request import ClientGone
from gateway.api.responses import KEEP_ALIVE, HttpReply
from gateway.errors import InvalidRequest
from gateway.telemetry.access import AttemptRecord, RequestRecord

TICK_S = 0.02


class Wire:
    """Takes what a reply sends; can be slow."""

    def __init__(self, *, endpoint_header: bool = True) -> None:
        self.messages: list[Message] = []
        self.open = asyncio.Event()
        self.open.set()
        self._changed = asyncio.Event()
        self.record = RequestRecord(request_id="r-1", route="/")
        self.reply = HttpReply(self.send, self.record, endpoint_header=endpoint_header)

    async def send(self, message: Message) -> None:
        await self.open.wait()
        self.messages.append(message)
        self._changed.set()

    async def until(self, seen: Callable[[], bool]) -> None:
        while not seen():
            self._changed.clear()
            await self._changed.wait()

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages)

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}


async def test_a_whole_answer_is_one_json_body() -> None:
    wire = Wire()
    wire.record.endpoint = "m:a"
    wire.record.attempts.append(AttemptRecord(endpoint="m:a"))
    await wire.reply.send_json(b'{"x":1}')
    assert [m["type"] for m in wire.messages] == ["http.response.start", "http.response.body"]
    assert wire.headers == {
        "content-type": "application/json",
        "content-length": "7",
        "x-request-id": "r-1",
        "x-concord-attempts": "1",
        "x-concord-endpoint": "m:a",
    }
    assert (wire.record.status, wire.record.bytes_out) == (200, 7)


@pytest.mark.parametrize(("shown", "expected"), [(True, "m:a%20b%0D%0A"), (False, None)])
async def test_the_endpoint_is_named_when_wanted_and_cannot_break_a_header(
    shown: bool, expected: str | None
) -> None:
    wire = Wire(endpoint_header=shown)
    wire.record.endpoint = "m:a b\r\n"
    await wire.reply.write(b"x")
    assert wire.headers.get("x-concord-endpoint") == expected


async def test_a_stream_has_the_headers_that_proxies_need() -> None:
    wire = Wire()
    await wire.reply.write(b"data: 1\n\n")
    await wire.reply.write(b"")
    await wire.reply.finish()
    assert wire.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert wire.headers["cache-control"] == "no-cache, no-transform"
    assert wire.headers["x-accel-buffering"] == "no"
    assert "content-length" not in wire.headers
    assert wire.body == b"data: 1\n\n"
    assert [m.get("more_body") for m in wire.messages] == [None, True, False]
    assert wire.record.bytes_out == 9


async def test_a_failure_before_anything_was_sent_has_a_status() -> None:
    wire = Wire()
    await wire.reply.fail(InvalidRequest("no"))
    assert wire.messages[0]["status"] == 400
    assert json.loads(wire.body)["error"]["message"] == "no"
    assert (wire.record.status, wire.record.error_type) == (400, "invalid_request")


async def test_a_failure_after_that_is_an_event_and_the_end() -> None:
    wire = Wire()
    await wire.reply.write(b"data: 1\n\n")
    await wire.reply.fail(InvalidRequest("no"))
    assert wire.body.startswith(b'data: 1\n\ndata: {"error":')
    assert wire.body.endswith(b"}\n\n")
    assert wire.messages[-1]["more_body"] is False
    assert (wire.record.status, wire.record.error_type) == (200, "invalid_request")


@pytest.mark.parametrize("end", ["json", "stream"])
async def test_a_failure_after_the_end_sends_nothing(end: str) -> None:
    wire = Wire()
    await (wire.reply.send_json(b"{}") if end == "json" else wire.reply.finish())
    sent = len(wire.messages)
    await wire.reply.fail(InvalidRequest("no"))
    assert len(wire.messages) == sent


async def test_silence_is_filled_with_comments_again_and_again() -> None:
    wire = Wire()
    async with wire.reply.kept_alive(TICK_S, None), asyncio.timeout(5):
        await wire.until(lambda: wire.body.count(KEEP_ALIVE) >= 3)
    assert wire.messages[0]["status"] == 200
    sent = len(wire.messages)
    await asyncio.sleep(3 * TICK_S)
    assert len(wire.messages) == sent


async def test_writing_puts_the_next_comment_off() -> None:
    wire = Wire()
    async with wire.reply.kept_alive(0.2, None):
        for _ in range(30):
            await wire.reply.write(b"x")
            await asyncio.sleep(0.01)
    assert KEEP_ALIVE not in wire.body


async def test_without_an_interval_there_are_none() -> None:
    wire = Wire()
    async with wire.reply.kept_alive(0, None):
        await asyncio.sleep(0.01)
    assert not wire.messages


@pytest.mark.parametrize("ticks", range(6))
async def test_leaving_ends_the_comments_at_once_even_right_after_a_write(ticks: int) -> None:
    # Given a keeper that is woken by a write in the tick in which it is cancelled
    wire = Wire()
    async with asyncio.timeout(5):
        async with wire.reply.kept_alive(60, None):
            for _ in range(ticks):
                await asyncio.sleep(0)
            await wire.reply.write(b"x")
        # Then leaving does not wait for the interval
        await wire.reply.finish()
    assert wire.body == b"x"


async def test_a_comment_never_lands_inside_a_slow_write() -> None:
    # Given a client that reads nothing for a while
    wire = Wire()
    await wire.reply.write(b"begin ")
    wire.open.clear()
    async with wire.reply.kept_alive(TICK_S, None):
        writing = asyncio.ensure_future(wire.reply.write(b"data: x\n\n"))
        await asyncio.sleep(3 * TICK_S)
        wire.open.set()
        await writing
        await wire.reply.finish()
    # Then what was written first comes first, and nothing follows the end
    assert wire.body.startswith(b"begin data: x\n\n")
    ends: list[Any] = [m for m in wire.messages if m.get("more_body") is False]
    assert ends == wire.messages[-1:]


@pytest.mark.parametrize("interval_s", [0.0, TICK_S], ids=["no comments", "comments"])
async def test_a_client_that_takes_nothing_for_too_long_is_gone(
    interval_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that has stopped reading
    monkeypatch.setattr(responses, "LOOK_S", TICK_S)
    wire = Wire()
    wire.open.clear()
    async with asyncio.timeout(5):
        # Then whoever writes to it is told
        with pytest.raises(ClientGone):
            async with wire.reply.kept_alive(interval_s, 3 * TICK_S):
                await wire.reply.write(b"data: x\n\n")


async def test_a_client_that_takes_no_comments_is_gone_too() -> None:
    wire = Wire()
    wire.open.clear()
    async with asyncio.timeout(5):
        with pytest.raises(ClientGone):
            async with wire.reply.kept_alive(TICK_S, 3 * TICK_S):
                await asyncio.sleep(60)


async def test_silence_of_the_upstream_is_not_the_clients() -> None:
    wire = Wire()
    async with wire.reply.kept_alive(TICK_S, 2 * TICK_S):
        await asyncio.sleep(8 * TICK_S)
    assert wire.body.count(KEEP_ALIVE) >= 2
