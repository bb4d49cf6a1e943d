"""What a failure means for the other routes, and which failure the caller sees."""

from __future__ import annotations

import pytest
from msgspec import Struct

from gateway.routing.failover import strike, surfaced
from tests.fakes.builders import plan, route


class Failed(Struct, frozen=True):
    name: str = ""
    describes_request: bool = False
    context_refusal: bool = False


DEAD, BUSY = Failed("dead"), Failed("busy")
BAD, WORSE = Failed("bad", describes_request=True), Failed("worse", describes_request=True)
TOO_LONG = Failed("too long", describes_request=True, context_refusal=True)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([DEAD], DEAD),
        ([DEAD, BUSY], DEAD),
        ([DEAD, BAD], BAD),
        ([DEAD, BUSY, BAD, WORSE], BAD),
        ([BAD, WORSE], BAD),
        ([BAD, DEAD], BAD),
        ([TOO_LONG, DEAD], TOO_LONG),
    ],
)
def test_the_first_failure_is_seen_unless_only_a_later_one_describes_the_request(
    failures: list[Failed], expected: Failed
) -> None:
    assert surfaced(failures) is expected


def test_a_failed_route_is_not_tried_again_and_the_others_stay() -> None:
    a, b = route("a", context_length=10), route("b", context_length=5)
    tried = plan(a, b)
    assert strike(tried, a, BAD) == []
    assert tried.left() == [b]
    assert tried.struck == {"a": "already_attempted"}


@pytest.mark.parametrize(
    ("refusing", "other", "skipped"),
    [
        (262144, 262144, True),
        (262144, 131072, True),
        (131072, 262144, False),
        (262144, None, False),
        (None, 131072, False),
    ],
    ids=["as wide", "narrower", "wider", "unknown", "refuser unknown"],
)
def test_a_refusal_for_length_skips_routes_that_are_known_to_be_no_wider(
    refusing: int | None, other: int | None, skipped: bool
) -> None:
    a, b = route("a", context_length=refusing), route("b", context_length=other)
    tried = plan(a, b)
    assert strike(tried, a, TOO_LONG) == ([b] if skipped else [])
    assert tried.left() == ([] if skipped else [b])
    assert tried.struck.get("b") == ("context_window" if skipped else None)


def test_each_refusal_skips_what_it_rules_out() -> None:
    a, b, c = (route(at, context_length=size) for at, size in (("a", 1), ("b", 3), ("c", 2)))
    tried = plan(a, b, c)
    assert strike(tried, a, TOO_LONG) == []
    assert strike(tried, b, TOO_LONG) == [c]
    assert tried.left() == []
