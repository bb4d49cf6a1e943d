"""pool_take, pool_serves: the key that a request is sent with, and why there is none."""

from __future__ import annotations

import pytest

from tests.lua.pool_rig import (
    ADMIN,
    BINDING_MS,
    FREE,
    INTERNAL,
    MUTE_MS,
    PRO,
    PoolRig,
)
from tests.lua.rig import DAY, SECOND


def bound(pool: PoolRig) -> str | None:
    return pool.client.get(pool.keys["bound"])


class TestTheChoice:
    @pytest.mark.parametrize("caller", ["aa", "bb", "cc"])
    def test_new_callers_all_get_the_first_key(self, pool: PoolRig, caller: str) -> None:
        pool.by(caller)

        assert pool.take().key == "k0"

    def test_a_muted_key_is_passed_over_until_its_mute_ends(self, pool: PoolRig) -> None:
        pool.mute("k0")

        assert pool.key() == "k1"
        pool.later(MUTE_MS - 1)
        assert pool.key() == "k1"
        pool.later(1)
        assert pool.key() == "k0"

    def test_a_key_that_was_tried_is_passed_over(self, pool: PoolRig) -> None:
        assert pool.key(tried="k0") == "k1"
        assert not pool.key(tried="k1 k0")

    @pytest.mark.parametrize(
        ("rank", "key"), [(FREE, "all"), (PRO, "pro1"), (INTERNAL, "int"), (ADMIN, "int")]
    )
    def test_the_most_reserved_key_goes_first_then_the_order(
        self, pool: PoolRig, rank: int, key: str
    ) -> None:
        pool.pool = "all 0 pro1 1 int 2 pro2 1"

        assert pool.key(rank=rank) == key

    def test_a_reserved_key_is_followed_by_the_next_lower_one(self, pool: PoolRig) -> None:
        pool.pool = "all 0 pro1 1 pro2 1"
        pool.mute("pro1")

        assert pool.key(rank=PRO) == "pro2"
        pool.mute("pro2")
        assert pool.key(rank=PRO) == "all"

    def test_a_key_is_muted_at_one_address(self, pool: PoolRig) -> None:
        pool.mute("k0")
        pool.at = "another.host:443"

        assert pool.key() == "k0"


class TestARefusal:
    def test_writes_nothing(self, pool: PoolRig) -> None:
        pool.pool = "k0 1"
        before = pool.state()

        assert not pool.take().key
        assert pool.state() == before

    def test_of_a_lower_role_is_restricted_while_others_are_served(self, pool: PoolRig) -> None:
        pool.pool = "k0 1"

        assert (pool.take(rank=FREE).status, pool.take(rank=PRO).key) == ("restricted", "k0")

    def test_of_everybody_is_exhausted(self, pool: PoolRig) -> None:
        pool.pool = "k0 0 k1 1"
        pool.mute("k0")
        pool.client.hset(pool.keys["mutes"], "k1@" + pool.at, next(iter(pool.mutes().values())))

        assert pool.take(rank=FREE).status == pool.take(rank=ADMIN).status == "exhausted"

    def test_tells_when_the_role_may_be_served_again(self, pool: PoolRig) -> None:
        pool.pool = "k0 0 k1 1"
        pool.mute("k0")
        pool.later(SECOND)

        refused = pool.take()

        assert (refused.status, refused.retry_after_ms) == ("restricted", MUTE_MS - SECOND)

    def test_of_a_role_without_any_key_has_no_time(self, pool: PoolRig) -> None:
        pool.pool = "k0 2"

        assert pool.take(rank=PRO).retry_after_ms == 0

    def test_says_that_other_declarations_hold(self, pool: PoolRig) -> None:
        assert pool.retier("hash:k0", "pro") == "done"
        before = pool.state()

        assert pool.take().is_stale
        assert pool.state() == before
        assert pool.take(epoch=pool.epoch()).key == "k0"


class TestABinding:
    def test_keeps_a_caller_on_its_key_for_five_minutes_from_the_first(self, pool: PoolRig) -> None:
        pool.mute("k0")
        assert pool.take().key == "k1"

        for later_ms in (60 * SECOND, 200 * SECOND, BINDING_MS - 260 * SECOND - 1):
            pool.later(later_ms)
            assert pool.take().key == "k1"
        pool.later(1)
        assert pool.take().key == "k0"

    def test_is_not_written_again_while_it_holds(self, pool: PoolRig) -> None:
        pool.take()
        pool.later(SECOND)
        before = pool.state()

        pool.take()

        assert pool.state() == before

    def test_is_one_callers_own(self, pool: PoolRig) -> None:
        pool.mute("k0")
        pool.take()
        pool.later(MUTE_MS)
        pool.by("another")

        assert pool.take().key == "k0"

    def test_of_another_role_does_not_count(self, pool: PoolRig) -> None:
        pool.mute("k0")
        assert pool.take(rank=FREE).key == "k1"
        pool.later(MUTE_MS)

        assert pool.take(rank=PRO).key == "k0"
        assert pool.take(rank=FREE).key == "k0"

    @pytest.mark.parametrize("how", ["muted", "tried"])
    def test_to_a_key_that_does_not_serve_gives_way(self, pool: PoolRig, how: str) -> None:
        pool.take()
        if how == "muted":
            pool.mute("k0")

        assert pool.take(tried="k0" if how == "tried" else "").key == "k1"

    @pytest.mark.parametrize(
        ("after", "key"), [("k2 0 k0 0 k1 0", "k2"), ("k0 0 k1 0 k2 1", "k2"), ("k1 1 k0 1", "k1")]
    )
    def test_ends_when_another_key_goes_first(self, pool: PoolRig, after: str, key: str) -> None:
        pool.pool = "k0 0 k1 0 k3 0"
        pool.mute("k0")
        pool.mute("k1")
        assert pool.take(rank=PRO).key == "k3"
        pool.later(MUTE_MS)

        pool.pool = f"{after} k3 0"

        assert pool.take(rank=PRO).key == key

    @pytest.mark.parametrize("after", ["k0 0 k2 0 k1 0", "k0 0 k1 0 k2 0"])
    def test_survives_changes_that_leave_it_first(self, pool: PoolRig, after: str) -> None:
        pool.mute("k0")
        assert pool.take().key == "k1"
        pool.later(MUTE_MS)

        pool.pool = after

        assert pool.take().key == "k1"

    def test_is_not_made_for_unknown_callers(self, pool: PoolRig) -> None:
        assert pool.take(binds=0).key == "k0"
        assert bound(pool) is None

    @pytest.mark.parametrize(
        "edited",
        [
            "",
            "k1",
            "key=k1",
            "key=k9 preferred=k0 rank=0 until_ms=9",
            f"key=k1 preferred=k0 rank=0 until_ms={10**15}",
        ],
    )
    def test_that_is_nonsense_is_none(self, pool: PoolRig, edited: str) -> None:
        pool.client.set(pool.keys["bound"], edited)

        assert pool.take().key == "k0"

    def test_of_another_type_is_replaced(self, pool: PoolRig) -> None:
        pool.client.hset(pool.keys["bound"], "a", "b")

        assert pool.take().key == "k0"
        assert pool.take().key == "k0"


@pytest.mark.parametrize(
    "edited",
    [
        "",
        "x",
        "failures=1",
        "failures=0 for_ms=0 until_ms=0 status=0 by=x",
        f"failures=0 for_ms={DAY} until_ms={10**15} status=0 by=x",
        "failures=0 for_ms=nan until_ms=inf status=0 by=x",
    ],
)
def test_a_mute_that_is_nonsense_or_beyond_its_own_length_is_none(
    pool: PoolRig, edited: str
) -> None:
    pool.client.hset(pool.keys["mutes"], "k0@" + pool.at, edited)

    assert pool.key() == "k0"


def test_a_mute_outlasts_no_clock_that_was_set_back(pool: PoolRig) -> None:
    pool.mute("k0")
    pool.later(-DAY)

    assert pool.key() == "k0"


class TestWhoIsServed:
    def test_is_told_for_each_role_and_writes_nothing(self, pool: PoolRig) -> None:
        pool.pool = "k0 1"
        before = pool.state()

        assert pool.serves(FREE).status == "restricted"
        assert pool.serves(PRO).status == "serves"
        assert pool.state() == before

    def test_a_muted_key_serves_nobody(self, pool: PoolRig) -> None:
        pool.pool = "k0 0 k1 1"
        pool.mute("k0")

        assert (pool.serves(FREE).status, pool.serves(PRO).status) == ("restricted", "serves")
        assert pool.serves(FREE).retry_after_ms == MUTE_MS

    def test_without_keys_nobody_is_served(self, pool: PoolRig) -> None:
        pool.pool = ""

        assert pool.serves(ADMIN).status == pool.take(rank=ADMIN).status == "exhausted"

    def test_other_declarations_are_told(self, pool: PoolRig) -> None:
        pool.retier("hash:k0", "pro")

        assert pool.serves(FREE).status == "stale"
