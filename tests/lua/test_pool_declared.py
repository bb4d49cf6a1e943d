"""pool_add, pool_retier, pool_remove, pool_declared, pool_mutes: what operators say of keys."""

from __future__ import annotations

import pytest

from tests.lua.pool_rig import MUTE_MS, SEALED, PoolRig

OTHER = SEALED.replace("k7", "k8")


def read(pool: PoolRig, epoch: int = -1) -> list[object]:
    return pool.run("pool_declared", epoch=epoch)


def test_at_first_nothing_is_declared_and_reading_writes_nothing(pool: PoolRig) -> None:
    before = pool.state()

    assert read(pool) == ["done", "0", []]
    assert read(pool, 0) == ["same", "0", []]
    assert pool.state() == before


def test_what_is_added_is_read_until_its_number_is_known(pool: PoolRig) -> None:
    assert pool.add() == "done"

    assert read(pool, 0) == ["done", str(pool.epoch()), ["added:a1", SEALED]]
    assert read(pool, pool.epoch()) == ["same", str(pool.epoch()), []]


def test_added_again_it_is_the_same(pool: PoolRig) -> None:
    pool.add()
    before = pool.state()

    assert pool.add() == "same"
    assert pool.state() == before


@pytest.mark.parametrize(("id", "record"), [("a1", OTHER), ("a2", SEALED + "x")])
def test_neither_an_id_nor_a_key_is_added_twice(pool: PoolRig, id: str, record: str) -> None:
    pool.add()
    before = pool.state()

    assert pool.add(id, record) == "taken"
    assert pool.state() == before


def test_another_key_is_added_beside_it(pool: PoolRig) -> None:
    pool.add()

    assert pool.add("a2", OTHER) == "done"
    assert pool.declared() == {"added:a1": SEALED, "added:a2": OTHER}


def test_an_added_key_says_itself_for_whom_it_is_kept(pool: PoolRig) -> None:
    pool.add()

    assert pool.retier("added:a1", "admin") == "done"
    assert pool.declared() == {"added:a1": SEALED.replace("=pro", "=admin")}


def test_any_other_is_kept_by_its_digest_and_free_lifts_that(pool: PoolRig) -> None:
    assert pool.retier("hash:k0", "pro") == "done"
    assert pool.declared() == {"hash:k0": "pro"}

    assert pool.retier("hash:k0", "free") == "done"
    assert pool.declared() == {}


def test_nobody_keeps_a_key_that_was_not_added(pool: PoolRig) -> None:
    before = pool.state()

    assert pool.retier("added:a1", "pro") == pool.remove() == "gone"
    assert pool.state() == before


@pytest.mark.parametrize(("field", "role"), [("added:a1", "pro"), ("hash:k0", "free")])
def test_what_changes_nothing_raises_no_number(pool: PoolRig, field: str, role: str) -> None:
    pool.add()
    before = pool.state()

    assert pool.retier(field, role) == "same"
    assert pool.state() == before


def test_removed_it_is_gone_and_may_be_added_again(pool: PoolRig) -> None:
    pool.add()

    assert pool.remove() == "done"
    assert pool.declared() == {}
    assert pool.add() == "done"


def test_every_change_raises_the_number_also_when_the_clock_falls_back(pool: PoolRig) -> None:
    numbers = [pool.epoch()]
    for change in (
        lambda: pool.add(),
        lambda: pool.retier("added:a1", "admin"),
        lambda: pool.retier("hash:k0", "pro"),
        lambda: pool.remove(),
        lambda: pool.retier("hash:k0", "free"),
    ):
        pool.later(-1000)
        assert change() == "done"
        numbers.append(pool.epoch())

    assert numbers == sorted(set(numbers))
    assert numbers[1] > 1_000_000_000_000, "numbers of a store that was emptied are not used again"


def test_what_is_declared_lasts(pool: PoolRig) -> None:
    pool.add()

    assert pool.ttls() == {"declared": -1, "declared_epoch": -1}


def test_mutes_are_told_with_the_servers_time(pool: PoolRig) -> None:
    pool.mute("k0")
    (text,) = pool.mutes().values()

    assert pool.run("pool_mutes") == ["done", pool.now_ms, ["k0@" + pool.at, text]]
    assert f"until_ms={pool.now_ms + MUTE_MS}" in text
