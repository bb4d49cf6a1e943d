"""Which limits a key's caller counts against, and where."""

from __future__ import annotations

import pytest

from gateway.auth.holders import caller_of
from gateway.config.result import User
from gateway.core.caller import Caller
from gateway.core.limits import Limit, Limits
from tests.fakes.builders import key

RPM = Limits(rpm=Limit(10))
TPM = Limits(tpm=Limit(100, True))
NONE = Limits()
USERS = {
    "alone": User(limits=TPM),
    "member": User(team="team", limits=TPM),
    "free": User(team="free-team"),
}
TEAMS = {"team": Limits(max_budget=Limit(5)), "free-team": NONE}


def caller(**values: object) -> Caller:
    return caller_of(key("sk", "k", **values), USERS, TEAMS)


@pytest.mark.parametrize(
    ("values", "expected", "tag"),
    [
        ({}, [], ""),
        ({"limits": RPM}, ["key:k"], "key:k"),
        ({"user": "alone"}, ["user:alone"], "user:alone"),
        ({"user": "alone", "limits": RPM}, ["key:k", "user:alone"], "user:alone"),
        ({"user": "member"}, ["user:member", "team:team"], "team:team"),
        ({"user": "member", "limits": RPM}, ["key:k", "user:member", "team:team"], "team:team"),
        ({"team": "team"}, ["team:team"], "team:team"),
        ({"user": "free"}, [], ""),
        ({"user": "free", "limits": RPM}, ["key:k"], "team:free-team"),
        ({"user": "new"}, [], ""),
        ({"user": "new", "limits": RPM}, ["key:k"], "user:new"),
        ({"user": "new", "team": "team"}, ["team:team"], "team:team"),
        ({"user": "new", "team": "new", "limits": RPM}, ["key:k"], "team:new"),
        ({"user": "member", "team": "other"}, ["user:member", "team:team"], "team:team"),
        ({"user": "alone", "team": "team"}, ["user:alone"], "user:alone"),
    ],
    ids=str,
)
def test_limits_are_the_keys_its_users_and_its_teams_kept_with_the_outermost(
    values: dict[str, object], expected: list[str], tag: str
) -> None:
    found = caller(**values)
    assert [f"{scope.kind}:{scope.id}" for scope in found.scopes] == expected
    assert found.limit_tag == tag


def test_scopes_carry_their_holders_limits() -> None:
    found = caller(user="member", limits=RPM)
    assert [scope.limits for scope in found.scopes] == [RPM, TPM, TEAMS["team"]]


def test_limits_on_a_model_count_for_that_model_alone() -> None:
    found = caller(limits=RPM, model_limits={"m": TPM, "n": NONE})
    (own,) = found.scopes
    assert found.scopes_for("other") == found.scopes_for("n") == (own,)
    first, second = found.scopes_for("m")
    assert first == own
    assert (second.kind, second.id, second.limits) == ("model", "k:m", TPM)


def test_limits_on_a_model_are_kept_with_the_others_also_when_there_are_none() -> None:
    found = caller(user="free", model_limits={"m": TPM})
    assert found.scopes == ()
    assert found.limit_tag == "team:free-team"
