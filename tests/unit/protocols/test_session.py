"""What a client calls its conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.config.schema import Affinity
from gateway.protocols.openai_chat import read_request
from gateway.protocols.session import session_id

SOURCES = Affinity().session_ids


def session(
    headers: dict[str, str] | None = None, sources: tuple[str, ...] = SOURCES, **fields: Any
) -> str | None:
    body = json.dumps({"model": "m", "messages": [], **fields})
    return session_id(headers or {}, read_request(body.encode()), sources)


def test_a_request_that_names_none_has_none() -> None:
    assert session() is None
    assert session({"x-other": "a"}, metadata={"other": "b"}) is None


def test_the_first_source_that_is_there_counts() -> None:
    given = {
        "x-concord-session": "a",
        "x-session-id": "b",
        "session-id": "c",
        "x-claude-code-session-id": "d",
    }
    found = []
    while given:
        found.append(session(given, prompt_cache_key="e", metadata={"user_id": "f"}))
        del given[next(iter(given))]
    found.append(session(prompt_cache_key="e", metadata={"user_id": "f"}))
    found.append(session(metadata={"user_id": "f"}))
    assert found == ["a", "b", "c", "d", "e", "f"]


def test_order_and_choice_are_the_configs() -> None:
    sources = ("user", "x-session-id", "safety_identifier")
    assert session({"x-session-id": "a"}, sources, user="b", safety_identifier="c") == "b"
    assert session({"x-session-id": "a"}, sources, safety_identifier="c") == "a"
    assert session({"x-concord-session": "a"}, sources, safety_identifier="c") == "c"
    assert session({"x-session-id": "a"}, (), user="b") is None


def test_users_are_no_sessions_unless_the_config_says_so() -> None:
    assert session(user="a", safety_identifier="b") is None


def test_blank_and_odd_values_count_as_absent() -> None:
    odd: list[Any] = [None, "", " \n", 5, True, [], {"user_id": "x"}, ["x"]]
    for value in odd:
        assert session({"x-session-id": " "}, prompt_cache_key=value) is None
        assert session(metadata={"user_id": value}) is None
    for value in (None, "user_id", 5, ["user_id"], {}):
        assert session(metadata=value) is None


@pytest.mark.parametrize(
    "given",
    [
        "user_0a1b_account_9e1f_session_77aa",
        '{"device_id":"é","session_id":"7"}',
        "x" * 100_000,
    ],
)
def test_a_value_is_taken_whole_but_for_blanks_around_it(given: str) -> None:
    assert session(metadata={"user_id": f" {given}\n"}) == given
    assert session({"session-id": f" {given} "}) == given


def test_half_an_emoji_in_a_session_is_no_error() -> None:
    assert session(prompt_cache_key="a\ud83d") == "a\ufffd"
