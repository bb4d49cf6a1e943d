"""admit in the order `expected_ttft`: endpoints compared by when a first token is to come."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.state.keys import Keys
from gateway.state.policy import Policy
from gateway.state.replies import AdmitReply, ExplainReply, read_scores
from tests.lua import scoring
from tests.lua.rig import HOUR, OWN, Rig, prompt
from tests.lua.scoring import Rated
from tests.lua.test_admit_draw import ALWAYS_THE_SAME, numbers
from tests.redis_servers import ScriptStore

TOKENS = 8_000
QUARTER = 2_000
ORDER = "expected_ttft"
NONSENSE = ["", "x", "-5", "nan", "inf", "-inf", "1e300"]


def admit(rig: Rig, candidates: str = "a 1 b 1", u: float = 0.0, **how: object) -> AdmitReply:
    rig.now_ms += 1
    said = how.pop("said", prompt(TOKENS, fingerprint="f1"))
    return rig.admit(f"r.{rig.now_ms}", candidates, u=(u,), order=ORDER, prompt=said, **how)


def told(rig: Rig, candidates: str, **how: str) -> ExplainReply:
    said = prompt(TOKENS, fingerprint="f1")
    return rig.explain(candidates, u=(0.0,), order=ORDER, prompt=said, **how)


def load(rig: Rig, **tokens: int) -> None:
    """Prefill that waits on endpoints, of nobody in particular."""
    rig.put({f"{at}:prefill_tokens": count for at, count in tokens.items()})


def rate(rig: Rig, **tokens_per_s: float) -> None:
    rig.put({f"{at}:prefill_rate": f"{found}" for at, found in tokens_per_s.items()})


class TestTheBest:
    def test_is_where_the_least_waits(self, rig: Rig) -> None:
        load(rig, a=2_000)

        assert admit(rig).location == "b"

    def test_is_the_faster_one(self, rig: Rig) -> None:
        rate(rig, a=4_000, b=8_000)

        assert admit(rig).location == "b"

    @pytest.mark.parametrize(("backlog", "location"), [(5_000, "a"), (7_000, "b")])
    def test_is_where_the_prompt_is_cached_unless_too_much_waits(
        self, rig: Rig, backlog: int, location: str
    ) -> None:
        rig.put_hint("a", TOKENS, fingerprint="f1")
        load(rig, a=backlog)

        assert admit(rig, u=0.9).location == location

    @pytest.mark.parametrize(("usual_charge", "location"), [("1000", "a"), ("20000", "b")])
    def test_is_the_more_where_it_is_cached_the_more_prompts_wait_everywhere(
        self, rig: Rig, usual_charge: str, location: str
    ) -> None:
        rig.put_hint("a", TOKENS, fingerprint="f1")
        load(rig, a=30_000, b=10_000)
        rig.put({"charge_tokens": usual_charge})

        assert admit(rig).location == location

    def test_is_where_the_caller_has_a_prompt_waiting_that_will_be_cached(self, rig: Rig) -> None:
        rig.put({"a:prefill_tokens": 6_000, f"a:own:{OWN}": 6_000, "charge_tokens": 6_000})

        reply = admit(rig, u=0.9)

        assert (reply.location, reply.tokens) == ("a", 2_000)

    def test_is_one_and_the_same_for_whoever_has_nothing_cached(self, rig: Rig) -> None:
        rig.put_hint("b", TOKENS, fingerprint="f1")

        assert admit(rig, u=0.9).location == "b"
        assert admit(rig, said=prompt(TOKENS, "", fingerprint="f1"), u=0.0).location == "a"

    def test_is_not_where_something_else_of_the_caller_is_cached(self, rig: Rig) -> None:
        rig.put_hint("b", TOKENS, fingerprint="f2")

        assert admit(rig, u=0.0).location == "a"

    def test_is_not_where_it_was_cached_before_a_failure(self, rig: Rig) -> None:
        rig.put_hint("b", TOKENS, fingerprint="f1")
        rig.put({"b:generation": 1})

        assert admit(rig, u=0.0).location == "a"

    @pytest.mark.parametrize(("u", "location"), [(0.0, "a"), (0.25, "a"), (0.26, "b"), (1.0, "b")])
    def test_is_drawn_by_weight_among_those_within_a_twentieth(
        self, rig: Rig, u: float, location: str
    ) -> None:
        rate(rig, a=8_000, b=8_000 / 1.04, c=8_000 / 1.06)

        assert admit(rig, "a 1 b 3 c 9", u).location == location


class TestTheCharge:
    def test_is_all_that_is_not_cached(self, rig: Rig) -> None:
        rig.put_hint("a", 5_000, fingerprint="f1")

        assert admit(rig).tokens == 3_000
        assert rig.field("a:prefill_tokens") == rig.field(f"a:own:{OWN}") == "3000"

    @pytest.mark.parametrize("cached", [6_000, 6_001, TOKENS, 100_000])
    def test_is_a_quarter_at_least(self, rig: Rig, cached: int) -> None:
        rig.put_hint("a", cached, fingerprint="f1")

        assert admit(rig).tokens == QUARTER

    def test_of_no_tokens_is_none(self, rig: Rig) -> None:
        reply = admit(rig, said=prompt(0))

        assert (reply.is_admitted, reply.tokens) == (True, 0)
        assert rig.fields() == {"a:inflight": "1"}

    def test_as_a_rule_is_learned_from_each_with_a_fiftieth(self, rig: Rig) -> None:
        admit(rig)
        assert rig.field("charge_tokens") == "8000.0"

        admit(rig, said=prompt(3_000, "other"))

        assert rig.field("charge_tokens") == "7900.0"

    def test_as_a_rule_is_learned_in_no_other_order(self, rig: Rig) -> None:
        for order in ("draw", "declared", "pinned"):
            rig.admit(f"r.{order}", order=order, prompt=prompt())

        assert rig.field("charge_tokens") is None

    def test_of_many_alike_spreads_although_each_is_believed_to_be_cached(self, rig: Rig) -> None:
        # Given a caller whose prompts all begin alike, and are different
        for at in "abcd":
            rig.put_hint(at, TOKENS, fingerprint="f1")

        found = [admit(rig, "a 1 b 1 c 1 d 1", u).location for u in (0.0, 0.3, 0.6, 0.9) * 5]

        assert {at: found.count(at) for at in "abcd"} == dict.fromkeys("abcd", 5)

    def test_counts_as_an_elephant_by_what_is_not_cached(self, rig: Rig) -> None:
        said = prompt(300_000, fingerprint="f1")
        assert admit(rig, "a 1", said=said).elephant == 1

        rig.put_hint("b", 250_000, fingerprint="f1")

        assert admit(rig, "b 1", said=said).elephant == 0


class TestARate:
    def test_that_is_not_known_is_the_mean_of_those_that_are(self, rig: Rig) -> None:
        rate(rig, a=2_000, b=6_000)

        scores = read_scores(told(rig, "a 1 b 1 c 1").scores)

        assert scores == {"a": 4_000, "b": 1_333, "c": 2_000}

    def test_of_none_is_the_configured_one(self, rig: Rig) -> None:
        rig.prefill_rate = 4_000

        assert read_scores(told(rig, "a 1 b 1").scores) == {"a": 2_000, "b": 2_000}

    def test_of_one_that_may_not_be_used_says_nothing_of_others(self, rig: Rig) -> None:
        rate(rig, a=1_000, b=4_000)
        rig.open_circuit("a")

        assert read_scores(told(rig, "a 1 b 1 c 1").scores) == {"b": 2_000, "c": 2_000}

    @pytest.mark.parametrize("nonsense", NONSENSE)
    def test_that_is_nonsense_is_not_known(self, rig: Rig, nonsense: str) -> None:
        rig.put({"a:prefill_rate": nonsense, "charge_tokens": nonsense, "b:prefill_rate": 5_000})

        assert read_scores(told(rig, "a 1 b 1").scores) == {"a": 1_600, "b": 1_600}
        assert admit(rig).is_admitted
        assert rig.field("charge_tokens") == "8000.0"


class TestAdmission:
    def test_passes_over_those_that_may_not_be_used(self, rig: Rig) -> None:
        rig.open_circuit("a")

        reply = admit(rig, "a 1 b 1 c 1", tried="b")

        assert reply.location == "c"
        assert reply.passed_over() == {"a": "circuit_open", "b": "already_attempted"}

    def test_of_none_that_may_be_used_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        rig.open_circuit("a")
        before = rig.state()

        reply = admit(rig, "a 1 b 1", tried="b")

        assert (reply.status, reply.drawn, reply.retry_after_ms) == ("refused", 0, 29_999)
        assert rig.state() == before

    def test_of_no_candidate_is_refused(self, rig: Rig) -> None:
        assert admit(rig, "").status == "refused"

    def test_takes_the_probe_of_a_circuit_that_has_cooled(self, rig: Rig) -> None:
        rig.open_circuit("a")
        rig.later(30_000)

        assert (admit(rig).location, rig.field("a:circuit")) == ("a", "half_open")
        assert admit(rig).passed_over() == {"a": "probe_in_flight"}

    def test_uses_one_number(self, rig: Rig) -> None:
        assert admit(rig, "a 1 b 1 c 1").drawn == 1

    def test_without_a_number_is_short_and_writes_nothing(self, rig: Rig) -> None:
        before = rig.state()

        assert rig.admit("r.1", "a 1 b 1", u=(), order=ORDER, prompt=prompt()).is_short
        assert rig.state() == before

    def test_neither_follows_a_pin_nor_writes_one(self, rig: Rig) -> None:
        rig.put_pin("a")
        load(rig, a=5_000)

        reply = admit(rig)

        assert (reply.location, reply.pin, rig.pin()) == ("b", "", "a")

    def test_repeated_answers_the_same_endpoint_and_charges_once(self, rig: Rig) -> None:
        first = rig.admit("r.1", "a 1 b 1", u=(0.0,), order=ORDER, prompt=prompt())
        again = rig.admit("r.1", "a 1 b 1", u=(0.9,), order=ORDER, prompt=prompt())

        assert (again.location, again.tokens) == (first.location, first.tokens) == ("a", 60_000)
        assert rig.field("a:prefill_tokens") == "60000"

    def test_is_by_weight_alone_while_prefill_is_switched_off(self, rig: Rig) -> None:
        rig.policy = Policy(prefill=False)
        load(rig, a=500_000)

        reply = admit(rig, "a 3 b 1", 0.7)

        assert (reply.location, reply.tokens) == ("a", 0)

    def test_is_by_weight_alone_and_counted_where_the_hint_is_broken(self, rig: Rig) -> None:
        rig.client.set(rig.keys["hint"], "no hash")
        load(rig, a=500_000)

        reply = admit(rig, "a 3 b 1", 0.7)

        assert (reply.location, reply.tokens) == ("a", TOKENS)
        assert rig.field("prefill_faults") == "1"
        assert rig.field("charge_tokens") is None


class TestExplain:
    def test_tells_the_scores_by_which_endpoints_are_compared(self, rig: Rig) -> None:
        load(rig, a=8_000)
        rig.put_hint("b", 7_000, fingerprint="f1")
        rig.put({"charge_tokens": 1_000})

        found = told(rig, "a 1 b 1 c 1", tried="c")

        assert (found.location, found.tokens) == ("b", QUARTER)
        assert read_scores(found.scores) == {"a": 6_000, "b": 1_250}

    def test_tells_none_where_nothing_is_compared(self, rig: Rig) -> None:
        assert rig.explain("a 1 b 1", prompt=prompt()).scores == ""

    def test_counts_what_expired_claims_hold_as_given_back(self, rig: Rig) -> None:
        admit(rig, "a 1", said=prompt(TOKENS, "other"), lease_ms=1_000)
        rig.later(1_000)

        assert told(rig, "a 1 b 1").location == "a"


rated = st.builds(
    Rated,
    weight=st.sampled_from([0.1, 1, 2.5]),
    backlog=st.sampled_from([0, 1, 8_000, 8_100, 60_000]),
    own=st.sampled_from([0, 0, 100, 9_000]),
    uncached=st.sampled_from([0, 2_000, 7_000, TOKENS]),
    rate=st.sampled_from([None, 4_000.0, 8_000.0, 8_123.4]),
)
models = itertools.count()


@given(
    endpoints=st.dictionaries(st.sampled_from("abcdef"), rated, min_size=1),
    usual_charge=st.sampled_from([None, 1_000.0, 7_777.7]),
    u=numbers,
)
@ALWAYS_THE_SAME
def test_choice_and_charge_are_the_references(
    store_server: ScriptStore,
    keys: Keys,
    endpoints: dict[str, Rated],
    usual_charge: float | None,
    u: float,
) -> None:
    # Given
    rig = Rig(store_server, keys, f"m{next(models)}")
    for at, one in endpoints.items():
        rig.put({f"{at}:prefill_tokens": one.backlog, f"{at}:own:{OWN}": one.own})
        rig.put_hint(at, TOKENS - one.uncached, fingerprint="f1")
        if one.rate:
            rate(rig, **{at: one.rate})
    if usual_charge:
        rig.put({"charge_tokens": usual_charge})

    # When
    candidates = " ".join(f"{at} {one.weight}" for at, one in endpoints.items())
    reply = admit(rig, candidates, u)

    # Then
    scores = scoring.scores(endpoints, TOKENS, usual_charge, rig.prefill_rate)
    assert reply.location == scoring.chosen(endpoints, scores, u)
    assert reply.tokens == scoring.charge(endpoints[reply.location], TOKENS)
    assert reply.drawn == 1


class TestLearning:
    """What an endpoint prefills per second, from first outputs."""

    def prefill(
        self, rig: Rig, claim: str, ttft_ms: int, tokens: int = TOKENS, *, wait_ms: int = 0
    ) -> float | None:
        """An attempt whose first output comes so long after it was sent."""
        said = prompt(tokens, f"{claim:>08}", fingerprint="f1")
        reply = rig.admit(claim, "a 1", u=(0.0,), order=ORDER, prompt=said)
        assert reply.is_admitted
        rig.later(wait_ms or ttft_ms)
        rig.first_token(claim, prompt=said, ttft_ms=ttft_ms)
        found = rig.field("a:prefill_rate")
        return float(found) if found else None

    def test_begins_with_what_is_seen_first(self, rig: Rig) -> None:
        assert self.prefill(rig, "r.1", 2_000) == 4_000

    def test_weighs_a_prefill_by_how_long_it_took(self, rig: Rig) -> None:
        self.prefill(rig, "r.1", 1_000)
        rig.later(HOUR)

        # Of what was known 1/e is left after the 10 s that are remembered
        left = (8_000 - 800) / math.e
        assert self.prefill(rig, "r.2", 10_000) == pytest.approx(800 + left, rel=0.001)

    def test_counts_from_the_end_of_the_prefill_before(self, rig: Rig) -> None:
        # Given two prompts sent at once, to an engine that takes one after the other
        said = [prompt(TOKENS, caller, fingerprint="f1") for caller in ("one", "two")]
        for claim, one in zip(("r.1", "r.2"), said, strict=True):
            rig.admit(claim, "a 1", u=(0.0,), order=ORDER, prompt=one)

        rig.later(1_000)
        rig.first_token("r.1", prompt=said[0], ttft_ms=1_000)
        rig.later(1_000)
        rig.first_token("r.2", prompt=said[1], ttft_ms=2_000)

        assert float(rig.field("a:prefill_rate") or 0) == pytest.approx(8_000)

    def test_ignores_small_prompts_but_not_their_end(self, rig: Rig) -> None:
        assert self.prefill(rig, "r.1", 1_000, tokens=999) is None
        assert rig.field("a:prefilled_at_ms") == str(rig.now_ms)
        assert self.prefill(rig, "r.2", 1_000, tokens=1_000) == 1_000

    @pytest.mark.parametrize(("cached", "is_learned"), [(4_001, False), (4_000, True)])
    def test_ignores_what_was_believed_to_be_cached_for_the_most_part(
        self, rig: Rig, cached: int, is_learned: bool
    ) -> None:
        rig.put_hint("a", cached, fingerprint="f1")
        said = prompt(TOKENS, fingerprint="f1")
        rig.admit("r.1", "a 1", u=(0.0,), order=ORDER, prompt=said)
        rig.later(1_000)

        rig.first_token("r.1", prompt=said, ttft_ms=1_000)

        assert (rig.field("a:prefill_rate") is not None) == is_learned

    def test_takes_a_prefill_within_a_millisecond_for_one_of_a_millisecond(self, rig: Rig) -> None:
        self.prefill(rig, "r.1", 1_000)
        found = self.prefill(rig, "r.2", 1_000, wait_ms=0)

        assert found is not None
        assert found < 10_000

    def test_does_not_count_from_a_time_that_is_still_to_come(self, rig: Rig) -> None:
        rig.put({"a:prefilled_at_ms": rig.now_ms + HOUR})

        assert self.prefill(rig, "r.1", 2_000) == 4_000

    @pytest.mark.parametrize("nonsense", NONSENSE)
    def test_begins_anew_from_nonsense(self, rig: Rig, nonsense: str) -> None:
        rig.put({"a:prefill_rate": nonsense, "a:prefilled_at_ms": nonsense})

        assert self.prefill(rig, "r.1", 2_000) == 4_000

    def test_is_once_per_attempt(self, rig: Rig) -> None:
        self.prefill(rig, "r.1", 2_000)
        before = rig.state()

        assert rig.first_token("r.1", ttft_ms=1).status == "again"
        assert rig.state() == before

    def test_is_left_alone_where_no_time_is_given(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt())
        rig.first_token("r.1", prompt=prompt(), ttft_ms=0)

        assert not {"a:prefill_rate", "a:prefilled_at_ms"} & rig.fields().keys()

    def test_finds_a_rate_that_was_wrong_by_a_factor_of_two(self, rig: Rig) -> None:
        rig.put({"a:prefill_rate": 16_000})

        found = [self.prefill(rig, f"r.{n}", 1_000) for n in range(40)]

        assert found[-1] == pytest.approx(8_000, 0.05)
