"""explain: what admit would do now, told without doing it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.state.keys import Keys
from gateway.state.policy import Policy
from tests.lua.rig import CALLER, LEASE_MS, OWN, START_MS, Rig, prompt
from tests.lua.test_admit_draw import ALWAYS_THE_SAME, numbers
from tests.redis_servers import ScriptStore

LOCATIONS = ("a", "b", "c")
CANDIDATES = "a 1 b 2 c 1"
LIMITED = "a 1|rpm=3,tpm=200000,parallel=2 b 2|rpm=2f,otpm=100s c 1|itpm=120000,otpm=2000f"
OTHER = "fedcba9876543210"

callers = st.sampled_from(["", CALLER, OTHER])
tokens = st.sampled_from([0, 7, 60_000, 199_999, 200_000, 300_000])
prompts = st.builds(
    prompt,
    tokens,
    callers,
    fingerprint=st.sampled_from(["", "f1", "f2"]),
    output_tokens=st.sampled_from([0, 50]),
)
draws = st.lists(numbers, min_size=5, max_size=5)
places = st.sampled_from(LOCATIONS)
steps = st.one_of(
    st.tuples(st.just("admit"), prompts, draws),
    st.tuples(st.just("admit"), prompts, draws, st.just("expected_ttft")),
    st.tuples(st.just("pinned"), prompts, places),
    st.tuples(st.just("first_token"), prompts),
    st.tuples(st.just("settle"), prompts, st.sampled_from(["success", "failure", "connect"])),
    st.tuples(st.just("cool"), places, st.sampled_from([20_000, 40_000])),
    st.tuples(st.just("wait"), st.sampled_from([1, LEASE_MS - 1, LEASE_MS, 30_000, 300_000])),
)


def cool(rig: Rig, at: str, ms: int) -> None:
    """Pause an endpoint by hand."""
    until_ms = rig.now_ms + ms
    rig.put({f"{at}:cooldown": f"until_ms={until_ms} length_ms={ms} reason=retry_after"})


class History:
    """Calls of any kind, by some replica, without any care of what they leave."""

    def __init__(self, rig: Rig, candidates: str) -> None:
        self.rig = rig
        self.candidates = candidates
        self.granted: list[tuple[str, str]] = []

    def admit(self, said: object, u: list[float], order: str = "draw") -> None:
        claim = f"r.{len(self.granted)}"
        reply = self.rig.admit(claim, self.candidates, u=u, order=order, prompt=said)
        self.granted.append((claim, reply.location or "a"))

    def pinned(self, said: object, at: str) -> None:
        claim = f"r.{len(self.granted)}"
        self.rig.admit(claim, f"{at} 1", u=(), order="pinned", prompt=said)
        self.granted.append((claim, at))

    def first_token(self, said: object) -> None:
        if self.granted:
            self.rig.first_token(self.granted[-1][0], prompt=said)

    def settle(self, said: object, outcome: str) -> None:
        if self.granted:
            claim, at = self.granted[len(self.granted) // 2]
            self.rig.settle(claim, outcome, at=at, prompt=said)

    def cool(self, at: str, ms: int) -> None:
        cool(self.rig, at, ms)

    def wait(self, ms: int) -> None:
        self.rig.later(ms)


models = itertools.count()


@given(
    history=st.lists(steps, max_size=14),
    said=prompts,
    u=draws,
    order=st.sampled_from(["draw", "draw", "expected_ttft", "declared", "pinned"]),
    tried=st.sampled_from(["", "", "a", "a b c"]),
    candidates=st.sampled_from([CANDIDATES, LIMITED]),
    prefill=st.sampled_from([True, True, False]),
    broken=st.sampled_from([False, False, False, True]),
)
@ALWAYS_THE_SAME
def test_tells_what_admit_then_does_and_writes_nothing(
    store_server: ScriptStore,
    keys: Keys,
    history: list[tuple[str, object]],
    said: object,
    u: list[float],
    order: str,
    tried: str,
    candidates: str,
    prefill: bool,
    broken: bool,
) -> None:
    # Given any state, with claims that have expired and that nobody has reaped
    rig = Rig(store_server, keys, f"m{next(models)}")
    rig.policy = Policy(prefill=prefill, failure_threshold=2, retry_floor=1)
    past = History(rig, candidates)
    for name, *args in history:
        getattr(past, name)(*args)
    if broken:
        rig.client.set(rig.keys["hint"], "no hash")
    how = {"u": u, "order": order, "tried": tried, "prompt": said}
    before = rig.state()

    # When
    told = rig.explain(candidates, **how)

    # Then
    assert rig.explain(candidates, **how) == told
    assert rig.state() == before
    done = rig.admit("r.new", candidates, **how)
    assert (told.status, told.location, told.probe) == (done.status, done.location, done.probe)
    assert (told.drawn, told.retry_after_ms) == (done.drawn, done.retry_after_ms)
    assert (told.pin, told.tokens) == (done.pin, done.tokens)
    assert set(done.reasons.split()) <= set(told.reasons.split())


def test_without_any_candidate_is_refused(rig: Rig) -> None:
    told = rig.explain("")

    assert (told.status, told.location, told.reasons, told.fields) == ("refused", "", "", [])


def test_names_the_reasons_of_all_who_are_unfit_also_of_those_nobody_drew(rig: Rig) -> None:
    rig.open_circuit("b")
    rig.open_circuit("c")

    told = rig.explain("a 1 b 1 c 1 d 1", u=(0.0,), tried="d")

    assert told.location == "a"
    assert told.reasons == "b=circuit_open c=circuit_open d=already_attempted"


def test_tells_when_a_refusal_ends(rig: Rig) -> None:
    rig.open_circuit()
    rig.later(10_000)

    told = rig.explain()

    assert (told.status, told.retry_after_ms) == ("refused", 20_000)


def test_tells_what_is_live_of_the_endpoints(rig: Rig) -> None:
    rig.admit("r.1", prompt=prompt(5))

    fields = rig.explain().fields

    found = dict(zip(fields[::2], fields[1::2], strict=True))
    assert found == {**rig.fields(), "at_ms": str(START_MS)}
    assert found[f"a:own:{OWN}"] == "5"


def test_of_too_few_numbers_is_short(rig: Rig) -> None:
    assert rig.explain("a 1 b 1", u=(0.0,), tried="a").status == "short"


def test_of_a_replica_with_a_broken_network_is_that_replicas(rig: Rig) -> None:
    for number in range(3):
        rig.attempt(f"r1.{number}", "connect")

    assert rig.explain(replica="r1").reasons == "a=unreachable_from_here"
    assert rig.explain(replica="r2").location == "a"


def test_tells_how_endpoints_stand_as_rows_does_also_of_those_that_are_no_candidates(
    rig: Rig,
) -> None:
    rig.policy = Policy()
    limited = "a|rpm=3,parallel=2 off|rpm=5"
    rig.admit("r.1", "a 1|rpm=3,parallel=2 b 1")
    cool(rig, "a", 30_000)
    rig.admit("r.2", "off 1|rpm=5", order="pinned")
    rig.later(10_000)

    told, rows = rig.explain("a 1|rpm=3,parallel=2 b 1", limited=limited), rig.rows(limited)

    assert rows.cooldowns == ["a 20000 retry_after"]
    assert [word.split()[0] for word in rows.limits] == ["a", "a", "off"]
    assert (told.limits, told.cooldowns, told.retries) == (
        rows.limits,
        rows.cooldowns,
        rows.retries,
    )


class TestSupposedAttempts:
    """Those that a question supposes to have been made before it, and that nobody has made."""

    @pytest.mark.parametrize(
        ("supposed", "status", "counts"),
        [
            (0, "admitted", "9 0 2"),
            (1, "admitted", "10 0 2"),
            (2, "admitted", "10 1 2"),
            (3, "refused", "10 2 2"),
        ],
    )
    def test_count_in_the_budget_as_though_they_had(
        self, rig: Rig, supposed: int, status: str, counts: str
    ) -> None:
        rig.policy = Policy(retry_percent=20, retry_floor=2)
        for number in range(9):
            rig.admit(f"r.{number}", "a 1 b 1")
        tried = "a" if supposed else ""

        told = rig.explain("a 1 b 1", tried=tried, supposed=supposed)

        assert (told.status, told.retries) == (status, counts)

    def test_go_wrong_as_they_then_do(self, rig: Rig) -> None:
        rig.policy = Policy(retry_percent=0, retry_floor=2)
        five, tried = "a 1 b 1 c 1 d 1 e 1", ["", "a", "a b", "a b c"]
        how = {"order": "declared", "u": ()}

        told = [rig.explain(five, tried=t, supposed=n, **how) for n, t in enumerate(tried)]
        done = [rig.admit(f"r.{n}", five, tried=t, **how) for n, t in enumerate(tried)]

        assert [one.location for one in done] == ["a", "b", "c", ""]
        assert [(one.location, one.reasons) for one in told[2:]] == [
            (one.location, one.reasons) for one in done[2:]
        ]
        assert [one.location for one in told] == [one.location for one in done]


def test_a_spent_budget_is_the_reason_also_where_another_would_be_found(rig: Rig) -> None:
    rig.policy = Policy(retry_floor=0)
    rig.open_circuit("b")

    told = rig.explain("a 1 b 1 c 1", tried="a")
    done = rig.admit("r.1", "a 1 b 1 c 1", tried="a")

    assert told.reasons == done.reasons == "a=already_attempted b=retry_budget c=retry_budget"
    assert (told.retry_after_ms, done.retry_after_ms) == (0, 0)


class TestExpiredClaims:
    """They are judged as the reap that comes first in an admission would leave them."""

    def test_hold_the_probe_no_longer(self, rig: Rig) -> None:
        rig.open_circuit()
        rig.later(30_000)
        rig.admit("r.1")
        assert rig.explain().reasons == "a=probe_in_flight"

        rig.later(LEASE_MS)

        assert (rig.explain().location, rig.explain().probe) == ("a", 1)

    def test_free_the_probe_that_is_held_now_whichever_of_them_expires_first(
        self, rig: Rig
    ) -> None:
        # Given a probe that outlived its cooldown, and its successor; both expire, that one last
        rig.open_circuit()
        rig.later(30_000)
        rig.admit("old.1", lease_ms=40_000)
        rig.later(30_000)
        assert rig.admit("new.1", lease_ms=5_000).probe == 1
        rig.later(10_000)

        assert rig.explain().probe == 1
        assert rig.admit("r.1").probe == 1

    def test_give_nothing_below_nothing_back_where_counts_were_edited(self, rig: Rig) -> None:
        # Given a pin, and so much of others' prefill as the ceiling allows once ours is given back
        rig.admit("dead.1", prompt=prompt(200_000))
        rig.put({"a:prefill_tokens": 350_000, f"a:own:{OWN}": 0, "a:inflight": 0})
        rig.later(LEASE_MS)

        assert rig.explain("a 1 b 1", prompt=prompt(1)).pin == "kept"
        assert rig.admit("r.1", "a 1 b 1", prompt=prompt(1)).pin == "kept"

    @pytest.mark.parametrize(("intervene", "location"), [(200_000, "b"), (200_001, "a")])
    def test_are_no_more_than_an_admission_reaps(
        self, rig: Rig, intervene: int, location: str
    ) -> None:
        for number in range(6):
            rig.admit(f"dead.{number}", prompt=prompt(100_000, caller=OTHER))
        rig.policy = Policy(intervene_tokens=intervene)
        rig.later(LEASE_MS)

        how = {"u": (0.0, 0.9, 0.9), "prompt": prompt(1, caller="")}
        assert rig.explain("a 1 b 1", **how).location == location
        assert rig.admit("r.1", "a 1 b 1", **how).location == location

    def test_leave_their_places_to_others(self, rig: Rig) -> None:
        rig.admit("dead.1", "a 1|parallel=1")
        assert rig.explain("a 1|parallel=1").reasons == "a=parallel_limit"
        rig.later(LEASE_MS)

        told = rig.explain("a 1|parallel=1", limited="a|parallel=1")

        assert (told.location, told.limits) == ("a", ["a parallel 0 0 0"])
