"""What a request says of the size of its answer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocols.output_bound import choices, images, output_bound
from tests.fakes.builders import chat


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 7}, 9),
        ({"max_tokens": None}, None),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": -1}, None),
        ({"max_tokens": "7"}, None),
        ({"max_tokens": [7]}, None),
        ({"max_tokens": 10**30}, 10**30),
    ],
)
def test_the_larger_bound_counts_and_nonsense_is_none(
    fields: dict[str, Any], bound: int | None
) -> None:
    assert output_bound(chat(**fields)) == bound


@pytest.mark.parametrize(
    ("n", "count"), [(None, 1), (1, 1), (3, 3), (0, 1), (-2, 1), ("3", 1), ([], 1)]
)
def test_there_is_at_least_one_choice(n: Any, count: int) -> None:
    assert choices(chat(n=n)) == count
    assert choices(chat()) == 1


def test_images_are_counted_in_all_messages() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    sound = {"type": "input_audio", "input_audio": {}}
    text = {"type": "text", "text": "look"}
    assert images(chat([text, picture, sound, picture])) == 2
    assert images(chat("hi")) == 0
