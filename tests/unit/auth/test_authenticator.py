"""Who a request comes from, by the key it carries."""

from __future__ import annotations

import pytest

from gateway.auth.keys import Authenticator, presented_key
from gateway.errors import Unauthenticated
from tests.fakes.builders import config, key

ALICE = key("sk-alice", "alice", role="pro", models=frozenset({"m"}))
ADDRESS = "1.2.3.4"


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


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
def test_a_known_key_names_its_caller(headers: dict[str, str]) -> None:
    caller = Authenticator(config(keys=[ALICE])).caller(headers, ADDRESS)
    assert (caller.id, caller.role, caller.models) == ("alice", "pro", frozenset({"m"}))
    assert not caller.is_admin


@pytest.mark.parametrize(
    "headers",
    [{}, bearer("sk-wrong"), {"x-api-key": "sk-alice2"}, bearer("sk-ALICE"), bearer("\xe9")],
    ids=["none", "wrong", "longer", "other case", "not ASCII"],
)
def test_without_a_known_key_nobody_is_let_in_where_keys_are_kept(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated) as refused:
        Authenticator(config(keys=[ALICE])).caller(headers, ADDRESS)
    assert "sk-" not in refused.value.message


def test_an_empty_list_of_keys_lets_nobody_in() -> None:
    with pytest.raises(Unauthenticated):
        Authenticator(config(keys=[])).caller(bearer("any"), ADDRESS)


@pytest.mark.parametrize(
    "settings",
    [config(), config(keys=[ALICE], auth="none")],
    ids=["no keys.yaml", "auth: none"],
)
@pytest.mark.parametrize("headers", [{}, bearer("sk-alice"), bearer("junk")])
def test_where_no_keys_are_asked_for_callers_are_told_apart_by_address(
    settings: object, headers: dict[str, str]
) -> None:
    caller = Authenticator(settings).caller(headers, ADDRESS)  # type: ignore[arg-type]
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
def test_the_admin_key_is_an_admins_wherever_keys_stand(settings: object) -> None:
    caller = Authenticator(settings).caller(bearer("sk-root"), ADDRESS)  # type: ignore[arg-type]
    assert caller.is_admin
    assert caller.models is None


def test_no_secret_is_kept() -> None:
    authenticator = Authenticator(config(admin_key="sk-root", keys=[ALICE]))
    assert "sk-" not in repr(vars(authenticator))
