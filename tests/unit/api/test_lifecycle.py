"""A request's work ends with its answer, its client or the drain, and has unwound by then."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from gateway.api.lifecycle import Lifecycle, ShuttingDown
from gateway.errors import InvalidRequest


class Client:
    """A client that stays until told to leave."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}


class Work:
    """Work that notes what becomes of it, and takes a while to unwind."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.log: list[str] = []

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await self.may_end.wait()
            self.log.append("ended")
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0.01)
            self.log.append("unwound")


async def test_work_that_ends_leaves_no_task_behind() -> None:
    work = Work()
    work.may_end.set()
    assert await Lifecycle().run(work(), Client().receive) is True
    assert work.log == ["ended", "unwound"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_the_work_raises_comes_out() -> None:
    async def work() -> None:
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await Lifecycle().run(work(), Client().receive)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_leaves_cancels_the_work_which_unwinds_first() -> None:
    # Given work under way
    client, work = Client(), Work()
    running = asyncio.ensure_future(Lifecycle().run(work(), client.receive))
    await work.begun.wait()
    # When the client leaves
    client.left.set()
    # Then it is told once the work has unwound
    assert await running is False
    assert work.log == ["cancelled", "unwound"]


async def test_when_both_are_done_at_once_the_work_counts() -> None:
    client = Client()

    async def work() -> None:
        client.left.set()

    assert await Lifecycle().run(work(), client.receive) is True


async def test_a_failure_in_the_tick_in_which_the_client_leaves_comes_out() -> None:
    client = Client()

    async def work() -> None:
        client.left.set()
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await Lifecycle().run(work(), client.receive)


async def test_messages_other_than_a_hang_up_are_passed_over() -> None:
    messages = [{"type": "http.request", "body": b"", "more_body": False}] * 3
    work = Work()

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await work.begun.wait()
        return {"type": "http.disconnect"}

    assert await Lifecycle().run(work(), receive) is False
    assert not messages


async def test_the_end_of_the_drain_cuts_work_off() -> None:
    lifecycle, work = Lifecycle(), Work()
    running = asyncio.ensure_future(lifecycle.run(work(), Client().receive))
    await work.begun.wait()
    lifecycle.cut_off()
    with pytest.raises(ShuttingDown) as told:
        await running
    assert (told.value.status, told.value.retry_after_s) == (503, 1)
    assert work.log == ["cancelled", "unwound"]


async def test_after_the_drain_new_work_is_not_begun() -> None:
    lifecycle, work = Lifecycle(), Work()
    lifecycle.cut_off()
    with pytest.raises(ShuttingDown):
        await lifecycle.run(work(), Client().receive)
    assert "ended" not in work.log


async def test_being_cancelled_itself_it_waits_for_the_work_to_unwind() -> None:
    work = Work()
    running = asyncio.ensure_future(Lifecycle().run(work(), Client().receive))
    await work.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.log == ["cancelled", "unwound"]
