"""admit: who is chosen, who is struck out and why, and what a claim writes."""

from __future__ import annotations

import pytest

from tests.lua.rig import DAY, LEASE_MS, START_MS, Rig

COOLDOWN_MS = 30_000


def test_first_claim_on_an_empty_model_is_admitted_and_counted(rig: Rig) -> None:
    reply = rig.admit("r.1")

    assert (reply.status, reply.location, reply.inflight, reply.probe) == ("admitted", "a", 1, 0)
    assert rig.fields() == {"a:inflight": "1"}
    assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS}"
    assert rig.deadline("r.1") == START_MS + LEASE_MS


def test_every_key_that_a_claim_writes_dies_and_the_claims_outlive_their_counts(rig: Rig) -> None:
    rig.admit("r.1")

    ttls = rig.ttls()
    assert ttls.keys() == {"endpoints", "claims", "claimed"}
    assert 6 * DAY < ttls["endpoints"] <= 7 * DAY
    assert ttls["claims"] > ttls["endpoints"]
    assert ttls["claimed"] > ttls["endpoints"]


def test_repeated_claim_answers_the_same_endpoint_and_takes_nothing_more(rig: Rig) -> None:
    rig.admit("r.1", "a 1 b 1", u=(0.0, 0.0))
    before = rig.state()

    again = rig.admit("r.1", "a 1 b 1", u=(0.99, 0.99))

    assert (again.status, again.location, again.inflight) == ("admitted", "a", 1)
    assert rig.state() == before


def test_repeated_claim_of_a_probe_still_is_the_probe(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(COOLDOWN_MS)

    assert [rig.admit("r.1").probe, rig.admit("r.1").probe] == [1, 1]
    assert rig.field("a:inflight") == "1"


def test_places_in_flight_add_up_over_claims(rig: Rig) -> None:
    assert [rig.admit(f"r.{i}").inflight for i in range(3)] == [1, 2, 3]


def test_no_candidates_are_refused_without_a_reason(rig: Rig) -> None:
    reply = rig.admit("r.1", "")

    assert (reply.status, reply.location, reply.reasons) == ("refused", "", "")


def test_tried_endpoints_are_struck_out_with_their_reason(rig: Rig) -> None:
    assert rig.admit("r.1", "a 1 b 1", tried="a").location == "b"

    refused = rig.admit("r.2", "a 1 b 1", tried="a b")
    assert refused.passed_over() == {"a": "already_attempted", "b": "already_attempted"}
    assert refused.retry_after_ms == 0, "waiting does not help"


def test_declared_order_takes_the_first_admissible_and_draws_nothing(rig: Rig) -> None:
    first = rig.admit("r.1", "a 1 b 9 c 1", order="declared", u=())
    second = rig.admit("r.2", "a 1 b 9 c 1", order="declared", u=(), tried="a")

    assert (first.location, first.drawn) == ("a", 0)
    assert (second.location, second.drawn) == ("b", 0)
    assert second.passed_over() == {"a": "already_attempted"}


def test_a_draw_that_runs_out_of_numbers_is_short_and_writes_nothing(rig: Rig) -> None:
    before = rig.state()

    short = rig.admit("r.1", "a 1 b 1 c 1", u=(0.0, 0.0), tried="a b")

    assert short.is_short
    assert not short.is_admitted
    assert rig.state() == before
    assert rig.admit("r.1", "a 1 b 1 c 1", u=(0.0, 0.0, 0.0), tried="a b").location == "c"


def test_a_draw_needs_no_more_numbers_than_it_uses(rig: Rig) -> None:
    assert rig.admit("r.1", "a 1 b 1 c 1", u=(0.5,)).location == "b"


class TestAnOpenCircuit:
    @pytest.mark.parametrize(
        ("after_ms", "left_ms"), [(0, COOLDOWN_MS), (COOLDOWN_MS - 1, 1)], ids=["at once", "-1 ms"]
    )
    def test_refuses_until_the_cooldown_ends(self, rig: Rig, after_ms: int, left_ms: int) -> None:
        rig.open_circuit()
        rig.later(after_ms)

        reply = rig.admit("r.1")

        assert reply.passed_over() == {"a": "circuit_open"}
        assert reply.retry_after_ms == left_ms

    @pytest.mark.parametrize("over_ms", [0, 1])
    def test_gives_one_probe_when_it_has_ended(self, rig: Rig, over_ms: int) -> None:
        rig.open_circuit()
        rig.later(COOLDOWN_MS + over_ms)

        first, second = rig.admit("r.1"), rig.admit("r.2")

        assert (first.status, first.probe) == ("admitted", 1)
        assert second.passed_over() == {"a": "probe_in_flight"}
        assert second.retry_after_ms == COOLDOWN_MS
        assert rig.field("a:circuit") == "half_open"

    def test_leaves_the_others_in_service(self, rig: Rig) -> None:
        rig.open_circuit("a")

        reply = rig.admit("r.1", "a 1 b 1", u=(0.0, 0.0))

        assert (reply.location, reply.drawn) == ("b", 2)
        assert reply.passed_over() == {"a": "circuit_open"}

    def test_names_the_soonest_of_several_cooldowns(self, rig: Rig) -> None:
        rig.open_circuit("a")
        rig.later(10_000)
        rig.open_circuit("b")

        assert rig.admit("r.1", "b 1 a 1").retry_after_ms == 20_000

    def test_is_skipped_by_a_pinned_attempt_which_takes_no_probe(self, rig: Rig) -> None:
        rig.open_circuit()
        rig.later(COOLDOWN_MS)

        pinned = rig.admit("r.1", order="pinned")

        assert (pinned.status, pinned.probe) == ("admitted", 0)
        assert rig.field("a:circuit") == "open"
        assert rig.admit("r.2").probe == 1


def test_pinned_attempt_is_not_sent_to_an_endpoint_it_has_tried(rig: Rig) -> None:
    assert rig.admit("r.1", order="pinned", tried="a").passed_over() == {"a": "already_attempted"}


@pytest.mark.parametrize("why", ["circuit_open", "probe_in_flight", "already_attempted"])
def test_refused_call_writes_nothing(rig: Rig, why: str) -> None:
    # Given an endpoint that refuses, with a claim standing on another
    rig.admit("other.1", "b 1")
    if why != "already_attempted":
        rig.open_circuit()
    if why == "probe_in_flight":
        rig.later(COOLDOWN_MS)
        rig.admit("probe.1")
    before = rig.state()

    # When
    reply = rig.admit("r.1", tried="a" if why == "already_attempted" else "")

    # Then
    assert reply.passed_over() == {"a": why}
    assert rig.state() == before


class TestExpiredClaims:
    def test_are_ended_by_the_next_admission_a_few_at_a_time(self, rig: Rig) -> None:
        for i in range(6):
            rig.admit(f"dead.{i}")
        rig.later(LEASE_MS)

        assert rig.admit("r.1").inflight == 3, "four of six were ended"
        assert rig.admit("r.2").inflight == 2

    def test_stand_until_their_deadline(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(LEASE_MS - 1)

        assert rig.admit("r.2").inflight == 2

    def test_free_the_probe_for_a_successor(self, rig: Rig) -> None:
        rig.open_circuit()
        rig.later(COOLDOWN_MS)
        rig.admit("dead.1")
        rig.later(LEASE_MS)

        assert rig.admit("r.1").probe == 1

    def test_granted_again_under_the_same_id_count_their_outcome_once(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(LEASE_MS)
        rig.reap()
        rig.admit("r.1")

        assert rig.settle("r.1", "failure").status == "done"
        assert rig.settle("r.1", "failure").status == "gone"
        assert rig.field("a:failures") == "1"


class TestFieldsEditedByHand:
    @pytest.mark.parametrize("nonsense", ["", "x", "-5", "nan", "-nan", "inf", "1e300", "{}", "0x"])
    def test_nonsense_is_the_healthy_default(self, rig: Rig, nonsense: str) -> None:
        names = "inflight circuit opened_at_ms probe probe_until_ms conn failures availability"
        rig.put({f"a:{name}": nonsense for name in names.split()} | {"at_ms": nonsense})

        reply = rig.admit("r.1")

        assert (reply.status, reply.inflight) == ("admitted", 1)
        rig.settle("r.1", "success")
        assert rig.field("a:inflight") is None

    @pytest.mark.parametrize("nonsense", ["", "x", "-5", "nan", "inf"])
    @pytest.mark.parametrize("circuit", ["open", "half_open"])
    def test_a_circuit_without_a_readable_date_gives_a_probe(
        self, rig: Rig, circuit: str, nonsense: str
    ) -> None:
        rig.put({"a:circuit": circuit, "a:opened_at_ms": nonsense, "a:probe": "someone.1"})
        rig.put({"a:probe_until_ms": nonsense})

        assert rig.admit("r.1").probe == 1
        assert rig.admit("r.2").passed_over() == {"a": "probe_in_flight"}

    @pytest.mark.parametrize("name", ["circuit", "opened_at_ms", "probe", "probe_until_ms"])
    def test_a_deleted_field_breaks_nothing(self, rig: Rig, name: str) -> None:
        rig.open_circuit()
        rig.later(COOLDOWN_MS)
        rig.admit("probe.1")

        rig.client.hdel(rig.keys["endpoints"], f"a:{name}")

        assert rig.admit("r.1").status in ("admitted", "refused")
        assert rig.settle("probe.1", "success").status == "done"

    def test_a_holding_that_is_nonsense_is_drawn_anew(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.client.hset(rig.keys["claimed"], "r.1", "nonsense")

        assert rig.admit("r.1").status == "admitted"
        assert rig.holding("r.1") == f"location=a lease_ms={LEASE_MS}"


class TestAClockThatStepsBack:
    def test_by_less_than_five_seconds_stands_still(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(-4_999)

        rig.admit("r.2")

        assert rig.deadline("r.2") == START_MS + LEASE_MS
        assert rig.field("clock_steps") is None

    def test_by_five_seconds_is_believed_and_counted_once(self, rig: Rig) -> None:
        rig.admit("r.1")
        rig.later(-5_000)

        rig.admit("r.2")
        rig.admit("r.3")

        assert rig.deadline("r.2") == START_MS - 5_000 + LEASE_MS
        assert rig.field("at_ms") == str(START_MS - 5_000)
        assert rig.field("clock_steps") == "1"

    def test_is_counted_although_the_count_was_edited(self, rig: Rig) -> None:
        rig.put({"at_ms": START_MS + 60_000, "clock_steps": "many"})

        rig.admit("r.1")

        assert rig.field("clock_steps") == "1"

    @pytest.mark.parametrize("back_ms", [1, 4_999])
    def test_a_little_lengthens_no_cooldown(self, rig: Rig, back_ms: int) -> None:
        rig.open_circuit()
        rig.later(-back_ms)

        assert rig.admit("r.1").retry_after_ms == COOLDOWN_MS

    def test_far_makes_the_end_of_a_cooldown_void(self, rig: Rig) -> None:
        rig.open_circuit()
        rig.later(-3_600_000)

        assert rig.admit("r.1").probe == 1

    def test_far_makes_the_end_of_a_probe_void(self, rig: Rig) -> None:
        rig.open_circuit()
        rig.later(COOLDOWN_MS)
        rig.admit("probe.1")
        rig.later(-3_600_000)

        assert rig.admit("r.1").probe == 1
