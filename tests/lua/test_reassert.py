"""reassert: a record that was lost while its attempt runs is put back, once."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.lua.rig import CALLER, LEASE_MS, OWN, Rig, prompt


def test_into_an_empty_model_counts_the_claim(rig: Rig) -> None:
    assert rig.reassert("r.1") == "done"

    assert rig.field("a:inflight") == "1"
    assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS}"
    assert rig.deadline("r.1") == rig.now_ms + LEASE_MS
    assert all(ttl > 0 for ttl in rig.ttls().values())


def test_repeated_changes_nothing(rig: Rig) -> None:
    rig.reassert("r.1")
    before = rig.state()

    assert rig.reassert("r.1") == "again"

    assert rig.state() == before


def test_of_a_claim_that_stands_changes_nothing(rig: Rig) -> None:
    rig.admit("r.1")
    before = rig.state()

    assert rig.reassert("r.1") == "again"
    assert rig.state() == before


def test_is_never_refused_though_the_circuit_is_open(rig: Rig) -> None:
    rig.open_circuit()

    assert rig.reassert("r.1") == "done"
    assert rig.field("a:circuit") == "open"


def test_takes_no_probe(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(30_000)
    rig.reassert("r.1")

    assert rig.admit("r.2").probe == 1


def test_settles_like_any_other_claim(rig: Rig) -> None:
    rig.reassert("r.1")

    assert rig.settle("r.1", "success").status == "done"
    assert rig.fields() == {}


@pytest.mark.parametrize(("first", "answer"), [(0, "done"), (1, "again")])
def test_says_whether_the_first_token_had_come(rig: Rig, first: int, answer: str) -> None:
    rig.reassert("r.1", first=first)

    assert rig.first_token("r.1").status == answer


@pytest.mark.parametrize("first", [False, True])
def test_of_a_reaped_claim_takes_its_tombstone_away(rig: Rig, first: bool) -> None:
    rig.admit("r.1")
    if first:
        rig.first_token("r.1")
    rig.later(LEASE_MS)
    rig.reap()

    assert rig.reassert("r.1") == "done"

    assert rig.settle("r.1", "failure").status == "done"
    assert rig.settle("r.1", "failure").status == "gone"
    assert rig.field("a:failures") == "1"


@pytest.mark.parametrize("lost", ["claims", "claimed"])
def test_half_a_record_is_completed_and_its_place_is_counted_once(rig: Rig, lost: str) -> None:
    rig.admit("r.1")
    rig.client.delete(rig.keys[lost])

    assert rig.reassert("r.1") == "done"

    assert rig.field("a:inflight") == "1"
    assert rig.renew("r.1") == []


def test_after_every_key_was_lost_all_counts_come_back(rig: Rig) -> None:
    claims = [f"r.{i}" for i in range(5)]
    for claim in claims:
        rig.admit(claim)
    rig.client.delete(*rig.model_keys)

    for claim in rig.renew(*claims):
        rig.reassert(claim)

    assert rig.field("a:inflight") == "5"


@pytest.mark.parametrize("count", ["", "x", "-5", "nan"])
def test_edited_count_starts_from_nothing(rig: Rig, count: str) -> None:
    rig.put({"a:inflight": count})
    rig.reassert("r.1")

    assert rig.field("a:inflight") == "1"


class TestWhatIsInPrefill:
    HELD: ClassVar = {"tokens": 300_000, "elephant": 1, "caller": CALLER}

    def test_is_put_back_with_the_claim(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt(300_000))
        before, holding = rig.fields(), rig.holding("r.1")
        rig.client.delete(*rig.model_keys)

        rig.reassert("r.1", **self.HELD)

        assert rig.fields() == before
        assert rig.holding("r.1") == holding

    def test_is_given_back_in_the_end(self, rig: Rig) -> None:
        rig.reassert("r.1", **self.HELD)
        rig.settle("r.1", "neutral")

        assert rig.fields() == {}

    def test_is_not_put_back_after_the_first_output(self, rig: Rig) -> None:
        rig.reassert("r.1", first=1, **self.HELD)

        assert rig.fields() == {"a:inflight": "1"}
        assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS} first=1"

    @pytest.mark.parametrize(
        ("held", "counts"),
        [
            ({"tokens": 5}, {"a:prefill_tokens": "5"}),
            ({"elephant": 1, "caller": CALLER}, {"a:elephants": "1"}),
            ({"caller": CALLER}, {}),
            (
                {"tokens": 5, "caller": CALLER},
                {"a:prefill_tokens": "5", f"a:own:{OWN}": "5"},
            ),
        ],
        ids=["nobody's", "cached elephant", "nothing", "small"],
    )
    def test_is_counted_as_it_was_held(
        self, rig: Rig, held: dict[str, object], counts: dict[str, str]
    ) -> None:
        rig.reassert("r.1", **held)
        assert rig.fields() == {"a:inflight": "1", **counts}

        rig.settle("r.1", "neutral")
        assert rig.fields() == {}

    @pytest.mark.parametrize("lost", ["claims", "claimed"])
    def test_is_counted_once_where_half_of_the_record_was_lost(self, rig: Rig, lost: str) -> None:
        rig.admit("r.1", prompt=prompt(300_000))
        before = rig.fields()
        rig.client.delete(rig.keys[lost])

        rig.reassert("r.1", **self.HELD)
        assert rig.fields() == before

        rig.settle("r.1", "neutral")
        assert rig.fields() == {}
