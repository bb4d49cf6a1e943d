"""The instrumented transport: a span around a call, and otherwise the same call."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from gateway.dispatch.http1 import Http1Transport
from gateway.dispatch.traced import TracedTransport
from tests.unit.dispatch.upstream_doubles import RawServer, ScriptedTransport, Step

URL = "http://upstream.invalid:8000/v1/chat/completions"


class Spans:
    """A provider, and what was recorded with it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def only(self) -> ReadableSpan:
        [span] = self.ended()
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


def request(url: str = URL, **extensions: Any) -> httpx.Request:
    return httpx.Request(
        "POST",
        url,
        headers=[(b"host", b"h"), (b"authorization", b"Bearer canary"), (b"content-length", b"2")],
        stream=httpx.ByteStream(b"{}"),
        extensions=extensions,
    )


def scripted(*steps: Step, **script: Any) -> ScriptedTransport:
    return ScriptedTransport(*steps, **script)


async def test_the_request_goes_out_as_it_is_and_as_part_of_the_trace(spans: Spans) -> None:
    upstream = scripted(b"{}")
    sent = request(timeout={"connect": 1})

    await TracedTransport(upstream, spans.provider).handle_async_request(sent)

    assert upstream.requests == [sent]
    context = spans.only().context
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert sent.headers.get_list("traceparent") == [traceparent]
    assert sent.headers["authorization"] == "Bearer canary"
    assert sent.extensions == {"timeout": {"connect": 1}}


async def test_the_span_is_part_of_the_one_that_is_current(spans: Spans) -> None:
    with spans.provider.get_tracer("tests").start_as_current_span("attempt") as attempt:
        await TracedTransport(scripted(b""), spans.provider).handle_async_request(request())

    call, _ = spans.ended()
    assert call.parent == attempt.get_span_context()


async def test_a_body_is_passed_through_chunk_by_chunk(spans: Spans) -> None:
    # Given an answer that stops after its first chunk
    upstream = scripted(b"one", None)
    transport = TracedTransport(upstream, spans.provider)

    # Then the chunk is there all the same, and the span has ended with the headers
    response = await transport.handle_async_request(request())
    assert response.stream is upstream.body
    assert isinstance(response.stream, httpx.AsyncByteStream)
    assert await anext(aiter(response.stream)) == b"one"
    assert spans.only().end_time is not None
    await response.stream.aclose()


async def test_a_failure_is_raised_as_it_is_and_recorded(spans: Spans) -> None:
    class Refusing(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise error

    error = httpx.RemoteProtocolError("Bad status line: canary")
    with pytest.raises(httpx.RemoteProtocolError) as raised:
        await TracedTransport(Refusing(), spans.provider).handle_async_request(request())

    # Of the failure its class alone: its text may quote an upstream, and that a prompt.
    assert raised.value is error
    assert spans.only().status.status_code is StatusCode.ERROR
    assert (spans.only().attributes or {})["error.type"] == "RemoteProtocolError"
    assert "canary" not in spans.only().to_json()


async def test_a_cancellation_passes_and_ends_the_span(spans: Spans) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    class Hanging(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            raise AssertionError

    transport = TracedTransport(Hanging(), spans.provider)
    task = asyncio.create_task(transport.handle_async_request(request()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert left.is_set()
    assert spans.only().end_time is not None


@pytest.mark.parametrize(
    "variable",
    [
        "OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST",
        "OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_RESPONSE",
    ],
)
async def test_no_credential_gets_into_a_span_whatever_the_environment_asks_for(
    variable: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, ".*")
    url = "http://user:canary@upstream.invalid/v1?key=canary#canary"

    await TracedTransport(scripted(b""), spans.provider).handle_async_request(request(url))

    assert "canary" not in spans.only().to_json()
    assert "http://upstream.invalid/v1" in spans.only().to_json()


async def test_our_own_transport_works_behind_it(spans: Spans, start_server: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    server: RawServer = await start_server(answer)
    transport = Http1Transport()
    traced = TracedTransport(transport, spans.provider)

    for _ in range(2):
        sent = request(f"http://127.0.0.1:{server.port}/v1")
        response = await traced.handle_async_request(sent)
        assert await response.aread() == b"ok"

    assert server.connections == 1
    assert [raw.lower().count(b"traceparent: ") for raw in server.requests] == [1, 1]
    await transport.aclose()
