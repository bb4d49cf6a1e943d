"""The words of an operator: ids with slashes, aliases, misspelt names."""

from __future__ import annotations

import pytest

from gateway.admin.targets import NoSuchTarget, any_model, endpoints_of, model_of, route_of, split
from tests.fakes.builders import config, model, route

CONFIG = config(
    model(id="org", aliases=("short",)),
    model(id="org/chat"),
    model(id="org/chat/large", aliases=("vendor/large",)),
)


@pytest.mark.parametrize(
    ("path", "model_id", "rest"),
    [
        ("org/a", "org", "a"),
        ("org/chat/a", "org/chat", "a"),
        ("org/chat/large/a", "org/chat/large", "a"),
        ("org/chat/larger", "org/chat", "larger"),
        ("org/chat", "org", "chat"),
        ("org/chat/org/chat:a", "org/chat", "org/chat:a"),
        ("org/ip:2001:db8::/64", "org", "ip:2001:db8::/64"),
    ],
)
def test_path_is_parted_at_the_longest_model_id_that_leaves_a_rest(
    path: str, model_id: str, rest: str
) -> None:
    found, left = split(CONFIG, path)
    assert (found.id, left) == (model_id, rest)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("org", "must follow 'org/'"),
        ("org/", "must follow 'org/'"),
        ("short/a", "alias: say 'org'"),
        ("vendor/large/a", "alias: say 'org/chat/large'"),
        ("orgg/a", "no model 'orgg'. Near: org"),
        ("unlike-anything/a", "no model 'unlike-anything'."),
        ("/", "no model"),
        ("", "no model"),
    ],
)
def test_path_that_names_no_model_is_told_what_is_near(path: str, told: str) -> None:
    with pytest.raises(NoSuchTarget) as raised:
        split(CONFIG, path)
    assert told in raised.value.message
    assert raised.value.status == 404


def test_alias_names_its_model_only_where_nothing_is_kept_under_it() -> None:
    assert any_model(CONFIG, "short").id == "org"
    with pytest.raises(NoSuchTarget, match="alias"):
        model_of(CONFIG, "short")


@pytest.mark.parametrize("word", ["a", "org/chat:a"])
def test_endpoint_is_a_location_or_a_full_id(word: str) -> None:
    one = route("a", model_id="org/chat")
    assert route_of(model(route("b", model_id="org/chat"), one, id="org/chat"), word) is one


@pytest.mark.parametrize("word", ["c", "other:a", "chat:a", ""])
def test_other_words_are_no_endpoint(word: str) -> None:
    of = model(route("a"), route("b"))
    assert route_of(of, word) is None
    assert endpoints_of(of) == "Its endpoints: a, b."
