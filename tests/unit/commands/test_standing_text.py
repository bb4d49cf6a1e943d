"""How limits, pauses and budgets of failover are printed: within a hundred columns."""

from __future__ import annotations

from gateway.admin.gates import GateStatus
from gateway.admin.limits import LimitUse
from gateway.commands.standing import budgets, cooling, gates, limits
from gateway.commands.table import table
from gateway.state.standing import Cooldown, Retries


def use(limit: str = "rpm", **values: object) -> LimitUse:
    usual = {
        "limit": limit,
        "mode": "enforce",
        "most": 600.0,
        "taken": 588.0,
        "left": 12.0,
        "reset_s": 61.25,
        "would_have_refused": 0,
    }
    return LimitUse(**{**usual, **values})


def test_a_limit_is_a_line_with_what_is_taken_and_left_and_when_it_resets() -> None:
    places = use("max_parallel_requests", most=8.0, taken=3.0, left=5.0, reset_s=None)
    (text,) = limits([("m:a", [use(), places]), ("m:free", []), ("n:b", [use("tpm")])])
    assert text.splitlines() == [
        "ENDPOINT  LIMIT                  MOST  TAKEN  LEFT  RESETS IN  NOTES",
        "m:a       rpm                    600   588    12    61.2 s",
        "m:a       max_parallel_requests  8     3      5",
        "n:b       tpm                    600   588    12    61.2 s",
    ]


def test_a_shadow_says_so_and_how_many_it_has_let_pass() -> None:
    (text,) = limits([("m:a", [use(mode="shadow", would_have_refused=7)])])
    assert text.splitlines()[1].endswith("shadow, 7 not refused")


def test_large_numbers_and_a_long_name_fit_the_terminal() -> None:
    big = use("tpm", most=2e6, taken=1999999.0, left=1.0, mode="shadow", would_have_refused=12345)
    (text,) = limits([("vendor/team/model:minimax-api-2", [big])])
    assert max(map(len, text.splitlines())) <= 100
    assert "2000000  1999999  1" in text


def test_without_limits_there_is_no_table() -> None:
    assert limits([("m:a", [])]) == []


def test_a_pause_is_told_with_its_reason_and_what_is_left_of_it() -> None:
    assert cooling(Cooldown(reason="retry_after", left_s=4.25)) == [
        "cooldown 4.2 s more (retry_after)"
    ]
    assert cooling(None) == []


def test_budgets_are_told_of_models_that_were_asked_for_lately() -> None:
    busy = Retries(first_attempts=120, others=3, allowed=24)
    idle = Retries(first_attempts=0, others=0, allowed=3)
    (text,) = budgets([("m", busy), ("n", idle)])
    assert text.splitlines() == [
        "MODEL  FIRST ATTEMPTS  OTHERS  ALLOWED",
        "m      120             3       24",
    ]
    assert budgets([("n", idle)]) == []


def test_a_last_column_that_is_too_long_goes_on_below_itself() -> None:
    text = table(("A", "NOTES"), [("x" * 60, "word " * 12), ("y", "")])
    assert text.splitlines() == [
        f"{'A':60}  NOTES",
        f"{'x' * 60}  {'word ' * 6}word",
        f"{'':62}{'word ' * 4}word",
        "y",
    ]


def test_beside_columns_that_fill_the_terminal_the_last_one_keeps_some_room() -> None:
    (_, first, second) = table(
        ("A", "NOTES"), [("x" * 99, "four words stay together now")]
    ).splitlines()
    assert first == f"{'x' * 99}  four words stay together"
    assert second == f"{'':101}now"


def test_a_gate_is_a_line_with_its_limit_who_has_passed_and_who_waits() -> None:
    (text,) = gates(
        [
            GateStatus(
                provider="acme", key_fingerprint="494d0e3a1800", limit=12, in_flight=12, waiting=3
            ),
            GateStatus(engine="localhost:8000", limit=1, in_flight=0, waiting=0),
        ]
    )
    assert text.splitlines() == [
        "GATE               LIMIT  PASSED  WAITING",
        "acme 494d0e3a1800  12     12      3",
        "localhost:8000     1      0       0",
    ]
    assert gates([]) == []
