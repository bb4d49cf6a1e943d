"""What counts as output, what ends a stream, and which bytes of it the client gets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.answers import ask
from tests.integration.conftest import SCRIPTED_PORT, Gateway
from tests.integration.scripted import DONE, ROLE, delta, event, upstream


async def test_done_without_a_finish_is_a_break(http: httpx.AsyncClient, gateway: Gateway) -> None:
    async with upstream(SCRIPTED_PORT, ROLE, delta(content="x"), DONE):
        answer = await ask(http, "scripted-pair")
    assert answer.text == "x"
    assert answer.error
    assert not answer.is_done
    assert gateway.asked == (0, 0)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_without_output_but_with_a_reason_is_passed_on(
    reason: str, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    async with upstream(SCRIPTED_PORT, ROLE, delta(finish=reason), DONE):
        answer = await ask(http, "scripted-pair")
    assert answer.is_done
    assert answer.events[-1]["choices"][0]["finish_reason"] == reason
    assert answer.error is None
    assert gateway.asked == (0, 0)


@pytest.mark.parametrize(
    "said",
    [
        {"reasoning_content": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"audio": {"id": "a"}},
    ],
    ids=lambda said: next(iter(said)),
)
async def test_output_other_than_text_is_output(
    said: dict[str, Any], http: httpx.AsyncClient, gateway: Gateway
) -> None:
    async with upstream(SCRIPTED_PORT, ROLE, delta(**said), delta(finish="stop"), DONE):
        answer = await ask(http, "scripted-pair")
    assert answer.events[1]["choices"][0]["delta"] == said
    assert answer.is_done
    assert gateway.asked == (0, 0)


async def test_chunks_are_relayed_as_they_came_but_for_the_models_name(
    http: httpx.AsyncClient,
) -> None:
    # Given an upstream with spacing, escapes and fields of its own
    said = b'[{"index":0,"delta":{"content":"\\u00e9 \xc3\xa9"}}]'
    odd = b'{ "model" : "x", "choices":' + said + b', "z":1.0 }'
    usage = event({"model": "x", "choices": [], "usage": {"prompt_tokens": 1}})
    frames = [b"data:" + odd + b"\r\n\r\n", delta(finish="stop"), usage, DONE]
    async with upstream(SCRIPTED_PORT, *frames):
        answer = await ask(http, "scripted-alone")
    named = odd.replace(b'"x"', b'"scripted-alone"')
    last = delta(finish="stop").replace(b'"x"', b'"scripted-alone"')
    assert answer.content == b"data: " + named + b"\n\n" + last + DONE


async def test_text_cut_inside_an_emoji_goes_both_ways_as_it_is_written(
    http: httpx.AsyncClient,
) -> None:
    # Given halves of emojis as escapes, in the request and in the chunks
    asked = b'{"model":"scripted-alone","stream":true,"messages":[{"content":"hi \\ud83d and"}]}'
    halves = [delta(content="\ud83d"), delta(content="\ude00"), delta(finish="stop")]
    async with upstream(SCRIPTED_PORT, *halves, DONE):
        answer = await http.post("/v1/chat/completions", content=asked)
    assert answer.status_code == 200
    assert answer.content == b"".join([*halves, DONE]).replace(b'"x"', b'"scripted-alone"')
