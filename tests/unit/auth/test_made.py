"""Made keys are asked for seldom, forgotten soon, and never more than so many are remembered."""

from __future__ import annotations

import asyncio
import re

import pytest

from gateway.auth.made import MadeKeys, may_be_made, new_secret
from gateway.errors import StateUnavailable
from tests.fakes.builders import key
from tests.fakes.holds import Hold
from tests.fakes.keys import MemoryKeys

ALICE = key("sk-alice", "alice")
DIGEST = ALICE.key_sha256
STRANGER = key("sk-stranger", "nobody").key_sha256


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryKeys:
    return MemoryKeys(ALICE)


@pytest.fixture
def made(store: MemoryKeys, clock: Clock) -> MadeKeys:
    return MadeKeys(store, clock=clock, most=3)


def test_secrets_are_of_the_form_and_no_two_are_alike() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    for secret in secrets:
        assert re.fullmatch(r"sk-concord-[0-9A-Za-z]{43}", secret)
        assert may_be_made(secret)


@pytest.mark.parametrize("end", ["\n", " ", "é", "-"])
def test_other_forms_are_not_made(end: str) -> None:
    assert not may_be_made(new_secret() + end)
    assert not may_be_made(new_secret()[:-1] + end)


@pytest.mark.parametrize(("digest", "id"), [(DIGEST, "alice"), (STRANGER, None)])
async def test_a_key_is_asked_for_once_in_five_seconds(
    made: MadeKeys, store: MemoryKeys, clock: Clock, digest: str, id: str | None
) -> None:
    for later_s, asked in ((0, 1), (0, 1), (4.999, 1), (0.001, 2), (4.999, 2), (10, 3)):
        clock.now_s += later_s
        found = await made.find(digest)
        assert (found.id if found else None) == id
        assert store.asked[digest] == asked


async def test_what_has_been_changed_or_revoked_holds_after_five_seconds(
    made: MadeKeys, store: MemoryKeys, clock: Clock
) -> None:
    await made.find(DIGEST)
    store.records[DIGEST] = key("sk-alice", "alice", role="pro")
    clock.now_s += 5
    changed = await made.find(DIGEST)
    assert changed
    assert changed.role == "pro"
    del store.records[DIGEST]
    clock.now_s += 5
    assert await made.find(DIGEST) is None


async def test_age_counts_from_the_question_not_from_its_answer(
    made: MadeKeys, store: MemoryKeys, clock: Clock
) -> None:
    store.hold = Hold()
    asking = asyncio.create_task(made.find(DIGEST))
    await store.hold.reached.wait()
    clock.now_s += 5
    store.hold.go()
    assert await asking
    assert await made.find(DIGEST)
    assert store.asked[DIGEST] == 2


async def test_requests_at_a_time_share_one_question(made: MadeKeys, store: MemoryKeys) -> None:
    store.hold = Hold()
    asking = [asyncio.create_task(made.find(DIGEST)) for _ in range(10)]
    await store.hold.reached.wait()
    store.hold.go()
    assert [found and found.id for found in await asyncio.gather(*asking)] == ["alice"] * 10
    assert store.asked[DIGEST] == 1


async def test_whoever_goes_leaves_the_question_to_the_others(
    made: MadeKeys, store: MemoryKeys
) -> None:
    store.hold = Hold()
    first, second = (asyncio.create_task(made.find(DIGEST)) for _ in range(2))
    await store.hold.reached.wait()
    first.cancel()
    store.hold.go()
    assert await second
    assert first.cancelled()


class TestWhileRedisIsAway:
    @pytest.fixture(autouse=True)
    async def away(self, made: MadeKeys, store: MemoryKeys) -> None:
        """Alice has been seen, and then it goes."""
        await made.find(DIGEST)
        await made.find(STRANGER)
        store.is_away = True

    @pytest.mark.parametrize("age_s", [0, 5, 59.9])
    async def test_a_key_seen_in_the_last_minute_is_taken(
        self, made: MadeKeys, clock: Clock, age_s: float
    ) -> None:
        clock.now_s += age_s
        found = await made.find(DIGEST)
        assert found
        assert found.id == "alice"

    @pytest.mark.parametrize("age_s", [60, 1000])
    async def test_a_key_not_seen_for_longer_cannot_be_known(
        self, made: MadeKeys, clock: Clock, age_s: float
    ) -> None:
        clock.now_s += age_s
        with pytest.raises(StateUnavailable):
            await made.find(DIGEST)

    async def test_a_stranger_is_not_called_wrong_for_longer_than_that_is_known(
        self, made: MadeKeys, clock: Clock
    ) -> None:
        assert await made.find(STRANGER) is None
        clock.now_s += 5
        with pytest.raises(StateUnavailable):
            await made.find(STRANGER)

    async def test_a_revocation_holds_as_soon_as_it_is_back(
        self, made: MadeKeys, store: MemoryKeys, clock: Clock
    ) -> None:
        clock.now_s += 30
        assert await made.find(DIGEST)
        store.is_away = False
        store.records.clear()
        assert await made.find(DIGEST) is None
        store.is_away = True
        clock.now_s += 10
        with pytest.raises(StateUnavailable):
            await made.find(DIGEST)


class TestWhatIsRemembered:
    async def test_is_bounded_and_a_flood_of_strangers_pushes_out_no_key(
        self, made: MadeKeys, store: MemoryKeys
    ) -> None:
        await made.find(DIGEST)
        for number in range(50):
            await made.find(f"stranger-{number}")
        assert await made.find(DIGEST)
        assert store.asked[DIGEST] == 1
        assert len(made._strangers) == 3
        assert not made._asking

    async def test_is_of_keys_those_asked_for_last(
        self, made: MadeKeys, store: MemoryKeys, clock: Clock
    ) -> None:
        for record in (key(f"sk-{n}", f"k{n}") for n in range(3)):
            store.records[record.key_sha256] = record
            await made.find(record.key_sha256)
        first = key("sk-0", "k0").key_sha256
        clock.now_s += 5
        await made.find(first)
        await made.find(DIGEST)  # makes room of the second
        assert await made.find(first)
        assert store.asked[first] == 2
        assert len(made._known) == 3
