"""rows: everything live of a model, as it stands by the server's clock."""

from __future__ import annotations

import pytest

from gateway.state.policy import Policy
from tests.lua.limited import asking
from tests.lua.rig import HOUR, MINUTE, SECOND, START_MS, Rig

LIMITS = "|rpm=10,tpm=1000,otpm=500f,parallel=2"
CANDIDATE, LIMITED = f"a 1{LIMITS}", f"a{LIMITS}"
PART = 2 * SECOND
SAID = asking(100, 50)


def test_of_an_empty_model_there_is_nothing(rig: Rig) -> None:
    before = rig.state()

    assert rig.run("rows", limited="", window_ms=60_000, retry_percent=-1, retry_floor=3) == [
        "done",
        0,
        [],
        [],
        [],
        "",
    ]
    assert rig.state() == before


def test_fields_and_claims_are_told(rig: Rig) -> None:
    rig.admit("r.1")
    rig.admit("r.2")
    before = rig.state()

    found = rig.rows()

    assert found.claims == 2
    assert dict(zip(found.fields[::2], found.fields[1::2], strict=True)) == {
        "a:inflight": "2",
        "at_ms": str(START_MS),
    }
    assert rig.state() == before


class TestLimits:
    """Windows are texts of when they were written; what counts is told, and until when."""

    def test_that_nobody_has_touched_are_whole(self, rig: Rig) -> None:
        assert rig.rows(LIMITED).limits == [
            "a rpm 0 0 0",
            "a tpm 0 0 0",
            "a otpm 0 0 0",
            "a parallel 0 0 0",
        ]

    def test_are_told_as_they_stand_now_and_nothing_is_written(self, rig: Rig) -> None:
        rig.admit("r.1", CANDIDATE, prompt=SAID, lease_ms=HOUR)
        rig.later(20 * SECOND)
        rig.admit("r.2", CANDIDATE, prompt=SAID, lease_ms=HOUR)
        first_gone = START_MS + MINUTE + PART

        def told(at_ms: int) -> list[str]:
            rig.now_ms = at_ms
            return rig.rows(LIMITED).limits

        before = rig.state()
        assert told(START_MS + 20 * SECOND) == [
            f"a rpm 2 {MINUTE + PART} 0",
            f"a tpm 300 {MINUTE + PART} 0",
            f"a otpm 100 {40 * SECOND} 0",
            "a parallel 2 0 0",
        ]
        assert told(first_gone - 1)[0] == f"a rpm 2 {20 * SECOND + 1} 0"
        assert told(first_gone)[0] == f"a rpm 1 {20 * SECOND} 0"
        assert told(START_MS + MINUTE - 1)[2] == "a otpm 100 1 0"
        assert told(START_MS + MINUTE)[2] == "a otpm 0 0 0"
        assert told(first_gone + 20 * SECOND)[:2] == ["a rpm 0 0 0", "a tpm 0 0 0"]
        assert rig.state() == before

    def test_that_are_shadows_tell_what_they_would_have_refused(self, rig: Rig) -> None:
        for number in range(3):
            rig.admit(f"r.{number}", "a 1|rpm=1s")

        assert rig.rows("a|rpm=1s").limits == [f"a rpm 1 {MINUTE + PART} 2"]

    def test_of_locations_that_are_spelt_oddly_are_told_by_these(self, rig: Rig) -> None:
        rig.admit("r.1", "local-1@h%20x:y 1|rpm=5")

        assert rig.rows("local-1@h%20x:y|rpm=5").limits[0].startswith("local-1@h%20x:y rpm 1 ")

    @pytest.mark.parametrize("text", ["junk", "", "sliding 60000 junk", "fixed 1 1 1"])
    def test_that_somebody_has_edited_into_nonsense_are_whole(self, rig: Rig, text: str) -> None:
        rig.put({"a:rpm": text, "a:inflight": text, "a:would_refuse_rpm": text})

        assert rig.rows("a|rpm=5,parallel=5").limits == ["a rpm 0 0 0", "a parallel 0 0 0"]


class TestCooldowns:
    def test_are_told_while_they_last(self, rig: Rig) -> None:
        rig.put({"a:cooldown": f"until_ms={START_MS + 30_000} length_ms=30000 reason=retry_after"})

        assert rig.rows().cooldowns == ["a 30000 retry_after"]
        rig.later(29_999)
        assert rig.rows().cooldowns == ["a 1 retry_after"]
        rig.later(1)
        assert rig.rows().cooldowns == []

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "junk",
            f"until_ms={START_MS + 60_000} length_ms=30000 reason=429",
            f"until_ms={START_MS + 10_000} length_ms=30000 reason=",
        ],
    )
    def test_that_are_void_are_not(self, rig: Rig, text: str) -> None:
        rig.put({"a:cooldown": text})

        assert rig.rows().cooldowns == []

    def test_of_several_endpoints_are_all_told(self, rig: Rig) -> None:
        for at in ("a", "local-1@h%20x:y"):
            text = f"until_ms={START_MS + 500} length_ms=30000 reason=429"
            rig.put({f"{at}:cooldown": text})

        assert sorted(rig.rows().cooldowns) == ["a 500 429", "local-1@h%20x:y 500 429"]


class TestTheRetryBudget:
    def test_is_told_with_what_it_allows_now(self, rig: Rig) -> None:
        rig.policy = Policy(retry_percent=50, retry_floor=2)
        for number in range(9):
            rig.admit(f"r.{number}", "a 1 b 1")
        rig.admit("r.again", "a 1 b 1", tried="a")

        assert rig.rows().retries == "9 1 4"
        rig.later(MINUTE)
        assert rig.rows().retries == "0 0 2"

    def test_is_none_where_there_is_none(self, rig: Rig) -> None:
        rig.policy = Policy(retry_percent=-1)
        rig.put({"retries": f"{START_MS // 30_000} 5 5 5 5"})

        assert rig.rows().retries == ""
