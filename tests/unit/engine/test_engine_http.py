"""The engine over a real connection: latency, slots, disconnects, faults and control."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from gateway.engine.app import engine_app
from gateway.engine.settings import EngineSettings

QUICK = EngineSettings(name="engine-a", ttft_ms=1, tokens_per_s=1000, output_tokens=4)


@asynccontextmanager
async def engine(settings: EngineSettings = QUICK) -> AsyncIterator[httpx.AsyncClient]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(engine_app(settings), lifespan="off", log_level="critical", http="httptools")
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields}


async def chat(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/chat/completions", json=body(**fields))


async def stream(client: httpx.AsyncClient, **fields: Any) -> list[str]:
    """All `data:` payloads of a stream; a broken connection raises as httpx does."""
    request = client.stream("POST", "/v1/chat/completions", json=body(stream=True, **fields))
    async with request as response:
        assert response.status_code == 200
        return [
            line.removeprefix("data: ")
            async for line in response.aiter_lines()
            if line.startswith("data: ")
        ]


async def control(client: httpx.AsyncClient, **fault: Any) -> None:
    (await client.post("/control", json={"fault": fault})).raise_for_status()


async def counts(client: httpx.AsyncClient) -> dict[str, Any]:
    answered: dict[str, Any] = (await client.get("/control")).json()
    return answered


async def until(client: httpx.AsyncClient, within_s: float = 1.0, **expected: int) -> None:
    """Wait until the counts are as expected."""
    deadline = time.monotonic() + within_s
    while True:
        now = await counts(client)
        if expected.items() <= now.items():
            return
        assert time.monotonic() < deadline, f"{now} instead of {expected}"
        await asyncio.sleep(0.005)


async def test_answers_and_reports_what_it_received() -> None:
    async with engine() as client:
        answered = await client.post(
            "/v1/chat/completions", json=body(seed=1), headers={"Authorization": "Bearer x"}
        )

        assert answered.json()["system_fingerprint"] == "engine-a"
        assert answered.json()["choices"][0]["message"]["content"] == "tok0 tok1 tok2 tok3"
        seen = await counts(client)
        assert (seen["requests"], seen["active"], seen["max_active"]) == (1, 0, 1)
        assert seen["last"]["body"] == body(seed=1)
        assert seen["last"]["headers"]["authorization"] == "Bearer x"


async def test_streams_to_the_end() -> None:
    async with engine() as client:
        payloads = await stream(client, stream_options={"include_usage": True})

        assert payloads[-1] == "[DONE]"
        assert json.loads(payloads[-2])["usage"]["completion_tokens"] == 4


async def test_lists_a_model_and_is_healthy() -> None:
    async with engine() as client:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "engine-a"
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"messages": [{"role": "user"}]}', "missing required field `model`"),
        (b'{"model": "m", "messages": []}', "length >= 1"),
        (b'{"model": "m", "messages": [{"role": "user"}], "max_tokens": 0}', ">= 1"),
    ],
)
async def test_malformed_request_gets_an_openai_error(content: bytes, said: str) -> None:
    async with engine() as client:
        answered = await client.post("/v1/chat/completions", content=content)

        assert answered.status_code == 400
        error = answered.json()["error"]
        assert said in error["message"]
        assert error["type"] == "invalid_request_error"


async def test_unknown_path_and_method_get_openai_errors() -> None:
    async with engine() as client:
        for answered in (await client.get("/nope"), await client.get("/v1/chat/completions")):
            assert answered.status_code in (404, 405)
            assert answered.json()["error"]["message"]


async def test_prompt_and_output_take_their_time() -> None:
    settings = EngineSettings(
        ttft_ms=20, prefill_tokens_per_s=1000, tokens_per_s=100, output_tokens=6
    )
    async with engine(settings) as client:
        began = time.monotonic()
        request = body(stream=True, messages=[{"role": "user", "content": "x" * 400}])
        async with client.stream("POST", "/v1/chat/completions", json=request) as response:
            lines = [(line, time.monotonic() - began) async for line in response.aiter_lines()]

        assert 0.11 < lines[0][1] < 0.4  # 20 ms, and 100 tokens at 1000/s
        assert 0.16 < lines[-1][1] < 0.6  # five more tokens at 100/s


async def test_requests_beyond_the_slots_wait_in_line() -> None:
    async with engine(EngineSettings(ttft_ms=30, tokens_per_s=0, slots=1)) as client:
        served: list[int] = []

        async def ask(number: int) -> None:
            await chat(client)
            served.append(number)

        asked = []
        for number in range(4):
            asked.append(asyncio.create_task(ask(number)))
            await until(client, requests=number + 1)
        await asyncio.gather(*asked)

        assert served == [0, 1, 2, 3]
        assert (await counts(client))["max_active"] == 1


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_client_that_leaves_frees_its_slot(streaming: bool) -> None:
    async with engine(EngineSettings(ttft_ms=60_000, slots=1)) as client:
        leaving = asyncio.create_task(chat(client, stream=streaming))
        await until(client, active=1)
        also_leaving = asyncio.create_task(chat(client, stream=streaming))
        await until(client, waiting=1)

        leaving.cancel()
        await until(client, within_s=0.3, active=1, waiting=0, cancelled=1)
        also_leaving.cancel()
        await until(client, within_s=0.3, active=0, cancelled=2)


async def test_status_fault_answers_as_told_and_then_stops() -> None:
    async with engine() as client:
        await control(
            client,
            status=429,
            count=1,
            body={"error": {"message": "slow"}},
            headers={"Retry-After": "7"},
        )

        struck, served = await chat(client), await chat(client)

        assert (struck.status_code, struck.headers["retry-after"]) == (429, "7")
        assert struck.json() == {"error": {"message": "slow"}}
        assert served.status_code == 200


async def test_status_fault_speaks_openai_by_default_and_text_when_told() -> None:
    async with engine() as client:
        await control(client, status=503)
        assert (await chat(client)).json()["error"]["code"] == "simulated"

        await control(client, status=502, body="<html>bad gateway</html>")
        answered = await chat(client)
        assert (answered.status_code, answered.text) == (502, "<html>bad gateway</html>")


async def test_delay_holds_back_the_headers() -> None:
    async with engine() as client:
        await control(client, delay_ms=100)

        began = time.monotonic()
        async with client.stream("POST", "/v1/chat/completions", json=body(stream=True)):
            assert time.monotonic() - began > 0.1


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_cut_drops_the_connection(streaming: bool) -> None:
    async with engine() as client:
        await control(client, cut_after_tokens=1)

        with pytest.raises(httpx.RemoteProtocolError):
            await chat(client, stream=streaming)


async def test_silent_stream_sends_headers_and_nothing_else() -> None:
    async with engine() as client:
        await control(client, silent=True)

        request = client.stream("POST", "/v1/chat/completions", json=body(stream=True))
        async with request as response:
            assert response.status_code == 200
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(response.aiter_bytes())
        await until(client, active=0, cancelled=1)


async def test_silent_answer_never_comes() -> None:
    async with engine() as client:
        await control(client, silent=True)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await chat(client)
        await until(client, active=0, cancelled=1)


async def test_malformed_chunk_leaves_the_rest_whole() -> None:
    async with engine() as client:
        await control(client, malformed_chunk=2)

        payloads = await stream(client)

        with pytest.raises(json.JSONDecodeError):
            json.loads(payloads[1])
        assert json.loads(payloads[2])["choices"][0]["delta"] == {"content": " tok1"}
        assert payloads[-1] == "[DONE]"


async def test_error_frame_comes_with_status_200() -> None:
    async with engine() as client:
        await control(client, error_frame={"code": "overloaded"})

        assert await stream(client) == ['{"error":{"code":"overloaded"}}']
        assert (await chat(client)).json() == {"error": {"code": "overloaded"}}


async def test_empty_answer_stops_without_output() -> None:
    async with engine() as client:
        await control(client, empty=True)

        choice = (await chat(client)).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
        payloads = await stream(client)
        assert len(payloads) == 3
        assert json.loads(payloads[1])["choices"][0]["finish_reason"] == "stop"


async def test_stream_may_end_without_done() -> None:
    async with engine() as client:
        await control(client, no_done=True)

        assert json.loads((await stream(client))[-1])["choices"][0]["finish_reason"] == "stop"


async def test_bad_control_is_a_400_that_says_why() -> None:
    async with engine() as client:
        answered = await client.post("/control", json={"fault": {"crash": True}})

        assert answered.status_code == 400
        assert "crash" in answered.json()["error"]["message"]


async def test_delete_clears_faults_and_counters_apart() -> None:
    async with engine() as client:
        await control(client, status=503)
        await chat(client)

        await client.delete("/control")
        assert (await counts(client))["requests"] == 1
        assert (await chat(client)).status_code == 200

        await client.delete("/control?counters=1")
        cleared = await counts(client)
        assert (cleared["requests"], cleared["max_active"], cleared["last"]) == (0, 0, None)
