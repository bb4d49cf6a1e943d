"""settle: a claim ends once, gives back what it held, and its outcome is counted once."""

from __future__ import annotations

import pytest

from tests.lua.rig import DAY, LEASE_MS, MINUTE, Rig

TOMBSTONE_MS = 10 * MINUTE
OUTCOMES = ["success", "failure", "auth", "connect", "neutral"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_of_an_unknown_claim_answers_gone_and_writes_nothing(rig: Rig, outcome: str) -> None:
    before = rig.state()

    assert rig.settle("r.1", outcome).status == "gone"

    assert rig.state() == before


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_repeated_counts_once(rig: Rig, outcome: str) -> None:
    rig.admit("r.1")
    assert rig.settle("r.1", outcome).status == "done"
    before = rig.state()

    assert rig.settle("r.1", outcome).status == "gone"

    assert rig.state() == before


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_gives_back_what_the_claim_held(rig: Rig, outcome: str) -> None:
    rig.admit("r.1")
    rig.admit("r.2")

    rig.settle("r.1", outcome)

    assert rig.field("a:inflight") == "1"
    assert (rig.holding("r.1"), rig.deadline("r.1")) == (None, None)
    assert (rig.holding("r.2"), rig.deadline("r.2")) != (None, None)


def test_keys_still_die(rig: Rig) -> None:
    rig.admit("r.1")
    rig.settle("r.1", "failure")

    assert rig.ttls().keys() == {"endpoints"}
    assert 6 * DAY < rig.ttls()["endpoints"] <= 7 * DAY


def test_unknown_outcome_is_our_own_fault_and_gives_nothing_back(rig: Rig) -> None:
    rig.admit("r.1")
    before = rig.state()

    with pytest.raises(Exception, match="BADARG outcome"):
        rig.settle("r.1", "sucess")

    assert rig.state() == before


def test_success_after_the_first_token_is_not_counted_twice(rig: Rig) -> None:
    rig.attempt("r.0", "failure")
    rig.admit("r.1")
    rig.first_token("r.1")
    availability = rig.field("a:availability")

    assert rig.settle("r.1", "success").status == "done"

    assert rig.field("a:availability") == availability


def test_failure_after_the_first_token_is_a_failure_too(rig: Rig) -> None:
    rig.admit("r.1")
    rig.first_token("r.1")
    rig.settle("r.1", "failure")

    assert rig.field("a:failures") == "1"


class TestAReapedClaim:
    @pytest.fixture(autouse=True)
    def reaped(self, rig: Rig) -> None:
        """Claim `r.1` was reaped, and `r.2` stands on the same endpoint."""
        rig.admit("r.1")
        rig.later(LEASE_MS)
        assert rig.reap() == 1
        rig.admit("r.2")

    def test_settles_late_and_returns_no_room(self, rig: Rig) -> None:
        assert rig.settle("r.1", "failure").status == "late"

        assert rig.field("a:failures") == "1"
        assert rig.field("a:inflight") == "1", "the place of r.2"

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_settles_late_once(self, rig: Rig, outcome: str) -> None:
        rig.settle("r.1", outcome)
        before = rig.state()

        assert rig.settle("r.1", outcome).status == "gone"

        assert rig.state() == before

    @pytest.mark.parametrize(("ms", "status"), [(-1, "late"), (0, "gone"), (1, "gone")])
    def test_is_remembered_for_ten_minutes(self, rig: Rig, ms: int, status: str) -> None:
        rig.later(TOMBSTONE_MS + ms)
        rig.renew("r.2")

        assert rig.settle("r.1", "failure").status == status

    def test_is_forgotten_when_the_clock_was_set_back(self, rig: Rig) -> None:
        rig.later(-60 * MINUTE)
        before = rig.state()

        assert rig.settle("r.1", "failure").status == "gone"
        assert rig.state() == before

    def test_closes_a_circuit_with_a_late_success(self, rig: Rig) -> None:
        rig.open_circuit()

        assert rig.settle("r.1", "success").circuit == "closed"


def test_late_success_that_had_been_counted_at_the_first_token_counts_no_more(rig: Rig) -> None:
    # Given a claim that is reaped after its first token, and a circuit that opens afterwards
    rig.admit("r.1")
    rig.first_token("r.1")
    rig.later(LEASE_MS)
    rig.reap()
    rig.open_circuit()

    # When
    late = rig.settle("r.1", "success")

    # Then
    assert (late.status, late.circuit) == ("late", "")
    assert rig.field("a:circuit") == "open"
    assert rig.settle("r.1", "success").status == "gone"


def test_late_failure_after_the_first_token_counts(rig: Rig) -> None:
    rig.admit("r.1")
    rig.first_token("r.1")
    rig.later(LEASE_MS)
    rig.reap()

    assert rig.settle("r.1", "failure").status == "late"
    assert rig.field("a:failures") == "1"


class TestRecordsEditedByHand:
    @pytest.mark.parametrize("count", ["0", "", "x", "-5", "nan", "inf"])
    def test_never_make_a_count_negative(self, rig: Rig, count: str) -> None:
        rig.admit("r.1")
        rig.put({"a:inflight": count})

        assert rig.settle("r.1", "success").status == "done"
        assert rig.field("a:inflight") is None

    @pytest.mark.parametrize("text", ["nonsense", "", "lease_ms=5", "newer=1 location=a"])
    def test_nonsense_holding_of_an_own_claim_gives_its_place_back(
        self, rig: Rig, text: str
    ) -> None:
        rig.admit("r.1")
        rig.client.hset(rig.keys["claimed"], "r.1", text)

        assert rig.settle("r.1", "failure").status == "done"

        assert rig.field("a:inflight") is None
        assert (rig.holding("r.1"), rig.deadline("r.1")) == (None, None)
        assert rig.field("a:failures") == "1"

    @pytest.mark.parametrize("lost", ["claims", "claimed"])
    def test_half_a_record_gives_its_place_back(self, rig: Rig, lost: str) -> None:
        rig.admit("r.1")
        rig.client.delete(rig.keys[lost])

        assert rig.settle("r.1", "neutral").status == "done"
        assert rig.fields() == {}

    def test_deleted_endpoints_start_anew(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.client.delete(rig.keys["endpoints"])

        assert rig.settle("r.1", "failure").status == "done"
        assert rig.field("a:failures") == "1"
        assert rig.ttls()["endpoints"] > 0
