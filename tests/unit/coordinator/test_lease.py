"""Work is done under the lease, and ends with it, however it is lost."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

import pytest

from coordinator.lease import Lease
from gateway.errors import ScriptBug, StateUnavailable
from gateway.state.coordinator_store import Fenced, LeaseReply
from tests.unit.coordinator.conftest import Rig, until

LEASE_S = 0.5


class Election:
    """A store that answers a question for the lease by what a test says of it."""

    def __init__(self) -> None:
        self.answer: Callable[[], LeaseReply] = self.grants(1)
        self.asked: list[int] = []
        """The epoch that was named with each question."""
        self.left = False

    def grants(self, epoch: int) -> Callable[[], LeaseReply]:
        return lambda: LeaseReply("held", epoch, "c1", 500)

    def refuses(self) -> LeaseReply:
        return LeaseReply("taken", 9, "c2", 500)

    def is_away(self) -> LeaseReply:
        raise StateUnavailable

    async def lease(self, holder: str, *, epoch: int, **_: object) -> LeaseReply:
        self.asked.append(epoch)
        return self.answer()

    async def leave(self, holder: str) -> None:
        self.left = True


class Work:
    """Notes under which epochs it is done, and whether it is just now."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.runs = False
        self.failing: Exception | None = None

    async def __call__(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.runs = True
        try:
            await until(lambda: self.failing)
            assert self.failing
            raise self.failing
        finally:
            self.runs = False


class Publishing(Work):
    """Work that publishes once, and then goes on."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig
        self.has_published = False

    async def __call__(self, epoch: int) -> None:
        self.epochs.append(epoch)
        await self._rig.coordinator.publish(epoch, "tick", "n=1")
        self.has_published = True
        await asyncio.Event().wait()


def lease_of(election: Election, lease_s: float = LEASE_S) -> Lease:
    return Lease(
        election,  # type: ignore[arg-type]
        "c1",
        about=lambda: "host=h",
        lease_s=lease_s,
        call_s=0.01,
    )


@pytest.fixture
def election() -> Election:
    return Election()


@pytest.fixture
def work() -> Work:
    return Work()


class Leading:
    """Stands for election while the context is open."""

    def __init__(self, lease: Lease, work: Work) -> None:
        self._lease, self._work = lease, work

    async def __aenter__(self) -> Lease:
        self._task = asyncio.create_task(self._lease.lead(self._work))
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()


async def test_leader_works_under_the_epoch_and_renews(election: Election, work: Work) -> None:
    async with Leading(lease_of(election), work) as lease:
        await until(lambda: len(election.asked) >= 4)
        assert (work.epochs, lease.epoch, lease.leader) == ([1], 1, "c1")
    assert election.asked[:2] == [0, 1]
    assert not work.runs
    assert lease.epoch is None


async def test_standby_asks_again_and_again_and_does_nothing(
    election: Election, work: Work
) -> None:
    election.answer = election.refuses
    async with Leading(lease_of(election), work) as lease:
        await until(lambda: len(election.asked) >= 3)
        assert (work.epochs, lease.epoch, lease.leader) == ([], None, "c2")
        election.answer = election.grants(10)
        await until(lambda: work.runs)
        assert work.epochs == [10]


async def test_work_ends_when_another_has_the_lease(election: Election, work: Work) -> None:
    async with Leading(lease_of(election), work):
        await until(lambda: work.runs)
        election.answer = election.refuses
        await until(lambda: not work.runs)
        election.answer = election.grants(12)
        await until(lambda: work.runs)
    assert work.epochs == [1, 12]


async def test_work_ends_before_a_lease_that_could_not_be_renewed_does(
    election: Election, work: Work
) -> None:
    loop = asyncio.get_running_loop()
    async with Leading(lease_of(election), work):
        await until(lambda: work.runs)
        election.answer = election.is_away
        asked = len(election.asked)
        began_s = loop.time()
        await until(lambda: not work.runs)
        # It has asked meanwhile, and did not work as long as the lease lasts
        assert len(election.asked) > asked
        assert loop.time() - began_s < LEASE_S


async def test_work_can_tell_that_its_time_is_over_before_it_is_cancelled(
    election: Election,
) -> None:
    """As in a process that was frozen: what was due meanwhile comes before the cancellation."""
    lease = lease_of(election)
    held: list[bool] = []

    async def work(_: int) -> None:
        held.append(lease.is_held)
        time.sleep(LEASE_S)  # noqa: ASYNC251 - nothing of this process goes on
        held.append(lease.is_held)
        await asyncio.Event().wait()

    assert not lease.is_held
    leading = asyncio.create_task(lease.lead(work))
    await until(lambda: held)
    leading.cancel()
    await asyncio.wait({leading})
    assert held == [True, False]
    assert not lease.is_held


async def test_renewed_it_may_be_worked_on(election: Election, work: Work) -> None:
    async with Leading(lease_of(election), work) as lease:
        await until(lambda: work.runs)
        first_s = lease.until_s
        await until(lambda: lease.until_s > first_s)
        assert lease.is_held


async def test_work_begins_anew_under_another_epoch(election: Election, work: Work) -> None:
    async with Leading(lease_of(election), work):
        await until(lambda: work.runs)
        election.answer = election.grants(2)  # the record was lost, and this one came first again
        await until(lambda: work.epochs == [1, 2])


@pytest.mark.parametrize("nested", [False, True])
async def test_work_that_meets_a_newer_leader_ends(
    election: Election, work: Work, nested: bool
) -> None:
    async with Leading(lease_of(election), work):
        await until(lambda: work.runs)
        election.answer = election.refuses
        work.failing = ExceptionGroup("", [Fenced("publish")]) if nested else Fenced("publish")
        await until(lambda: not work.runs)
        work.failing = None
        election.answer = election.grants(3)
        await until(lambda: work.epochs == [1, 3])


async def test_work_that_fails_otherwise_is_a_fault_of_ours(election: Election, work: Work) -> None:
    work.failing = RuntimeError("broken")
    with pytest.raises(ExceptionGroup) as failed:
        await lease_of(election).lead(work)
    assert failed.group_contains(RuntimeError, match="broken")


async def test_record_that_is_something_else_keeps_nobody_from_asking_again(
    election: Election, work: Work
) -> None:
    answers = itertools.chain([ScriptBug("WRONGTYPE")] * 2, itertools.repeat(None))

    def answer() -> LeaseReply:
        if (error := next(answers)) is not None:
            raise error
        return LeaseReply("held", 1, "c1", 500)

    election.answer = answer
    async with Leading(lease_of(election), work):
        await until(lambda: work.runs)
    assert len(election.asked) >= 3


async def test_leaving_tells_the_store_and_stands_its_absence(election: Election) -> None:
    lease = lease_of(election)
    await lease.leave()
    assert election.left

    async def away(_: str) -> None:
        raise StateUnavailable

    election.leave = away  # type: ignore[method-assign]
    await lease.leave()


@pytest.mark.parametrize(
    ("lease_s", "call_s", "is_enough"),
    [(10, 2.0, True), (10, 2.01, False), (0.5, 0.1, True), (0.5, 0.11, False)],
)
def test_lease_must_leave_time_for_a_second_question(
    election: Election, lease_s: float, call_s: float, is_enough: bool
) -> None:
    def make() -> Lease:
        return Lease(
            election,  # type: ignore[arg-type]
            "c1",
            about=lambda: "",
            lease_s=lease_s,
            call_s=call_s,
        )

    if is_enough:
        make()
    else:
        with pytest.raises(ValueError, match="five times as long"):
            make()


async def test_of_two_one_leads_and_a_frozen_one_writes_nothing_any_more(rig: Rig) -> None:
    """Against Redis: the old leader's clock stands still, as that of a suspended machine does."""
    first = Work()

    def lease_under(holder: str) -> Lease:
        return Lease(rig.coordinator, holder, about=lambda: "host=h", lease_s=LEASE_S, call_s=0.1)

    async with Leading(lease_under("c1"), first) as frozen:
        await until(lambda: first.runs)
        old = frozen.epoch
        assert old is not None
        await rig.coordinator.publish(old, "tick", "n=1")
        # Given another in its place, of whom it does not know
        rig.client.hdel(rig.keys.cluster()["lease"], "until_ms")
        other = await rig.coordinator.lease("c2", epoch=0, lease_ms=60_000, about="host=h")
        assert other.epoch > old
        # When it goes on with what it was doing, then it is refused and ends
        with pytest.raises(Fenced):
            await rig.coordinator.publish(old, "tick", "n=2")
        await until(lambda: not first.runs)
    assert (await rig.store.coordinator()).published["tick"].words == {"n": "1"}


async def test_leader_by_an_old_backup_gets_an_epoch_no_lower_than_what_was_written_since(
    rig: Rig,
) -> None:
    """Redis is put back to when `c1` led, while another that came later still writes."""
    key = rig.keys.cluster()["lease"]
    work = Publishing(rig)
    lease = Lease(rig.coordinator, "c1", about=lambda: "host=h", lease_s=LEASE_S, call_s=0.1)
    first = (await rig.coordinator.lease("c1", epoch=0, lease_ms=500, about="host=h")).epoch
    backup = rig.client.hgetall(key)
    rig.client.hdel(key, "until_ms")
    second = (await rig.coordinator.lease("c2", epoch=0, lease_ms=500, about="host=h")).epoch
    rig.client.delete(key)
    rig.client.hset(key, mapping=backup)
    # The other has not noticed yet
    rig.client.hset(rig.keys.cluster()["published"], "tick", f"epoch={second + 5} at_ms=1 n=2")

    async with Leading(lease, work):
        await until(lambda: work.has_published)

    assert work.epochs[0] == first
    assert work.epochs[-1] >= second + 5
