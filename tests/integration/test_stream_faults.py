"""What a client reads, byte for byte, when an engine fails in a stream or before it."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.cluster.harness import body
from tests.integration.answers import Answered, ask, assert_good
from tests.integration.conftest import FIRST_BYTE_S, SCRIPTED_PORT, TEXT, Gateway
from tests.integration.scripted import ROLE, delta, upstream

PATH = "/v1/chat/completions"
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


async def test_a_silent_engine_is_failed_over_after_the_first_byte_timeout(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given an engine that sends its headers and then nothing
    gateway.fault(silent=True)
    # When a stream is asked for
    began = time.monotonic()
    asked = body(model="hasty-pair", stream=True)
    async with http.stream("POST", PATH, json=asked) as answer:
        waited_s = time.monotonic() - began
        content = await answer.aread()
    # Then the client sees only the second engine's answer, and nothing before the timeout
    assert waited_s >= FIRST_BYTE_S
    assert_good(Answered(answer.status_code, content, answer.headers))
    assert answer.headers["x-concord-attempts"] == "2"
    assert gateway.asked == (1, 1)


@STREAMED
async def test_a_silent_engine_alone_is_a_timeout(
    streamed: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(silent=True)
    answer = await ask(http, "hasty-alone", stream=streamed)
    assert answer.status == 504
    assert answer.error
    assert answer.error["code"] == "upstream_timeout"


@pytest.mark.parametrize(
    "parts",
    [[ROLE], [b": ping\n\n"], [b": ping\n\n", ROLE, delta(content="")], [b"event: ping\n\n"], []],
    ids=["role", "comment", "empty content", "event without data", "headers"],
)
async def test_what_is_no_output_commits_to_nothing(
    parts: list[bytes], http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given an upstream that begins without saying anything, and stays silent
    async with upstream(SCRIPTED_PORT, *parts, stays=True) as silent:
        # When a stream is asked for
        answer = await ask(http, "scripted-pair")
        # Then the other engine answers, and the silent one is hung up on
        assert_good(answer)
        await silent.hung_up.wait()
    assert silent.connections == 1
    assert gateway.asked == (0, 1)


@pytest.mark.parametrize("part", [ROLE, b": ping\n\n", b"data: {broken\n\n"])
async def test_an_upstream_that_sends_much_and_says_nothing_is_failed_over(
    part: bytes, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given an upstream that goes on and on without any output
    async with upstream(SCRIPTED_PORT, part * (4_000_000 // len(part)), stays=True) as chatty:
        # When a stream is asked for
        answer = await ask(http, "scripted-pair")
        # Then the other engine answers, and the first is hung up on
        assert_good(answer)
        await chatty.hung_up.wait()
    assert answer.headers["x-concord-attempts"] == "2"
    assert gateway.asked == (0, 1)


@pytest.mark.parametrize("tokens", [1, 3])
async def test_a_stream_cut_after_tokens_ends_with_an_error_event(
    tokens: int, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(cut_after_tokens=tokens)
    answer = await ask(http, "pair")
    assert answer.status == 200
    assert answer.text == " ".join(TEXT.split()[:tokens])
    assert not answer.is_done
    assert answer.error
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["code"] == "upstream_error"
    assert gateway.asked == (1, 0)


@STREAMED
@pytest.mark.parametrize(
    "fault",
    [
        {"cut_after_tokens": 0},
        {"empty": True},
        {"error_frame": {"message": "no", "code": 500}},
        {"status": 503},
        {"status": 400},
        {"status": 401},
    ],
    ids=lambda fault: next(iter(fault)),
)
async def test_an_engine_that_fails_before_output_is_failed_over(
    fault: dict[str, Any], streamed: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(**fault)
    answer = await ask(http, "pair", stream=streamed)
    assert gateway.asked == (1, 1)
    if streamed:
        return assert_good(answer)
    assert json.loads(answer.content)["choices"][0]["message"]["content"] == TEXT


@STREAMED
async def test_an_engine_that_cannot_be_reached_is_failed_over(
    streamed: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    answer = await ask(http, "dead-first", stream=streamed)
    assert answer.status == 200
    assert answer.headers["x-concord-attempts"] == "2"
    assert gateway.asked == (0, 1)


async def test_an_empty_stream_is_passed_on_as_it_came_when_there_is_no_other(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(empty=True)
    answer = await ask(http, "alone")
    assert answer.status == 200
    assert answer.text == ""
    assert answer.is_done
    assert answer.error is None
    assert [chunk["choices"][0]["finish_reason"] for chunk in answer.events] == [None, "stop"]


async def test_an_empty_answer_is_passed_on_as_it_came_when_there_is_no_other(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(empty=True)
    answer = await ask(http, "alone", stream=False)
    [choice] = json.loads(answer.content)["choices"]
    assert (answer.status, choice["message"]["content"]) == (200, "")


async def test_a_malformed_chunk_is_left_out_and_the_stream_goes_on(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(malformed_chunk=3)
    answer = await ask(http, "pair")
    assert answer.text == TEXT.replace(" tok1", "")
    assert answer.is_done
    assert answer.error is None
    assert gateway.asked == (1, 0)
    line = gateway.cluster.replicas[0].events("request")[-1]
    assert (line["malformed_chunks"], line["status"]) == (1, 200)


async def test_a_malformed_whole_answer_is_failed_over(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(malformed_chunk=1)
    answer = await ask(http, "pair", stream=False)
    assert answer.status == 200
    assert gateway.asked == (1, 1)
    answer = await ask(http, "alone", stream=False)
    assert answer.status == 502


@STREAMED
@pytest.mark.parametrize(
    ("frame", "status"),
    [
        ({"message": "no", "code": 429}, 429),
        ({"message": "no", "code": "529"}, 529),
        ({"message": "no", "code": "rate_limit_exceeded"}, 429),
        ({"message": "no", "type": "invalid_request_error"}, 400),
        ({"message": "no", "code": 401}, 502),
        ({"message": "no"}, 502),
        ({"message": "no", "code": 200}, 502),
    ],
    ids=["429", "529", "named", "typed", "401", "bare", "200"],
)
async def test_an_error_frame_alone_has_the_status_of_its_code(
    frame: dict[str, Any], status: int, streamed: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(error_frame=frame)
    answer = await ask(http, "alone", stream=streamed)
    assert answer.status == status
    assert answer.error
    concerns_our_key = frame.get("code") == 401
    assert (answer.error["message"] == "no") is not concerns_our_key


async def test_an_error_frame_after_tokens_ends_the_stream_in_its_words(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(error_frame={"message": "out of memory", "code": 500}, after_tokens=2)
    answer = await ask(http, "pair")
    assert answer.text == "tok0 tok1"
    assert answer.error
    assert answer.error["message"] == "out of memory"
    assert not answer.is_done
    assert gateway.asked == (1, 0)


async def test_a_finished_stream_without_done_gets_one(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(no_done=True)
    assert_good(await ask(http, "pair"))
    assert gateway.asked == (1, 0)
