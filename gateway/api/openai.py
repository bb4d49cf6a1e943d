"""`POST /v1/chat/completions`."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from gateway.api.lifecycle import Lifecycle
from gateway.api.request import (
    ClientGone,
    FreshIds,
    headers_of,
    peer_of,
    read_body,
    request_id,
)
from gateway.api.responses import HttpReply
from gateway.auth.addresses import Proxies
from gateway.auth.keys import Authenticator
from gateway.config.schema import Settings
from gateway.core.caller import Caller
from gateway.errors import GatewayError
from gateway.exchange import Exchange
from gateway.pipeline import Pipeline
from gateway.protocols.openai_chat import read_request
from gateway.protocols.session import session_id
from gateway.telemetry import access
from gateway.telemetry.logs import Once, bug, event
from gateway.telemetry.tracing import Tracer

CLIENT_CLOSED_REQUEST = 499
"""Stands in the log for a client that hung up; nobody receives it."""


class ChatCompletions:
    """The endpoint, as an ASGI application."""

    def __init__(
        self,
        pipeline: Pipeline,
        authenticator: Authenticator,
        lifecycle: Lifecycle,
        settings: Settings,
        tracer: Tracer,
    ) -> None:
        self._pipeline = pipeline
        self._authenticator = authenticator
        self._lifecycle = lifecycle
        self._tracer = tracer
        self._settings = settings.server
        self._stall_s = settings.timeouts.idle
        keeps_conversations = settings.affinity.enabled or settings.prefill.enabled
        self._session_ids = settings.affinity.session_ids if keeps_conversations else ()
        self._proxies = Proxies(settings.server.trusted_proxies)
        self._fresh_id = FreshIds()
        self._pins_ignored = Once()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and write its line in the access log."""
        headers, peer = headers_of(scope), peer_of(scope)
        trace = self._tracer.begin(headers, scope["path"])
        record = access.RequestRecord(
            request_id=request_id(headers, peer, self._proxies, self._fresh_id),
            route=scope["path"],
            trace_id=trace.id,
        )
        reply = HttpReply(send, record, endpoint_header=self._settings.endpoint_header)
        try:
            address = self._proxies.client(peer, headers.get("x-forwarded-for"))
            caller = await self._authenticator.caller(headers, address)
            record.caller = caller.id
            body = await read_body(receive, headers, self._settings.max_body_bytes)
            chat = read_request(body)
            record.stream = chat.stream
            exchange = Exchange(
                chat=chat,
                caller=caller,
                reply=reply,
                record=record,
                pin=self._pin(headers, caller),
                session_id=session_id(headers, chat, self._session_ids),
                trace=trace,
            )
            stayed = await self._lifecycle.run(self._serve(exchange, reply), receive)
            if not stayed and not reply.finished:
                raise ClientGone
        except GatewayError as error:
            await reply.fail(error)
        except ClientGone:
            record.client_cancelled = True
            record.status = record.status or CLIENT_CLOSED_REQUEST
        except Exception:  # a bug of ours: told in the shape that is still open, in the log, too
            bug(request_id=record.request_id)
            await reply.fail(GatewayError("Internal error."))
        finally:
            access.write(record)
            trace.end(record)

    async def _serve(self, exchange: Exchange, reply: HttpReply) -> None:
        if not exchange.chat.stream:
            return await self._pipeline.chat(exchange)
        async with reply.kept_alive(self._settings.sse_keepalive_s, self._stall_s):
            await self._pipeline.chat(exchange)

    def _pin(self, headers: dict[str, str], caller: Caller) -> str | None:
        """The route an admin asks for; from others the header is ignored."""
        pin = headers.get("x-route-pin")
        if pin and not caller.is_admin:
            if self._pins_ignored.first(caller.id):
                event("route_pin_ignored", caller=caller.id)
            return None
        return pin or None
