"""caller_limits: tells what is taken, and touches nothing."""

from __future__ import annotations

from gateway.state.standing import Use
from tests.lua.caller_rig import PART_MS, WINDOW_MS, CallerRig, fixed, scope, shadow
from tests.lua.rig import HOUR, SECOND

EVERY = (
    scope(rpm=fixed(9), tpm=900, max_parallel_requests=9, max_budget=99, budget_duration_ms=HOUR),
    scope("team", "acme", rpm=shadow(1)),
)


def use(scope: str, limit: str, taken: int, reset_ms: int = 0, refused: int = 0) -> Use:
    return Use(scope=scope, limit=limit, taken=taken, reset_ms=reset_ms, would_have_refused=refused)


def test_tells_what_is_taken_of_each_limit_and_when_it_is_whole_again(callers: CallerRig) -> None:
    callers.reserve("r.1", *EVERY, tokens=10, nanousd=1)
    callers.later(10 * SECOND)
    callers.reserve("r.2", *EVERY, tokens=10, nanousd=1)
    assert list(callers.uses(*EVERY).values()) == [
        use("key:alice", "rpm", 2, WINDOW_MS - 10 * SECOND),
        use("key:alice", "tpm", 20, WINDOW_MS + PART_MS),
        use("key:alice", "max_parallel_requests", 2),
        use("key:alice", "max_budget", 2, HOUR - 10 * SECOND),
        use("team:acme", "rpm", 1, WINDOW_MS + PART_MS - 10 * SECOND, 1),
    ]


def test_of_limits_that_nobody_has_touched_tells_nothing_taken(callers: CallerRig) -> None:
    assert {(one.taken, one.reset_ms) for one in callers.uses(*EVERY).values()} == {(0, 0)}


def test_counts_what_stands(callers: CallerRig) -> None:
    callers.reserve("r.1", *EVERY)
    callers.reserve("r.2", *EVERY)
    callers.settle_caller("r.2")
    assert callers.run("caller_limits", scopes="", window_ms=WINDOW_MS) == ["done", 1, []]


def test_changes_nothing(callers: CallerRig) -> None:
    callers.reserve("r.1", *EVERY)
    callers.later(HOUR)
    before = callers.state()
    callers.uses(*EVERY)
    assert callers.state() == before
