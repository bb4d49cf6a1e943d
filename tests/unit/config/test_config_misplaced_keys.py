"""Keys in fields where none belongs: no message quotes one, and what looks like one is noted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import fields

from gateway.config.keys_schema import KeyEntry, UserEntry
from gateway.config.models_schema import ModelEntry, RouteEntry
from gateway.config.schema import RoutingFile

LOOKS = "sk-canary-of-an-upstream"
CONFIGURED = "canary configured elsewhere in the file"
ROUTE = {"base_url": "https://a", "api_keys": ["own-canary-1", CONFIGURED.replace(" ", "-")]}
MODEL = {"id": "m", "name": "M", "provider": "acme", "kind": "vllm", "route": [ROUTE]}
CALLER = {"id": "c", "key": CONFIGURED.replace(" ", "-")}
CANARIES = (LOOKS, CONFIGURED.replace(" ", "-"))


def wrongly(value: str) -> list[Any]:
    """A key as people misplace it."""
    return [
        value,
        [value],
        {value: 1},
        {"limit": value},
        f"https://{value}@a",
        f"https://a/?k={value}",
    ]


def names(*structs: type) -> list[str]:
    return [info.encode_name for struct in structs for info in fields(struct)]


@pytest.mark.parametrize("canary", CANARIES)
def test_no_message_quotes_a_key_wherever_it_stands(load_texts, canary: str) -> None:
    values = wrongly(canary)
    models = [
        {**MODEL, name: value} for name in (*names(ModelEntry), canary) for value in values
    ] + [
        {**MODEL, "route": [ROUTE, {**ROUTE, name: value}]}
        for name in (*names(RouteEntry), canary)
        for value in values
    ]
    keys = [
        {**CALLER, name: value}
        for name in (*names(KeyEntry, UserEntry), canary)
        for value in values
    ]

    told = problems(load_texts, models=models, keys={"keys": keys, "users": keys})

    assert len(told) > 500
    assert [one for one in told if canary in one] == []


def test_no_message_quotes_what_looks_like_a_key_in_settings(load_texts) -> None:
    told: list[str] = []
    for value in wrongly(LOOKS):
        told += problems(load_texts, routing=dict.fromkeys([*names(RoutingFile), LOOKS], value))

    assert len(told) > 100
    assert [one for one in told if LOOKS in one] == []


def problems(
    load_texts, *, models: list[Any] | None = None, routing: Any = None, keys: Any = None
) -> list[str]:
    loaded = load_texts(
        json.dumps({"models": models or [MODEL]}),
        routing=json.dumps(routing or {}),
        keys=json.dumps(keys or {"keys": []}),
    )
    return [str(problem) for problem in loaded.problems]


@pytest.mark.parametrize("name", ["provider", "provider_model_id", "name"])
def test_what_looks_like_a_key_where_logs_show_it_is_warned_of(load_texts, name: str) -> None:
    (warning,) = problems(load_texts, models=[{**MODEL, name: LOOKS}])

    assert warning.startswith(f"warning models.yaml: models[0].{name}: holds what looks like a key")


@pytest.mark.parametrize("entry", [LOOKS, {"key": LOOKS, "min_role": "pro"}])
def test_where_keys_belong_nothing_is_said(load_texts, entry: Any) -> None:
    route = {"base_url": "https://a", "api_keys": [entry]}

    assert problems(load_texts, models=[{**MODEL, "route": [route]}]) == []


@pytest.mark.parametrize("name", ["id", "user", "team"])
def test_a_callers_public_name_must_not_look_like_a_key(load_texts, name: str) -> None:
    told = problems(load_texts, keys={"keys": [{**CALLER, name: LOOKS}]})

    assert f"error keys.yaml: keys[0].{name}: looks like a key (it is public: logs show it)" in told
