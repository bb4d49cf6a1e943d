"""What `concord explain` prints of endpoints that are compared."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.admin.explain import Candidate, Explanation
from gateway.commands import explain

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
    prefill_tokens=0,
    retry_after_ms=0,
    candidates=[
        Candidate(
            endpoint=f"m:{at}",
            weight=1,
            factors={},
            score=score,
            share=share,
            reason=None,
            holds={},
        )
        for at, score, share in (("a", 750.4, 1), ("b", 4750.0, 0))
    ],
)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Print an explanation as the command does."""
    texts: list[Any] = []
    monkeypatch.setattr(explain, "answer", lambda args, ask, text: texts.append(text) or 0)

    def run(found: Explanation) -> list[str]:
        args = type("Args", (), dict.fromkeys(("model", "caller", "session", "request_id"), ""))()
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
