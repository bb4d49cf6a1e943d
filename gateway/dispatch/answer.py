"""Whole answers: read within bounds and judged, also where a stream was asked for."""

from __future__ import annotations

import asyncio

import httpx
from msgspec import Struct

from gateway.core.request import ChatRequest, Usage
from gateway.core.route import Route
from gateway.dispatch.body import AnswerTooLarge, close, read_answer, read_error_body
from gateway.dispatch.failures import broken, empty, from_error, from_response
from gateway.dispatch.stream import MAY_BE_EMPTY
from gateway.protocols.openai_answer import MalformedAnswer, read_completion, splice_model


class Completion(Struct, frozen=True, kw_only=True):
    """A whole answer, ready for the client."""

    body: bytes
    usage: Usage | None


async def read_whole(route: Route, chat: ChatRequest, response: httpx.Response) -> Completion:
    """Read a whole answer and close its response. Raises UpstreamFailure."""
    try:
        if response.status_code != 200:
            raise from_response(route, response, await read_error_body(response))
        body = await _read_body(route, response)
    finally:
        await close(response)
    return _completion(route, chat, body)


async def _read_body(route: Route, response: httpx.Response) -> bytes:
    """Read a whole answer. Raises UpstreamFailure."""
    try:
        return await read_answer(response)
    except AnswerTooLarge:
        raise broken(route, "answer_too_large") from None
    except httpx.HTTPError as error:
        raise broken(route, type(error).__name__) from error


def _completion(route: Route, chat: ChatRequest, body: bytes) -> Completion:
    """Judge a whole answer. Raises UpstreamFailure when it is none."""
    try:
        answer = read_completion(body)
    except MalformedAnswer:
        raise broken(route, "malformed_answer") from None
    if answer.error is not None:
        raise from_error(route, answer.error)
    if not answer.choices:
        raise broken(route, "answer_without_choices")
    if answer.model is not None and answer.model != chat.model:
        body = splice_model(body, chat.model)
    completion = Completion(body=body, usage=answer.usage)
    if not answer.has_output and MAY_BE_EMPTY.isdisjoint(answer.finish_reasons.values()):
        failure = empty(route)
        failure.completion = completion
        raise failure
    return completion


async def check_is_stream(route: Route, response: httpx.Response, until_s: float | None) -> None:
    """Raise the failure in a response that is not a stream; else leave its body unread.

    Raises `TimeoutError`, too.
    """
    if response.status_code != 200:
        raise from_response(route, response, await read_error_body(response))
    if not response.headers.get("content-type", "").startswith("application/json"):
        return
    try:
        async with asyncio.timeout_at(until_s):
            answer = read_completion(await _read_body(route, response))
    except MalformedAnswer:
        raise broken(route, "malformed_answer") from None
    if answer.error is not None:
        raise from_error(route, answer.error)
    raise broken(route, "answer_not_streamed")
