"""By which digests a conversation, and how far it has come, are known again."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.request import ChatRequest
from gateway.protocols.openai_chat import read_request
from gateway.protocols.prefix import OPENING_BYTES, PromptBytes, fingerprint
from gateway.protocols.token_estimate import estimate_tokens

SECRET = b"secret"


def chat(*messages: Any, **fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": list(messages), **fields}
    return read_request(json.dumps(body).encode())


def said(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


SYSTEM = said("system", "You are terse.")
HELLO = said("user", "hello")
HI = said("assistant", "hi")


def print_of(*messages: Any, **fields: Any) -> str:
    return fingerprint(chat(*messages, **fields), SECRET)


def anchor_of(*messages: Any) -> str:
    return PromptBytes(chat(*messages), SECRET).anchor()


def holds(anchor: str, *messages: Any) -> bool:
    return PromptBytes(chat(*messages), SECRET).holds(anchor)


class TestFingerprint:
    def test_stays_as_the_conversation_grows(self) -> None:
        assert print_of(SYSTEM, HELLO) == print_of(SYSTEM, HELLO, HI, said("user", "and?"))

    @pytest.mark.parametrize(
        "other",
        [
            [said("system", "You are terse!"), HELLO],
            [SYSTEM, said("user", "hello ")],
            [said("developer", "You are terse."), HELLO],
            [HELLO],
            [SYSTEM, HI, HELLO],
            [said("system", "You are terse.hello")],
        ],
    )
    def test_differs_as_soon_as_the_opening_does(self, other: list[Any]) -> None:
        assert print_of(*other) != print_of(SYSTEM, HELLO)

    def test_looks_at_four_messages_and_no_further_than_the_users(self) -> None:
        fifth = [SYSTEM, HI, HI, HI]
        assert print_of(*fifth, HELLO) == print_of(*fifth, said("user", "other"))
        assert print_of(SYSTEM, HI, HI, HELLO) != print_of(SYSTEM, HI, HI, said("user", "other"))

    def test_looks_at_the_beginning_of_a_long_text(self) -> None:
        start = "x" * OPENING_BYTES
        assert print_of(said("user", start + "a")) == print_of(said("user", start + "b"))
        assert print_of(said("user", start[1:] + "a")) != print_of(said("user", start[1:] + "b"))

    def test_a_long_first_part_hides_the_second(self) -> None:
        long, short = {"text": "x" * OPENING_BYTES}, [{"text": "a"}, {"text": "b"}]
        assert len({print_of(said("user", [long, part])) for part in short}) == 1

    def test_media_do_not_count(self) -> None:
        def with_image(url: str) -> dict[str, Any]:
            image = {"type": "image_url", "image_url": {"url": url}}
            return said("user", [{"type": "text", "text": "hello"}, image])

        assert print_of(with_image("data:a")) == print_of(with_image("data:b")) == print_of(HELLO)

    def test_parts_do_not_run_together(self) -> None:
        prints = {
            print_of(said("user", [{"text": text} for text in texts]))
            for texts in (["ab", "c"], ["a", "bc"], ["abc"], ["a\u001fbc"], ["a\\u001fbc"])
        }
        assert len(prints) == 5

    @pytest.mark.parametrize("name", ["tools", "response_format"])
    def test_tools_and_schema_count_with_the_order_of_their_keys(self, name: str) -> None:
        prints = [
            print_of(HELLO, **fields)
            for fields in ({}, {name: {"a": 1, "b": 2}}, {name: {"b": 2, "a": 1}})
        ]
        assert len(set(prints)) == 3
        assert print_of(HELLO, **{name: None}) == print_of(HELLO, **{name: []}) == prints[0]

    def test_tools_are_no_schema(self) -> None:
        assert print_of(HELLO, tools={"a": 1}) != print_of(HELLO, response_format={"a": 1})

    def test_there_is_none_of_nothing(self) -> None:
        assert print_of() == print_of(None, 5) == ""
        assert print_of(tools=[1]) != ""

    def test_is_sixteen_hex_digits_that_need_the_secret(self) -> None:
        assert re.fullmatch("[0-9a-f]{16}", print_of(HELLO))
        assert fingerprint(chat(HELLO), b"other") != print_of(HELLO)

    def test_half_an_emoji_is_known_again(self) -> None:
        cut = said("user", "hello \ud83d")
        assert print_of(cut) == print_of(cut) != print_of(HELLO)


class TestAnchor:
    def test_holds_for_the_same_prompt_and_for_all_that_continue_it(self) -> None:
        anchor = anchor_of(SYSTEM, HELLO)
        assert holds(anchor, SYSTEM, HELLO)
        assert holds(anchor, SYSTEM, HELLO, HI, said("user", "and?"))
        assert holds(anchor, SYSTEM, said("user", "hello again"))

    @pytest.mark.parametrize(
        "other",
        [
            [SYSTEM, said("user", "hellp"), HI],
            [said("system", "you are terse."), HELLO, HI],
            [said("system", "You are terse. "), HELLO, HI],
            [said("developer", "You are terse."), HELLO, HI],
            [HELLO, SYSTEM],
            [SYSTEM],
            [],
        ],
    )
    def test_breaks_at_one_character(self, other: list[Any]) -> None:
        assert not holds(anchor_of(SYSTEM, HELLO), *other)

    def test_breaks_beyond_what_a_fingerprint_sees(self) -> None:
        texts = ["x" * 3 * OPENING_BYTES + end for end in "ab"]
        first, second = (said("user", text) for text in texts)
        assert print_of(first) == print_of(second)
        assert not holds(anchor_of(first), second)

    def test_media_are_known_by_their_content(self) -> None:
        def with_image(url: str) -> dict[str, Any]:
            return said("user", [{"type": "image_url", "image_url": {"url": url}}, "what is it?"])

        assert holds(anchor_of(with_image("data:aaaa")), with_image("data:aaaa"), HI)
        assert not holds(anchor_of(with_image("data:aaaa")), with_image("data:aaab"), HI)

    def test_what_marks_a_part_for_the_cache_does_not_count(self) -> None:
        marked = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
        assert holds(anchor_of(said("user", marked)), HELLO, HI)
        assert holds(anchor_of(HELLO), said("user", marked), HI)

    def test_tool_calls_count_with_the_order_of_their_keys(self) -> None:
        def calling(call: dict[str, Any]) -> dict[str, Any]:
            return said("assistant", None, tool_calls=[call], refusal=None)

        anchor = anchor_of(HELLO, calling({"id": "1", "name": "f"}))
        assert holds(anchor, HELLO, calling({"id": "1", "name": "f"}), HI)
        assert not holds(anchor, HELLO, calling({"name": "f", "id": "1"}), HI)
        assert not holds(anchor, HELLO, calling({"id": "2", "name": "f"}), HI)

    def test_no_text_passes_for_a_message_or_for_json(self) -> None:
        forged = said("user", 'hello\u001e"assistant"\u001fhi')
        assert not holds(anchor_of(HELLO, HI), forged)
        assert not holds(anchor_of(said("user", 5)), said("user", "5"))
        assert not holds(anchor_of(said("user", [{"a": 1}])), said("user", '{"a":1}'))

    def test_checking_and_making_give_the_same_in_any_order(self) -> None:
        short, long = anchor_of(SYSTEM), anchor_of(SYSTEM, HELLO, HI)
        prompt = PromptBytes(chat(SYSTEM, HELLO, HI), SECRET)
        assert prompt.holds(short)
        assert prompt.anchor() == long
        assert prompt.holds(short)
        assert prompt.holds(long)
        assert prompt.anchor() == long

    @pytest.mark.parametrize(
        "text",
        ["", "x", ":", "5", "-1:0123456789abcdef", "999999999:0123456789abcdef", "٣:" + "0" * 16],
    )
    def test_nonsense_holds_for_nothing(self, text: str) -> None:
        assert not holds(text, SYSTEM, HELLO)

    def test_shows_length_and_digest_that_need_the_secret(self) -> None:
        anchor = anchor_of(HELLO)
        assert re.fullmatch("[0-9]+:[0-9a-f]{16}", anchor)
        assert PromptBytes(chat(HELLO), b"other").anchor() != anchor


roles = st.sampled_from(["system", "user", "assistant", "tool"])
contents = st.text(max_size=8) | st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"]), "text": st.text()}),
    min_size=1,
    max_size=3,
)
conversations = st.lists(st.builds(said, roles, contents), min_size=1, max_size=6)


@given(messages=conversations, more=conversations, at=st.integers(0, 5))
@settings(deadline=None)
def test_a_conversation_that_goes_on_holds_and_one_that_is_edited_does_not(
    messages: list[Any], more: list[Any], at: int
) -> None:
    anchor = anchor_of(*messages)
    assert holds(anchor, *messages, *more)

    edited = [dict(message) for message in messages]
    edited[at % len(edited)]["role"] = "developer"
    assert not holds(anchor, *edited, *more)


def test_another_conversation_costs_nothing_by_size_but_is_new_by_fingerprint() -> None:
    # What a caller's last prompt left in a cache says nothing of another one as long.
    first, second = (said("user", f"{word} " * 400_000) for word in ("abcd", "efgh"))
    assert estimate_tokens(chat(first)) == estimate_tokens(chat(second)) == 500_000
    assert print_of(first) != print_of(second)
    assert not holds(anchor_of(first), second)
