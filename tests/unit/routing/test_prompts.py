"""What the cluster is told of a prompt, and of whose it is."""

from __future__ import annotations

import pytest

from gateway.admission.secret import Secret
from gateway.config.schema import Prefill
from gateway.core.caller import Caller
from gateway.core.prompt import NO_PROMPT, Prompt
from gateway.routing.prompts import Prompts
from gateway.state.policy import Policy
from tests.fakes.builders import chat, model, route

ANN, BOB = Caller(id="ann"), Caller(id="bob")
HELLO = [{"role": "user", "content": "hello"}]
GOES_ON = [*HELLO, {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "so"}]
BYE = [{"role": "user", "content": "bye"}]


def of(
    messages: list[dict[str, str]],
    *,
    caller: Caller | None = ANN,
    session: str | None = None,
    router: str = "fixed",
    policy: Policy | None = None,
    secret: str | None = "secret",
) -> Prompt:
    prompts = Prompts(Secret(secret), policy or Policy(), Prefill())
    asked = chat(messages=messages)
    return prompts.of(asked, caller, session, model(route(), router=router))


def test_fixed_knows_a_caller_without_a_session_by_itself_alone() -> None:
    assert of(HELLO).caller == of(BYE).caller != of(HELLO, caller=BOB).caller


class TestConversationsThatAreToldApart:
    """Where endpoints are compared by what is cached, each has a memory of its own."""

    def test_are_known_by_their_beginning(self) -> None:
        begun, going_on, other = (
            of(messages, router="expected_ttft") for messages in (HELLO, GOES_ON, BYE)
        )

        assert begun.caller == going_on.caller != other.caller

    def test_are_their_callers_own(self) -> None:
        mine, yours = (of(HELLO, router="expected_ttft", caller=one) for one in (ANN, BOB))

        assert mine.caller != yours.caller

    def test_are_known_by_the_session_if_it_has_a_name(self) -> None:
        found = {
            of(messages, router="expected_ttft", session="s").caller for messages in (HELLO, BYE)
        }

        assert found == {of(HELLO, session="s").caller}

    def test_have_a_name_and_no_text(self) -> None:
        assert len(of(HELLO, router="expected_ttft").caller) == 16


@pytest.mark.parametrize("router", ["fixed", "expected_ttft"])
class TestWhateverTheStrategy:
    def test_nothing_is_kept_of_a_caller_who_cannot_be_told_from_others(self, router: str) -> None:
        found = of(HELLO, caller=None, router=router)

        assert found == Prompt(tokens=found.tokens)
        assert found.tokens > 0

    def test_nothing_is_kept_while_there_is_no_key_to_digest_with(self, router: str) -> None:
        assert not of(HELLO, secret=None, router=router).caller

    def test_nothing_is_looked_at_where_nothing_is_kept(self, router: str) -> None:
        policy = Policy(affinity=False, prefill=False)

        assert of(HELLO, policy=policy, router=router) is NO_PROMPT

    def test_prefill_switched_off_leaves_the_caller(self, router: str) -> None:
        found = of(HELLO, policy=Policy(prefill=False), router=router)

        assert found == Prompt(caller=of(BYE).caller)
