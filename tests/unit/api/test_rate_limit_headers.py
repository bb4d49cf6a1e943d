"""Answers say what is left of the caller's limits, as OpenAI's do."""

from __future__ import annotations

import pytest

from gateway.api.responses import HttpReply, duration, rate_limit_headers
from gateway.core.limits import NO_ROOM, Left, Room
from gateway.errors import CallerLimited
from gateway.telemetry.access import RequestRecord


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (1, "1s"),
        (1000, "1s"),
        (1001, "2s"),
        (59_999, "1m0s"),
        (360_000, "6m0s"),
        (3_599_001, "1h0m0s"),
        (90_061_000, "25h1m1s"),
    ],
)
def test_durations_are_whole_seconds_rounded_up(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_each_kind_of_limit_has_its_three_headers_and_no_limit_has_none() -> None:
    requests, tokens = Left(60, 59, 61_500), Left(100_000, 0, 1)
    expected = {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"59",
        b"x-ratelimit-reset-requests": b"1m2s",
        b"x-ratelimit-limit-tokens": b"100000",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"1s",
    }
    both = dict(rate_limit_headers(Room(requests=requests, tokens=tokens)))
    assert both == expected
    assert dict(rate_limit_headers(Room(requests=requests))) == {
        name: value for name, value in expected.items() if name.endswith(b"requests")
    }
    assert rate_limit_headers(NO_ROOM) == []


@pytest.mark.parametrize("kind", ["json", "stream", "refusal"])
async def test_every_kind_of_answer_has_them(kind: str) -> None:
    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        sent.append(message)  # type: ignore[arg-type]

    record = RequestRecord(request_id="r-1", route="/", room=Room(requests=Left(2, 1, 5)))
    reply = HttpReply(send, record, endpoint_header=False)  # type: ignore[arg-type]
    if kind == "json":
        await reply.send_json(b"{}")
    elif kind == "stream":
        await reply.finish()
    else:
        await reply.fail(CallerLimited("no", limit="key:a rpm", retry_after_s=3))
    headers = dict(sent[0]["headers"])  # type: ignore[call-overload]
    assert headers[b"x-ratelimit-remaining-requests"] == b"1"
    assert headers.get(b"retry-after") == (b"3" if kind == "refusal" else None)
