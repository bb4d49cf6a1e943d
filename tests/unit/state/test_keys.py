"""Keys: whatever an id is, one model's keys share a slot and no two models share a key."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.state.keys import (
    CALLER_KINDS,
    CLUSTER_KINDS,
    GATE_KINDS,
    MODEL_KINDS,
    Keys,
    encode_id,
)

HOSTILE = [
    "a b",
    "a}b",
    "{a}",
    "a=b",
    "a%20b",
    "a\nb",
    "a\x00b",
    "modèle",
    "模型",
    "a~b",
    "a*",
    "a?b",
    "a[b]",
    "a\\b",
    '"',
    "",
]


def tag(key: str) -> str:
    """What Redis hashes: between the first brace and the next one that closes it."""
    found = re.search(r"\{([^}]+)\}", key)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("llama-3.3-70b", "llama-3.3-70b"),
        ("org/model:tag@v1.2_x", "org/model:tag@v1.2_x"),
        ("a b", "a%20b"),
        ("{m}", "%7Bm%7D"),
        ("a=b", "a%3Db"),
        ("50%", "50%25"),
        ("~", "%7E"),
        ("gpt-*", "gpt-%2A"),
        ("é", "%C3%A9"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_ids_are_percent_encoded_outside_the_safe_characters(text: str, encoded: str) -> None:
    assert encode_id(text) == encoded


@given(st.text())
def test_encoded_id_is_one_harmless_word_and_can_be_read_back(text: str) -> None:
    encoded = encode_id(text)

    assert re.fullmatch(r"[A-Za-z0-9._/:@%-]*", encoded)
    assert unquote(encoded) == text


@pytest.mark.parametrize("model_id", HOSTILE)
def test_keys_of_one_model_share_a_slot(model_id: str) -> None:
    keys = Keys().model(model_id)

    assert keys.keys() == set(MODEL_KINDS)
    assert {tag(key) for key in keys.values()} == {f"m:{encode_id(model_id)}"}


def test_no_two_models_share_a_key() -> None:
    every = [key for model_id in HOSTILE for key in Keys().model(model_id).values()]

    assert len(set(every)) == len(HOSTILE) * len(MODEL_KINDS)
    assert all(one != next_one for one, next_one in pairwise(sorted(every)))


@pytest.mark.parametrize("model_id", HOSTILE)
def test_keys_of_a_models_callers_share_its_slot(model_id: str) -> None:
    keys = Keys().caller(model_id, "0123456789abcdef")

    assert keys.keys() == {*MODEL_KINDS, *CALLER_KINDS}
    assert {tag(key) for key in keys.values()} == {f"m:{encode_id(model_id)}"}


def test_callers_share_all_keys_of_the_model_and_none_of_their_own() -> None:
    one, other = Keys().caller("x", "1f"), Keys().caller("x", "2e")

    assert {kind for kind in one if one[kind] == other[kind]} == set(MODEL_KINDS)
    assert one.items() >= Keys().model("x").items()


@pytest.mark.parametrize("label", HOSTILE)
def test_keys_of_one_gate_share_a_slot_with_its_sharded_channels(label: str) -> None:
    keys = Keys().gate(f"u:{label}:0123456789ab")
    channels = Keys().grants(f"u:{label}:0123456789ab")

    assert keys.keys() == {*GATE_KINDS}
    assert len({*map(tag, keys.values()), tag(channels)}) == 1
    assert channels not in keys.values()


def test_keys_are_spelt_as_the_data_dictionary_says() -> None:
    assert Keys().model("llama-3.3-70b")["endpoints"] == "gw:{m:llama-3.3-70b}:endpoints"
    assert Keys().caller("x", "1f")["pin"] == "gw:{m:x}:pin:1f"
    assert Keys().cluster() == {kind: f"gw:{{cluster}}:{kind}" for kind in CLUSTER_KINDS}


def test_namespace_is_a_setting() -> None:
    assert Keys(namespace="staging").model("x")["claims"] == "staging:{m:x}:claims"
