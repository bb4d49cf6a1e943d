"""A request body is read up to its cap and no further."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.types import Message, Receive

from gateway.api.request import ClientGone, read_body
from gateway.errors import RequestTooLarge


def receiving(*parts: bytes, ends: bool = True) -> Receive:
    """The parts, then a hang-up."""

    def messages() -> Iterator[Message]:
        for index, part in enumerate(parts):
            more = not ends or index < len(parts) - 1
            yield {"type": "http.request", "body": part, "more_body": more}
        yield {"type": "http.disconnect"}

    script = messages()

    async def receive() -> Message:
        return next(script)

    return receive


async def test_a_body_of_exactly_the_cap_is_read() -> None:
    headers = {"content-length": "10"}
    assert await read_body(receiving(b"01234", b"56789"), headers, 10) == b"0123456789"
    assert await read_body(receiving(b""), {}, 10) == b""


async def test_a_body_declared_larger_is_refused_unread() -> None:
    async def receive() -> Message:
        raise AssertionError("nothing may be read")

    with pytest.raises(RequestTooLarge) as refused:
        await read_body(receive, {"content-length": "11"}, 10)
    assert refused.value.message == "The request body is larger than 10 bytes."


async def test_an_endless_body_is_refused_once_it_is_over_the_cap() -> None:
    pieces = 0

    async def receive() -> Message:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": b"1234", "more_body": True}

    with pytest.raises(RequestTooLarge):
        await read_body(receive, {}, 10)
    assert pieces == 3


async def test_a_body_that_declares_too_little_is_counted_all_the_same() -> None:
    with pytest.raises(RequestTooLarge):
        await read_body(receiving(b"x" * 11), {"content-length": "1"}, 10)


@pytest.mark.parametrize("declared", ["", "-1", "junk", "1.5", "²"])
async def test_a_length_that_is_no_number_is_ignored(declared: str) -> None:
    assert await read_body(receiving(b"x"), {"content-length": declared}, 10) == b"x"


async def test_a_client_that_leaves_half_way_is_gone() -> None:
    with pytest.raises(ClientGone):
        await read_body(receiving(b"x", ends=False), {}, 10)
