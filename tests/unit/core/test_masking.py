"""Keys are told by their look, and no error of ours quotes one."""

from __future__ import annotations

import pytest

from gateway.core.masking import looks_like_key, mask_keys
from gateway.errors import ModelNotFound, NotFound


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-0123456789abcdef",
        "gsk_0123456789abcdefghij",
        "hf_abcdefghijabcdefghijabcd",
        "xai-0123456789abcdefghij",
        "AIzaSyA0123456789abcdefghijklmnopqrstu",
    ],
)
def test_a_key_is_known_by_its_look(text: str) -> None:
    assert mask_keys(f"the key '{text}' is") == "the key '[key]' is"


@pytest.mark.parametrize(
    "text",
    ["sk-short", "task-force-of-engineers", "hf-internal-testing/tiny-random", "gpt-4o", "risk_1"],
)
def test_other_names_are_left_as_they_are(text: str) -> None:
    assert not looks_like_key(text)
    assert mask_keys(text) == text


def test_no_error_of_ours_quotes_a_key_that_was_given_for_a_name() -> None:
    key = "sk-proj-0123456789abcdef"

    for error in (ModelNotFound(key), NotFound(f"No route has the provider '{key}'.")):
        assert key not in error.message
        assert key not in str(error)
