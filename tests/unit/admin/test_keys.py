"""Callers' keys under /admin/keys: judged like the file's, shown once, changed by one at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.admin.keys import CallerKeys, KeyConflict, NoSuchKey
from gateway.auth.made import may_be_made
from gateway.config.keys import sha256
from gateway.config.result import User
from gateway.core.limits import Limit, Limits
from gateway.errors import InvalidRequest
from gateway.state.key_store import KeyStore, MadeKey
from tests.fakes.builders import config, key, model, route
from tests.unit.admin.conftest import Embedded

MODELS = (model(route("a")), model(route("a"), id="large", aliases=("big",)))
FILE = key("sk-file", "filed", role="pro", limits=Limits(rpm=Limit(5, is_shadow=True)))
CONFIG = msgspec.structs.replace(
    config(*MODELS, keys=[FILE], admin_key="sk-root"),
    users={"alice": User(team="platform"), "bob": User()},
    teams={"platform": Limits(rpm=Limit(1)), "sales": Limits()},
)
FULL = {
    "id": "org/full@x",
    "role": "internal",
    "models": ["big", "m"],
    "user": "alice",
    "team": "platform",
    "rpm": 10,
    "tpm": {"limit": 20, "mode": "shadow"},
    "max_parallel_requests": {"limit": 3},
    "max_budget": 12.5,
    "budget_duration": "30d",
    "model_limits": {"big": {"rpm": 1}},
    "expires": "2027-01-31T01:00:00+01:00",
}


@pytest.fixture
def kept(store: Embedded) -> KeyStore:
    return KeyStore(store.runner, store.keys)


@pytest.fixture
def desk(kept: KeyStore) -> CallerKeys:
    return CallerKeys(CONFIG, kept)


async def make(desk: CallerKeys, **asked: Any) -> str:
    return (await desk.make(asked, by="root")).id


def plain(value: object) -> Any:
    """As it goes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(value))


async def test_a_made_key_is_found_by_its_secret_which_is_kept_nowhere(
    desk: CallerKeys, kept: KeyStore, store: Embedded
) -> None:
    made = await desk.make({"role": "pro"}, by="root")
    assert may_be_made(made.key)
    found = await kept.of_digest(sha256(made.key))
    assert found
    assert (found.record.id, found.record.role, found.made_by) == (made.id, "pro", "root")
    assert made.key not in str(await store.everything())


async def test_everything_that_a_key_of_the_file_can_say_can_be_said(desk: CallerKeys) -> None:
    made = plain(await desk.make(FULL, by="root"))
    del made["key"], made["made_at"]
    assert made == FULL | {
        "source": "made",
        "models": ["large", "m"],
        "max_parallel_requests": 3,
        "model_limits": {"large": {"rpm": 1}},
        "expires": "2027-01-31T00:00:00Z",
        "made_by": "root",
    }
    shown = plain(await desk.of("org/full@x"))
    assert shown.items() >= made.items()
    assert "key" not in shown


async def test_what_is_shown_makes_another_of_its_kind(desk: CallerKeys) -> None:
    await desk.make(FULL, by="root")
    shown = plain(await desk.of("org/full@x"))
    told = {name: shown[name] for name in FULL}
    again = plain(await desk.make({**told, "id": "again"}, by="root"))
    assert {name: again[name] for name in FULL} == {**told, "id": "again"}


async def test_keys_get_ids_of_their_own_unless_given_one(desk: CallerKeys) -> None:
    ids = {await make(desk) for _ in range(5)}
    assert len(ids) == 5
    assert all(id.startswith("key-") for id in ids)


async def test_the_files_keys_are_shown_before_the_made_ones(desk: CallerKeys) -> None:
    await make(desk, id="b")
    await make(desk, id="a")
    shown = plain((await desk.all()).keys)
    assert [(one["id"], one["source"]) for one in shown] == [
        ("filed", "file"),
        ("a", "made"),
        ("b", "made"),
    ]
    assert shown[0] == plain(await desk.of("filed"))
    assert (shown[0]["role"], shown[0]["rpm"]) == ("pro", {"limit": 5, "mode": "shadow"})
    assert (shown[0]["models"], shown[0]["tpm"], shown[0]["made_at"]) == (None, None, None)


@pytest.mark.parametrize("id", ["filed", "admin", "made"])
async def test_ids_are_unique_in_file_store_and_environment(
    desk: CallerKeys, store: Embedded, id: str
) -> None:
    await make(desk, id="made")
    before = await store.everything()
    with pytest.raises(KeyConflict) as refused:
        await make(desk, id=id)
    assert (refused.value.status, refused.value.param) == (409, "id")
    assert await store.everything() == before


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"id": "a b"}, "id: must be 1 to 128 of"),
        ({"id": 7}, "id: must be a string"),
        ({"role": "root"}, "role: must be one of free, pro, internal, admin"),
        ({"models": ["lage"]}, "models[0]: unknown model 'lage' (did you mean large?)"),
        ({"models": "large"}, "models: must be a list"),
        ({"rpm": 0}, "rpm: must be a whole number >= 1 (leave it out for no limit"),
        ({"rpm": -1}, "rpm: must be a whole number >= 1"),
        ({"tpm": {"limit": 1, "mode": "off"}}, "tpm.mode: must be one of enforce, shadow"),
        ({"max_budget": "1"}, "max_budget: must be a number or a mapping"),
        ({"budget_duration": "1d"}, "budget_duration: needs a max_budget"),
        ({"max_budget": 1, "budget_duration": "1mo"}, "budget_duration: must be a whole number"),
        ({"model_limits": {"lage": {"rpm": 1}}}, "model_limits.lage: unknown model"),
        ({"model_limits": {"m": 1}}, "model_limits.m: must be a mapping"),
        ({"models": ["m"], "model_limits": {"big": {}}}, "is no model that the key may name"),
        ({"expires": "soon"}, "expires: must be a date with a time"),
        ({"expires": 5}, "expires: must be a date with a time"),
        ({"user": "alice", "team": "sales"}, "team: is 'sales', but the user 'alice' is of"),
        ({"user": "bob", "team": "new"}, "team: is 'new', but the user 'bob' is of no team"),
        ({"key": "sk-mine"}, "key: unknown key"),
        ({"key_sha256": "0" * 64}, "key_sha256: unknown key"),
        ({"rmp": 1}, "rmp: unknown key (did you mean rpm?)"),
        ({"role": 1, "rpm": "x"}, "; role: "),
    ],
    ids=str,
)
async def test_what_would_be_wrong_in_the_file_is_refused_with_the_reason(
    desk: CallerKeys, store: Embedded, asked: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await desk.make(asked, by="root")
    assert refused.value.status == 400
    assert told in refused.value.message
    assert await store.everything() == {}


async def test_a_made_key_may_name_a_user_and_a_team_that_are_not_listed(desk: CallerKeys) -> None:
    made = await desk.make({"user": "carol", "team": "new"}, by="root")
    assert (made.user, made.team) == ("carol", "new")
    made = await desk.make({"user": "dave", "team": "platform"}, by="root")
    assert (made.user, made.team) == ("dave", "platform")


class TestAChange:
    @pytest.fixture(autouse=True)
    async def made(self, desk: CallerKeys) -> None:
        await make(desk, **FULL)

    async def test_leaves_what_it_does_not_name(self, desk: CallerKeys, kept: KeyStore) -> None:
        before = await kept.of_id("org/full@x")
        changed = plain(await desk.change("org/full@x", {"rpm": 11}))
        assert changed == plain(await desk.of("org/full@x"))
        after = await kept.of_id("org/full@x")
        assert before
        assert after
        assert after.record.limits.rpm == Limit(11)
        assert after.record.key_sha256 == before.record.key_sha256
        unchanged = msgspec.structs.replace(after.record.limits, rpm=Limit(10))
        record = msgspec.structs.replace(after.record, limits=unchanged)
        assert record == before.record
        assert (after.made_ms, after.made_by) == (before.made_ms, before.made_by)

    async def test_takes_away_what_is_null(self, desk: CallerKeys) -> None:
        names = [name for name in FULL if name not in ("id", "role")]
        changed = plain(await desk.change("org/full@x", dict.fromkeys(names)))
        assert {name: changed[name] for name in names} == dict.fromkeys(names)
        assert (await desk.change("org/full@x", {"role": None})).role == "free"

    async def test_replaces_limits_on_models_as_a_whole(self, desk: CallerKeys) -> None:
        changed = await desk.change("org/full@x", {"model_limits": {"m": {"tpm": 5}}})
        assert changed.model_limits == {"m": {"tpm": 5}}

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"id": "other"}, "id of a key cannot be changed"),
            ({"rpm": 0}, "rpm: must be"),
            ({"max_budget": None}, "budget_duration: needs a max_budget"),
            ({"models": ["m"]}, "model_limits.large: is no model that the key may name"),
            ({"user": "bob"}, "team: is 'platform', but the user 'bob' is of no team"),
            ({"source": "file"}, "source: unknown key"),
        ],
        ids=str,
    )
    async def test_to_what_would_be_wrong_is_refused_as_a_whole(
        self, desk: CallerKeys, store: Embedded, changes: dict[str, Any], told: str
    ) -> None:
        before = await store.everything()
        with pytest.raises(InvalidRequest) as refused:
            await desk.change("org/full@x", {"role": "admin", **changes})
        assert told in refused.value.message
        assert await store.everything() == before

    async def test_is_put_to_what_somebody_else_has_left(
        self, store: Embedded, kept: KeyStore
    ) -> None:
        class Contested(KeyStore):
            """Another admin comes between reading and writing."""

            times = 0

            async def change(self, before: MadeKey, after: MadeKey) -> str:
                if self.times < most:
                    self.times += 1
                    await CallerKeys(CONFIG, kept).change("org/full@x", {"tpm": self.times})
                return await super().change(before, after)

        contested = Contested(store.runner, store.keys)
        most = 2
        changed = await CallerKeys(CONFIG, contested).change("org/full@x", {"rpm": 7})
        assert (changed.rpm, changed.tpm) == (7, 2)
        most, contested.times = 100, 0
        with pytest.raises(KeyConflict):
            await CallerKeys(CONFIG, contested).change("org/full@x", {"rpm": 8})


async def test_a_revoked_key_is_gone(desk: CallerKeys, store: Embedded) -> None:
    id = await make(desk)
    assert plain(await desk.revoke(id)) == {"id": id, "revoked": True}
    assert await store.everything() == {}
    for gone in (desk.of(id), desk.revoke(id), desk.change(id, {"rpm": 1})):
        with pytest.raises(NoSuchKey):
            await gone


async def test_keys_of_the_file_cannot_be_changed(desk: CallerKeys) -> None:
    for refused in (desk.change("filed", {"rpm": 1}), desk.revoke("filed")):
        with pytest.raises(KeyConflict) as conflict:
            await refused
        assert conflict.value.status == 409
        assert "keys.yaml" in conflict.value.message


async def test_a_made_key_whose_id_the_file_has_taken_can_still_be_revoked(
    kept: KeyStore, desk: CallerKeys
) -> None:
    await CallerKeys(config(keys=[]), kept).make({"id": "filed"}, by="root")
    assert [one.source for one in (await desk.all()).keys] == ["file", "made"]
    assert (await desk.revoke("filed")).revoked
    assert [one.source for one in (await desk.all()).keys] == ["file"]


@pytest.mark.parametrize("id", ["nobody", "", "a b", "a\n", "\ud800", "é", "x" * 129])
async def test_what_is_no_id_is_no_key(desk: CallerKeys, id: str) -> None:
    for refused in (desk.of(id), desk.change(id, {}), desk.revoke(id)):
        with pytest.raises(NoSuchKey):
            await refused
