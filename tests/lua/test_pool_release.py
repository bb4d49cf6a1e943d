"""pool_release: which failures mute a key, for how long, and when another key may be tried."""

from __future__ import annotations

import pytest

from tests.lua.pool_rig import ADMIN, FREE, MUTE_MS, PRO, PoolRig
from tests.lua.rig import DAY, SECOND


def muted_ms(pool: PoolRig, key: str) -> int:
    """For how long a key is not given out."""
    text = pool.mutes().get(f"{key}@{pool.at}", "until_ms=0 ")
    return max(int(text.partition("until_ms=")[2].split()[0]) - pool.now_ms, 0)


class TestAKeyThatWasRefused:
    def test_is_muted_for_all_and_another_follows(self, pool: PoolRig) -> None:
        reply = pool.release("k0")

        assert (reply.status, reply.muted_for_ms, reply.serves_others) == ("rotated", MUTE_MS, 1)
        assert muted_ms(pool, "k0") == MUTE_MS
        assert pool.key(tried="k0") == "k1"

    def test_is_muted_when_all_others_were_tried_but_serve(self, pool: PoolRig) -> None:
        reply = pool.release("k0", tried="k1 k0")

        assert (reply.status, reply.muted_for_ms) == ("muted", MUTE_MS)

    def test_is_not_muted_shorter_by_a_second_refusal(self, pool: PoolRig) -> None:
        pool.mute("k0")
        pool.mute_ms = 5 * SECOND

        pool.release("k0")

        assert muted_ms(pool, "k0") == MUTE_MS

    def test_is_remembered_with_its_status_for_a_week(self, pool: PoolRig) -> None:
        pool.release("k0", status=401)

        assert " status=401 " in pool.mutes()["k0@" + pool.at]
        assert 6 * DAY < pool.ttls()["mutes"] <= 7 * DAY


class TestAKeyThatFailed:
    def test_is_not_muted_while_another_may_be_tried(self, pool: PoolRig) -> None:
        before = pool.state()

        reply = pool.release("k0", "transient", status=503)

        assert (reply.status, reply.muted_for_ms) == ("rotated", 0)
        assert pool.state() == before

    def test_is_muted_when_all_others_were_tried_but_serve(self, pool: PoolRig) -> None:
        reply = pool.release("k1", "transient", tried="k0 k1", status=503)

        assert (reply.status, reply.muted_for_ms) == ("muted", MUTE_MS)
        assert pool.key() == "k0"

    @pytest.mark.parametrize("times", [1, 20])
    def test_is_never_muted_when_it_is_the_last(self, pool: PoolRig, times: int) -> None:
        pool.mute("k0")

        for _ in range(times):
            reply = pool.release("k1", "transient", status=500)
            assert (reply.status, reply.muted_for_ms) == ("propagate", 0)
        assert pool.key() == "k1"


class TestARolesLastKey:
    """The last of those that this role may use."""

    @pytest.fixture(autouse=True)
    def alone(self, pool: PoolRig) -> None:
        pool.pool = "k0 0"

    def refusals(self, pool: PoolRig, count: int) -> list[int]:
        """For how long each of so many refusals in a row mutes it, when its mute has ended."""
        found = []
        for _ in range(count):
            found.append(pool.release("k0").muted_for_ms)
            pool.later(found[-1])
        return found

    def test_has_two_refusals_free_then_is_muted_longer_each_time(self, pool: PoolRig) -> None:
        pool.mute_ms = 100 * SECOND

        seconds = [ms // SECOND for ms in self.refusals(pool, 7)]

        assert seconds == [0, 0, 15, 30, 60, 100, 100]

    def test_is_muted_no_longer_than_any(self, pool: PoolRig) -> None:
        assert self.refusals(pool, 5) == [0, 0, 15 * SECOND, MUTE_MS, MUTE_MS]

    def test_propagates_while_it_is_free_and_is_muted_then(self, pool: PoolRig) -> None:
        statuses = [pool.release("k0").status for _ in range(3)]

        assert statuses == ["propagate", "propagate", "muted"]

    def test_begins_anew_once_it_has_served(self, pool: PoolRig) -> None:
        self.refusals(pool, 4)

        assert pool.release("k0", "none").status == "served"

        assert pool.mutes() == {}
        assert self.refusals(pool, 3) == [0, 0, 15 * SECOND]

    def test_stays_muted_when_an_earlier_request_is_served_but_begins_anew(
        self, pool: PoolRig
    ) -> None:
        for _ in range(3):
            pool.release("k0")

        pool.release("k0", "none")

        assert muted_ms(pool, "k0") == 15 * SECOND
        pool.later(15 * SECOND)
        assert self.refusals(pool, 3) == [0, 0, 15 * SECOND]

    def test_is_counted_once_by_a_call_that_is_repeated(self, pool: PoolRig) -> None:
        for lease in ("a", "a", "b", "b"):
            assert pool.release("k0", lease=lease).status == "propagate"
        assert pool.release("k0", lease="c").status == "muted"

    def test_is_not_the_role_below_its_own(self, pool: PoolRig) -> None:
        """A free caller's 429 on the only key it may use; others have a key of their own."""
        pool.pool = "k0 0 k1 1"

        free = pool.release("k0", rank=FREE)
        assert (free.status, free.muted_for_ms, free.serves_others) == ("propagate", 0, 1)
        pro = pool.release("k1", rank=PRO)
        assert (pro.status, pro.muted_for_ms) == ("rotated", MUTE_MS)

    def test_serves_no_others_when_it_is_everybodys_last(self, pool: PoolRig) -> None:
        pool.pool = "k0 0 k1 1"
        pool.mute("k1")

        assert pool.release("k0", rank=ADMIN).serves_others == 0


def test_a_key_that_serves_and_has_never_been_refused_is_not_written_of(pool: PoolRig) -> None:
    before = pool.state()

    assert pool.release("k0", "none").status == "served"
    assert pool.state() == before
