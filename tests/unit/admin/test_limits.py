"""GET /admin/limits: what a key's requests have taken, in the units of keys.yaml."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.admin.keys import CallerKeys, NoSuchKey
from gateway.admin.limits import CallerUse, CallerUses
from gateway.auth.holders import caller_of
from gateway.config.result import Config, KeyRecord
from gateway.core.limits import Limit, Limits
from gateway.state.caller_store import CallerStore, Need
from gateway.state.key_store import KeyStore, MadeKey
from tests.fakes.builders import config, key
from tests.unit.admin.conftest import Embedded

LIMITS = Limits(rpm=Limit(9), max_budget=Limit(2_500_000_000), budget_duration_ms=3_600_000)
ALICE = key(
    "sk-alice",
    "alice",
    team="acme",
    limits=LIMITS,
    model_limits={"m": Limits(max_parallel_requests=Limit(1))},
)
MADE = structs.replace(ALICE, id="made", key_sha256="1" * 64)
WINDOW_MS = 60_000


class Desk:
    """The surface and the limits behind it."""

    def __init__(self, store: Embedded) -> None:
        self.config: Config = structs.replace(
            config(keys=[ALICE, key("sk-free", "free", team="acme")]),
            teams={"acme": Limits(tpm=Limit(100, is_shadow=True))},
        )
        self.keys = KeyStore(store.runner, store.keys)
        self.callers = CallerStore(store.runner, store.keys)
        keys = CallerKeys(self.config, self.keys)
        self.uses = CallerUses(self.config, keys, self.callers)

    async def reserve(self, record: KeyRecord, reservation: str, *, lease_ms: int = 15_000) -> None:
        caller = caller_of(record, self.config.users, self.config.teams)
        reply = await self.callers.reserve(
            caller.limit_tag,
            caller.scopes_for("m"),
            Need(tokens=60, nanousd=500_000_000),
            reservation=reservation,
            window_ms=WINDOW_MS,
            lease_ms=lease_ms,
        )
        assert reply.is_reserved

    async def shown(self, key_id: str) -> dict[str, Any]:
        """By scope and limit, without what the clock decides."""
        found: CallerUse = await self.uses.of(key_id)
        return {
            f"{use.scope} {use.limit}": (use.mode, use.most, use.taken, use.left)
            for use in found.limits
        }


@pytest.fixture
def desk(store: Embedded) -> Desk:
    return Desk(store)


async def test_every_limit_is_shown_with_what_is_taken_and_left(desk: Desk) -> None:
    await desk.reserve(ALICE, "r.1")
    assert await desk.shown("alice") == {
        "key:alice rpm": ("enforce", 9, 1, 8),
        "key:alice max_budget": ("enforce", 2.5, 0.5, 2.0),
        "team:acme tpm": ("shadow", 100, 60, 40),
        "model:alice:m max_parallel_requests": ("enforce", 1, 1, 0),
    }
    found = await desk.uses.of("alice")
    assert (found.caller, found.tag, found.under_way) == ("alice", "team:acme", 1)
    by_limit = {use.limit: use.reset_s for use in found.limits}
    assert 50 < (by_limit["rpm"] or 0) <= 62
    assert 3_500 < (by_limit["max_budget"] or 0) <= 3_600
    assert by_limit["max_parallel_requests"] is None


async def test_a_made_keys_are_shown_alike_and_share_its_teams(desk: Desk) -> None:
    await desk.keys.make(MadeKey(record=MADE))
    await desk.reserve(ALICE, "r.1")
    shown = await desk.shown("made")
    assert shown["key:made rpm"] == ("enforce", 9, 0, 9)
    assert shown["team:acme tpm"] == ("shadow", 100, 60, 40)


async def test_places_of_the_dead_are_free(desk: Desk) -> None:
    await desk.reserve(ALICE, "r.1", lease_ms=0)
    shown = await desk.shown("alice")
    assert shown["model:alice:m max_parallel_requests"] == ("enforce", 1, 0, 1)
    assert (await desk.uses.of("alice")).under_way == 0


async def test_a_key_of_a_limited_team_has_only_the_teams(desk: Desk) -> None:
    assert await desk.shown("free") == {"team:acme tpm": ("shadow", 100, 0, 100)}


async def test_a_key_without_limits_has_none(store: Embedded) -> None:
    of = config(keys=[key("sk-free", "free")])
    keys = CallerKeys(of, KeyStore(store.runner, store.keys))
    uses = CallerUses(of, keys, CallerStore(store.runner, store.keys))
    assert await uses.of("free") == CallerUse(caller="free", tag="", under_way=0, limits=[])
    assert await store.everything() == {}


@pytest.mark.parametrize("key_id", ["nobody", "", "a b", "x" * 999])
async def test_a_key_that_nobody_has_is_not_found(desk: Desk, key_id: str) -> None:
    with pytest.raises(NoSuchKey):
        await desk.uses.of(key_id)
