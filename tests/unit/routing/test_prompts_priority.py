"""What tells how much of a prompt is cached, and how urgent the rest is."""

from __future__ import annotations

import re
from typing import Any

from gateway.admission.claims import Claim
from gateway.admission.secret import Secret
from gateway.config.schema import Prefill
from gateway.core.caller import UNKNOWN_ADDRESS, Caller
from gateway.core.prompt import Prompt
from gateway.core.request import ChatRequest
from gateway.routing.prompts import Prompts
from gateway.state.policy import Policy
from tests.fakes.builders import chat, model, route

ALICE = Caller(id="alice")
ASKING = route(priority_scheduling=True)
SAID = "canary " * 40_000


def prompts(*, secret: str = "secret", **policy: bool) -> Prompts:
    return Prompts(Secret(secret), Policy(**policy), Prefill())


def told(
    given: Prompts, caller: Caller | None = ALICE, *, priority: bool = False, said: str = SAID
) -> Prompt:
    of = model(ASKING) if priority else model()
    return given.of(chat(said), caller, "session", of)


def test_by_default_it_is_size_and_digests() -> None:
    prompt = told(prompts())
    assert re.fullmatch("[0-9a-f]{16}", prompt.caller)
    assert re.fullmatch("[0-9a-f]{16}", prompt.fingerprint)
    assert prompt.tokens == len(SAID) // 4
    assert prompt.anchor == ""


def test_without_affinity_prefill_still_knows_the_caller() -> None:
    assert told(prompts(affinity=False)) == told(prompts())


def test_of_callers_behind_a_proxy_that_tells_nothing_only_the_size_is_told() -> None:
    caller = Caller(id=UNKNOWN_ADDRESS)
    assert told(prompts(), caller, priority=True) == Prompt(tokens=len(SAID) // 4)


def test_the_anchor_is_made_where_an_engine_takes_priorities() -> None:
    assert re.fullmatch(r"\d+:[0-9a-f]{16}", told(prompts(), priority=True).anchor)


def test_other_secrets_give_other_digests() -> None:
    one, other = (told(prompts(secret=secret), priority=True) for secret in ("one", "two"))
    assert one.caller != other.caller
    assert one.fingerprint != other.fingerprint
    assert one.anchor != other.anchor


class TestTheUrgencyOfAnAttempt:
    def claim(self, asked: ChatRequest, **values: Any) -> Claim:
        prompt = prompts().of(asked, ALICE, None, model(ASKING))
        usual = {"route": ASKING, "policy": Policy(), "prompt": prompt, "dropped": {}}
        return Claim(id="r.1", **{**usual, **values})

    def test_goes_by_what_the_endpoint_has_not_cached_of_this_prompt(self) -> None:
        before, now = chat(SAID), chat(SAID + "and more")
        anchor = prompts().of(before, ALICE, None, model(ASKING)).anchor
        kept = {"cached_tokens": len(SAID) // 4, "anchor": anchor}

        assert prompts().priority(now, self.claim(now)) == 15
        assert prompts().priority(now, self.claim(now, **kept)) == 20

    def test_takes_nothing_for_cached_where_the_prompt_begins_otherwise(self) -> None:
        before, now = chat("x" + SAID[1:]), chat(SAID + "and more")
        anchor = prompts().of(before, ALICE, None, model(ASKING)).anchor
        kept = {"cached_tokens": len(SAID) // 4, "anchor": anchor}

        assert prompts().priority(now, self.claim(now, **kept)) == 15

    def test_is_told_to_engines_that_ask_for_it_alone(self) -> None:
        asked = chat(SAID)
        assert prompts().priority(asked, self.claim(asked, route=route())) is None
        assert prompts(prefill=False).priority(asked, self.claim(asked)) is None
