"""Who a request comes from, by the key it carries."""

from __future__ import annotations

import logging

import pytest

from gateway.auth.keys import Authenticator, presented_key
from gateway.auth.made import MadeKeys
from gateway.config.result import Config
from gateway.errors import StateUnavailable, Unauthenticated
from tests.fakes.builders import config, key
from tests.fakes.keys import MemoryKeys, no_made_keys

ALICE = key("sk-alice", "alice", role="pro", models=frozenset({"m"}))
ADDRESS = "1.2.3.4"
NOW_S = 1_700_000_000.0
SECRET = "sk-concord-" + "Ab1" * 14 + "z"
OTHER = "sk-concord-" + "0" * 43
MADE = key(SECRET, "made", role="internal", models=frozenset({"m"}))


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def over(of: Config, store: MemoryKeys | None = None) -> Authenticator:
    made = MadeKeys(store) if store else no_made_keys()
    return Authenticator(of, made, clock=lambda: NOW_S)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (bearer("k"), "k"),
        ({"authorization": "bearer   k  "}, "k"),
        ({"authorization": "BEARER k"}, "k"),
        ({"x-api-key": " k "}, "k"),
        ({"x-api-key": "k", "authorization": "Basic abc"}, "k"),
        ({"x-api-key": "other", "authorization": "Bearer k"}, "k"),
        ({"authorization": "Basic abc"}, None),
        ({"authorization": "Bearer "}, None),
        ({"authorization": "k"}, None),
        ({"x-api-key": "  "}, None),
        ({}, None),
    ],
)
def test_a_key_is_taken_from_either_usual_header(
    headers: dict[str, str], expected: str | None
) -> None:
    assert presented_key(headers) == expected


@pytest.mark.parametrize("headers", [bearer("sk-alice"), {"x-api-key": "sk-alice"}])
async def test_a_known_key_names_its_caller(headers: dict[str, str]) -> None:
    caller = await over(config(keys=[ALICE])).caller(headers, ADDRESS)
    assert (caller.id, caller.role, caller.models) == ("alice", "pro", frozenset({"m"}))
    assert not caller.is_admin


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("sk-wrong"),
        {"x-api-key": "sk-alice2"},
        bearer("sk-ALICE"),
        bearer("\xe9"),
        bearer(SECRET),
    ],
    ids=["none", "wrong", "longer", "other case", "not ASCII", "of the form of made ones"],
)
async def test_without_a_known_key_nobody_is_let_in_where_keys_are_kept(
    headers: dict[str, str],
) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await over(config(keys=[ALICE])).caller(headers, ADDRESS)
    assert "sk-" not in refused.value.message


async def test_an_empty_list_of_keys_lets_nobody_in() -> None:
    with pytest.raises(Unauthenticated):
        await over(config(keys=[])).caller(bearer("any"), ADDRESS)


@pytest.mark.parametrize(
    "settings",
    [config(), config(keys=[ALICE], auth="none")],
    ids=["no keys.yaml", "auth: none"],
)
@pytest.mark.parametrize("headers", [{}, bearer("sk-alice"), bearer("junk"), bearer(SECRET)])
async def test_where_no_keys_are_asked_for_callers_are_told_apart_by_address(
    settings: Config, headers: dict[str, str]
) -> None:
    caller = await over(settings).caller(headers, ADDRESS)
    assert (caller.id, caller.role, caller.models) == ("ip:1.2.3.4", "free", None)


@pytest.mark.parametrize(
    "settings",
    [
        config(admin_key="sk-root"),
        config(admin_key="sk-root", keys=[ALICE]),
        config(admin_key="sk-root", keys=[ALICE], auth="none"),
    ],
    ids=["no keys.yaml", "keys", "auth: none"],
)
async def test_the_admin_key_is_an_admins_wherever_keys_stand(settings: Config) -> None:
    caller = await over(settings).caller(bearer("sk-root"), ADDRESS)
    assert caller.is_admin
    assert caller.models is None


def test_no_secret_is_kept() -> None:
    authenticator = over(config(admin_key="sk-root", keys=[ALICE]))
    assert "sk-" not in repr(vars(authenticator))


@pytest.mark.parametrize(
    ("late_ms", "is_valid"), [(-1, True), (0, False), (1, False)], ids=["before", "at", "after"]
)
@pytest.mark.parametrize("is_made", [False, True], ids=["of the file", "made"])
async def test_a_key_is_valid_until_it_expires(late_ms: int, is_valid: bool, is_made: bool) -> None:
    limited = key(SECRET, "short", expires_ms=int(NOW_S * 1000) - late_ms)
    store = MemoryKeys(*[limited] * is_made)
    authenticator = over(config(keys=[] if is_made else [limited]), store)
    if is_valid:
        assert (await authenticator.caller(bearer(SECRET), ADDRESS)).id == "short"
    else:
        with pytest.raises(Unauthenticated, match="expired"):
            await authenticator.caller(bearer(SECRET), ADDRESS)


class TestAMadeKey:
    @pytest.mark.parametrize("settings", [config(keys=[ALICE]), config()], ids=["keys", "no file"])
    async def test_names_its_caller_also_where_nobody_needs_one(self, settings: Config) -> None:
        caller = await over(settings, MemoryKeys(MADE)).caller(bearer(SECRET), ADDRESS)
        assert (caller.id, caller.role, caller.models) == ("made", "internal", frozenset({"m"}))

    async def test_is_ignored_where_keys_are_not_asked_for(self) -> None:
        store = MemoryKeys(MADE)
        caller = await over(config(auth="none"), store).caller(bearer(SECRET), ADDRESS)
        assert caller.id == "ip:1.2.3.4"
        assert not store.asked

    async def test_that_has_expired_is_ignored_where_nobody_needs_one(self) -> None:
        store = MemoryKeys(key(SECRET, "short", expires_ms=1))
        caller = await over(config(), store).caller(bearer(SECRET), ADDRESS)
        assert caller.id == "ip:1.2.3.4"

    @pytest.mark.parametrize("settings", [config(keys=[ALICE]), config()], ids=["keys", "no file"])
    async def test_that_cannot_be_asked_for_is_not_called_wrong(self, settings: Config) -> None:
        store = MemoryKeys(MADE)
        store.is_away = True
        with pytest.raises(StateUnavailable):
            await over(settings, store).caller(bearer(SECRET), ADDRESS)

    @pytest.mark.parametrize(
        "secret",
        ["sk-alice", "sk-wrong", SECRET[:-1], SECRET + "a", SECRET[:-1] + "-", SECRET.upper()],
        ids=["the file's", "another", "shorter", "longer", "other letters", "other prefix"],
    )
    async def test_is_all_that_the_store_is_asked_for(self, secret: str) -> None:
        store = MemoryKeys()
        store.is_away = True
        authenticator = over(config(keys=[ALICE]), store)
        try:
            assert (await authenticator.caller(bearer(secret), ADDRESS)).id == "alice"
        except Unauthenticated:
            assert secret != "sk-alice"
        assert not store.asked

    async def test_whose_secret_the_file_lists_too_is_the_files(self) -> None:
        store = MemoryKeys(MADE)
        listed = key(SECRET, "listed")
        assert (await over(config(keys=[listed]), store).caller(bearer(SECRET), ADDRESS)).id == (
            "listed"
        )
        assert not store.asked

    async def test_with_an_id_of_the_file_lets_nobody_in_and_is_told_of_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="concord")
        authenticator = over(config(keys=[ALICE]), MemoryKeys(key(SECRET, "alice", role="admin")))
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await authenticator.caller(bearer(SECRET), ADDRESS)
        assert [record.getMessage() for record in caplog.records] == ["made_key_hidden"]
