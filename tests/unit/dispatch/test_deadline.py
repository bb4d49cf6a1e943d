"""A deadline cancels a wait that is overdue, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from gateway.dispatch.deadline import Deadline

SOON_S = 0.02


async def wait(deadline: Deadline, due_in_s: float | None, for_s: float) -> bool:
    """Wait under the deadline. Returns whether it passed."""
    now = asyncio.get_running_loop().time()
    deadline.move(None if due_in_s is None else now + due_in_s)
    try:
        await asyncio.sleep(for_s)
    except asyncio.CancelledError:
        if not deadline.has_passed():
            raise
        return True
    finally:
        deadline.move(None)
    return False


async def test_an_overdue_wait_ends() -> None:
    assert await wait(Deadline(), SOON_S, 5)


async def test_a_wait_in_time_goes_on() -> None:
    deadline = Deadline()
    for _ in range(3):
        assert not await wait(deadline, 5, 0)
    assert not await wait(deadline, None, 0.01)


async def test_each_wait_has_its_own_time_earlier_or_later() -> None:
    deadline = Deadline()
    assert not await wait(deadline, 60, 0)
    assert await wait(deadline, SOON_S, 5), "an earlier one is not missed"
    assert not await wait(deadline, SOON_S, 0)
    assert not await wait(deadline, 5, 2 * SOON_S), "a later one is not cut short"


async def test_between_waits_nothing_is_cancelled() -> None:
    deadline = Deadline()
    assert not await wait(deadline, SOON_S, 0)
    await asyncio.sleep(3 * SOON_S)
    assert await wait(deadline, SOON_S, 5)


async def test_a_cancellation_by_others_is_theirs() -> None:
    async def work() -> bool:
        return await wait(Deadline(), 5, 5)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_by_others_in_the_same_tick_wins() -> None:
    loop = asyncio.get_running_loop()

    async def work() -> bool:
        # The deadline fires, and before its task has heard of it somebody else cancels, too
        loop.call_later(SOON_S, lambda: loop.call_soon(task.cancel))
        return await wait(Deadline(), SOON_S, 5)

    task = asyncio.ensure_future(work())
    await asyncio.wait({task})
    assert task.cancelled() or task.result() is True
    assert task.cancelled() or task.cancelling() == 0


async def test_a_closed_deadline_leaves_no_timer() -> None:
    deadline = Deadline()
    deadline.move(asyncio.get_running_loop().time() + SOON_S)
    deadline.close()
    await asyncio.sleep(2 * SOON_S)
