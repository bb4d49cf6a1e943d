"""key_make, key_change, key_revoke, key_find, key_list: one key per id, and no id of two keys."""

from __future__ import annotations

import pytest

from tests.lua.happy import DIGEST, RECORD
from tests.lua.rig import Rig

OTHER = "07" * 32


def make(rig: Rig, id: str = "alice", digest: str = DIGEST, record: str = RECORD) -> str:
    return rig.run("key_make", id=id, digest=digest, record=record)[0]


def change(rig: Rig, before: str, after: str, id: str = "alice") -> str:
    return rig.run("key_change", id=id, before=before, after=after)[0]


def revoke(rig: Rig, id: str = "alice") -> str:
    return rig.run("key_revoke", id=id)[0]


def find(rig: Rig, digest: str = "", id: str = "") -> list[str]:
    return rig.run("key_find", digest=digest, id=id)


def kept(rig: Rig) -> tuple[dict[str, str], dict[str, str]]:
    return rig.client.hgetall(rig.keys["keys"]), rig.client.hgetall(rig.keys["key_ids"])


NONE = ["none", "", ""]


def test_there_are_none_at_first_and_reading_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    assert find(rig, DIGEST) == find(rig, id="alice") == NONE
    assert rig.run("key_list", cursor="0", count=10) == ["done", "0", []]
    assert rig.state() == before


def test_made_key_is_found_by_its_digest_and_by_its_id(rig: Rig) -> None:
    assert make(rig) == "done"
    before = rig.state()

    assert find(rig, DIGEST) == find(rig, id="alice") == ["done", DIGEST, RECORD]
    assert find(rig, OTHER) == find(rig, id="bob") == NONE
    assert rig.state() == before


def test_made_again_under_the_same_digest_is_the_same_key(rig: Rig) -> None:
    make(rig)

    assert make(rig) == "done"
    assert kept(rig) == ({DIGEST: RECORD}, {"alice": DIGEST})


def test_id_of_another_key_is_taken_and_nothing_is_written(rig: Rig) -> None:
    make(rig)
    before = rig.state()

    assert make(rig, digest=OTHER) == "taken"
    assert rig.state() == before


def test_keys_last(rig: Rig) -> None:
    make(rig)

    assert rig.ttls() == {"keys": -1, "key_ids": -1}


def test_revoked_key_is_gone_and_its_id_is_free(rig: Rig) -> None:
    make(rig)

    assert revoke(rig) == "done"
    assert kept(rig) == ({}, {})
    assert find(rig, DIGEST) == NONE
    assert revoke(rig) == "gone"
    assert make(rig, digest=OTHER) == "done"


def test_revoking_one_leaves_the_others(rig: Rig) -> None:
    make(rig)
    make(rig, "bob", OTHER, "id=bob role=free")

    assert revoke(rig) == "done"
    assert find(rig, OTHER) == ["done", OTHER, "id=bob role=free"]


def test_revoking_nobody_writes_nothing(rig: Rig) -> None:
    make(rig)
    before = rig.state()

    assert revoke(rig, "bob") == "gone"
    assert rig.state() == before


class TestAChange:
    @pytest.fixture(autouse=True)
    def made(self, rig: Rig) -> None:
        make(rig)

    def test_replaces_the_record_that_was_read(self, rig: Rig) -> None:
        assert change(rig, RECORD, "id=alice role=free") == "done"
        assert find(rig, DIGEST)[2] == "id=alice role=free"

    def test_may_be_repeated(self, rig: Rig) -> None:
        change(rig, RECORD, "id=alice role=free")

        assert change(rig, RECORD, "id=alice role=free") == "done"

    def test_of_what_somebody_else_has_changed_is_refused(self, rig: Rig) -> None:
        change(rig, RECORD, "id=alice role=free")
        before = rig.state()

        assert change(rig, RECORD, "id=alice role=admin") == "changed"
        assert rig.state() == before

    def test_of_a_key_that_is_gone_makes_none(self, rig: Rig) -> None:
        revoke(rig)
        before = rig.state()

        assert change(rig, RECORD, "id=alice role=free") == "gone"
        assert rig.state() == before


class TestAKeyThatOnlyOneHashHas:
    @pytest.fixture(autouse=True)
    def made(self, rig: Rig) -> None:
        make(rig)

    @pytest.mark.parametrize(("kind", "field"), [("keys", DIGEST), ("key_ids", "alice")])
    def test_holds_no_more_and_its_id_may_be_taken(self, rig: Rig, kind: str, field: str) -> None:
        rig.client.hdel(rig.keys[kind], field)

        assert find(rig, DIGEST) == find(rig, id="alice") == NONE
        assert rig.run("key_list", cursor="0", count=10)[2] == []
        assert make(rig, digest=OTHER) == "done"
        assert find(rig, DIGEST) == NONE

    def test_does_not_hold_under_an_id_that_is_another_keys(self, rig: Rig) -> None:
        rig.client.hset(rig.keys["keys"], OTHER, RECORD)

        assert find(rig, OTHER) == NONE

    @pytest.mark.parametrize("nonsense", ["", "role=pro", " id=alice", "id= role=pro"])
    def test_whose_record_names_no_id_is_none(self, rig: Rig, nonsense: str) -> None:
        rig.client.hset(rig.keys["keys"], DIGEST, nonsense)

        assert find(rig, DIGEST) == NONE


@pytest.mark.parametrize("count", [1, 700])
def test_all_keys_are_listed_some_at_a_time(rig: Rig, count: int) -> None:
    made = {f"{number:064x}": f"id=k{number} role=free" for number in range(count)}
    for digest, record in made.items():
        make(rig, record.split()[0].removeprefix("id="), digest, record)

    found: dict[str, str] = {}
    cursor, calls = "0", 0
    while calls == 0 or cursor != "0":
        _, cursor, fields = rig.run("key_list", cursor=cursor, count=50)
        found |= dict(zip(fields[::2], fields[1::2], strict=True))
        calls += 1

    assert found == made
