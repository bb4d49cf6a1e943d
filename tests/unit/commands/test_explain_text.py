"""What `concord explain` prints of endpoints that are compared, paused and limited."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.admin.explanation import Candidate, Explanation
from gateway.admin.limits import LimitUse
from gateway.commands import explain
from gateway.core.hedging import Hedge
from gateway.state.standing import Cooldown, Retries

FOUND = Explanation(
    model="m",
    epoch=0,
    request_id="id",
    attempt=1,
    replica="r1",
    drawn="m:a",
    refused=None,
    order="expected_ttft",
    draws=(),
    pin="",
    probe=False,
    prompt_tokens=0,
    output_tokens=0,
    prefill_tokens=0,
    retry_after_ms=0,
    retry_budget=None,
    profile_age_ms=None,
    candidates=[
        Candidate(
            endpoint=f"m:{at}",
            weight=1,
            factors={},
            score=score,
            share=share,
            cost_usd=None,
            latency_source=None,
            reason=None,
            cooldown=None,
            limits=(),
            holds={},
        )
        for at, score, share in (("a", 750.4, 1), ("b", 4750.0, 0))
    ],
)
WORDS = ("model", "caller", "session", "request_id", "prompt_tokens", "max_tokens")


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Print an explanation as the command does."""
    texts: list[Any] = []
    monkeypatch.setattr(explain, "answer", lambda args, ask, text: texts.append(text) or 0)

    def run(found: Explanation) -> list[str]:
        args = type("Args", (), dict.fromkeys(WORDS, ""))()
        assert explain.run(args) == 0
        return texts.pop()(found).splitlines()

    return run


def test_endpoints_that_are_compared_are_shown_with_their_scores(printed: Any) -> None:
    lines = printed(FOUND)

    assert "to the least score, weights choosing within 5 % of it" in lines
    assert lines[-3].split() == ["ENDPOINT", "WEIGHT", "SCORE", "SHARE", "REASON", "HOLDS"]
    assert lines[-2].split() == ["m:a", "1", "0.750", "s", "100.0%"]
    assert lines[-1].split() == ["m:b", "1", "4.750", "s", "0.0%"]


def test_without_scores_nothing_is_said_of_them(printed: Any) -> None:
    drawn = [structs.replace(one, score=None) for one in FOUND.candidates]

    lines = printed(structs.replace(FOUND, order="draw", candidates=drawn))

    assert not any("least score" in line for line in lines)
    assert lines[-1].split() == ["m:b", "1", "0.0%"]


@pytest.mark.parametrize(
    ("pin", "told"),
    [
        ("kept", "the caller stays where its pin is"),
        ("made", "the caller has no pin to follow; this request would make one"),
    ],
)
def test_what_becomes_of_a_pin_is_said_in_words(printed: Any, pin: str, told: str) -> None:
    assert told in printed(structs.replace(FOUND, pin=pin))


def test_a_pause_comes_before_what_else_is_held_and_limits_below(printed: Any) -> None:
    paused, limited = (structs.replace(one, score=None) for one in FOUND.candidates)
    cooldown = Cooldown(reason="retry_after", left_s=4.25)
    paused = structs.replace(paused, cooldown=cooldown, reason="cooldown", holds={"inflight": 2})
    rpm = LimitUse(
        limit="rpm",
        mode="enforce",
        most=2.0,
        taken=2.0,
        left=0.0,
        reset_s=60.0,
        would_have_refused=0,
    )
    limited = structs.replace(limited, limits=[rpm], reason="rpm_limit")
    budget = Retries(first_attempts=9, others=1, allowed=3)

    lines = printed(structs.replace(FOUND, candidates=[paused, limited], retry_budget=budget))

    assert lines[-9:] == [
        "ENDPOINT  WEIGHT  SHARE   REASON     HOLDS",
        "m:a       1       100.0%  cooldown   cooldown 4.2 s more (retry_after), inflight=2",
        "m:b       1       0.0%    rpm_limit",
        "",
        "ENDPOINT  LIMIT  MOST  TAKEN  LEFT  RESETS IN  NOTES",
        "m:b       rpm    2     2      0     60.0 s",
        "",
        "MODEL  FIRST ATTEMPTS  OTHERS  ALLOWED",
        "m      9               1       3",
    ]


def test_says_where_a_late_stream_goes_too(printed: Any) -> None:
    hedge = Hedge(after_ms=2400.0, locations=["b", "c"])

    assert "a stream without output for 2400 ms goes to b, else c, too" in printed(
        structs.replace(FOUND, hedge=hedge)
    )
