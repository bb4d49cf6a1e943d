"""admit: prompts are kept off endpoints that have much to prefill."""

from __future__ import annotations

import pytest

from gateway.state.policy import Policy
from tests.lua.rig import OWN, Rig, prompt

INTERVENE, ELEPHANT = 50_000, 200_000


def load(rig: Rig, **tokens: int) -> None:
    """Prefill that waits on endpoints, of nobody in particular."""
    rig.put({f"{at}:prefill_tokens": count for at, count in tokens.items()})


def drawn(rig: Rig, candidates: str, *u: float, tokens: int = 100, **how: str) -> str:
    rig.now_ms += 1
    return rig.admit(f"r.{rig.now_ms}", candidates, u=u, prompt=prompt(tokens, **how)).location


@pytest.fixture(autouse=True)
def policy(rig: Rig) -> None:
    rig.policy = Policy(affinity=False)


class TestTwoDraws:
    def test_the_lighter_one_wins(self, rig: Rig) -> None:
        load(rig, busy=500_000)

        assert drawn(rig, "busy .5 idle .5", 0.1, 0.9) == "idle"

    @pytest.mark.parametrize(
        ("backlog", "location"), [(INTERVENE - 1, "a"), (INTERVENE, "b"), (INTERVENE + 1, "b")]
    )
    def test_the_first_stands_below_the_size_to_intervene(
        self, rig: Rig, backlog: int, location: str
    ) -> None:
        load(rig, a=backlog)

        assert drawn(rig, "a .5 b .5", 0.1, 0.9) == location

    def test_on_the_same_endpoint_it_stays_however_loaded(self, rig: Rig) -> None:
        load(rig, a=500_000)

        assert drawn(rig, "a .5 b .5", 0.1, 0.1) == "a"

    def test_a_tie_is_the_firsts(self, rig: Rig) -> None:
        load(rig, a=INTERVENE, b=INTERVENE)

        assert drawn(rig, "a .5 b .5", 0.1, 0.9) == "a"

    def test_a_heavier_second_changes_nothing(self, rig: Rig) -> None:
        load(rig, a=INTERVENE, b=INTERVENE + 1)

        assert drawn(rig, "a .5 b .5", 0.1, 0.9) == "a"

    @pytest.mark.parametrize(("backlog", "used"), [(INTERVENE - 1, 1), (INTERVENE, 2)])
    def test_the_second_is_spared_where_it_can_change_nothing(
        self, rig: Rig, backlog: int, used: int
    ) -> None:
        load(rig, a=backlog)

        reply = rig.admit("r.1", "a 1 b 1", u=(0.1, 0.1), prompt=prompt(100))

        assert reply.drawn == used

    def test_a_second_without_a_number_is_short_and_writes_nothing(self, rig: Rig) -> None:
        load(rig, a=INTERVENE)
        before = rig.state()

        assert rig.admit("r.1", "a 1 b 1", u=(0.1,), prompt=prompt(100)).is_short
        assert rig.state() == before

    def test_are_not_made_in_declared_order(self, rig: Rig) -> None:
        load(rig, a=500_000)

        assert rig.admit("r.1", "a 1 b 1", order="declared", u=(), prompt=prompt(1)).location == "a"

    def test_are_one_when_it_is_switched_off(self, rig: Rig) -> None:
        rig.policy = Policy(affinity=False, prefill=False)
        load(rig, a=500_000)

        assert drawn(rig, "a .5 b .5", 0.1, 0.9) == "a"

    @pytest.mark.parametrize("nonsense", ["", "x", "-5", "nan", "inf"])
    def test_take_a_nonsense_backlog_for_none(self, rig: Rig, nonsense: str) -> None:
        rig.put({f"a:{name}": nonsense for name in ("prefill_tokens", "elephants", f"own:{OWN}")})

        assert drawn(rig, "a 1 b 1", 0.1) == "a"
        assert rig.field("a:prefill_tokens") == rig.field(f"a:own:{OWN}") == "100"


class TestAnElephant:
    """An endpoint that has as many as it may have is left alone by the next, where possible."""

    def test_goes_to_another_endpoint(self, rig: Rig) -> None:
        rig.put({"a:elephants": 1})

        reply = rig.admit("r.1", "a .9 b .1", u=(0.0, 0.0), prompt=prompt(ELEPHANT))

        assert (reply.location, reply.passed_over()) == ("b", {"a": "elephant_limit"})

    @pytest.mark.parametrize(("tokens", "location"), [(ELEPHANT - 1, "a"), (ELEPHANT, "b")])
    def test_is_one_from_its_size_on(self, rig: Rig, tokens: int, location: str) -> None:
        rig.put({"a:elephants": 1})

        assert drawn(rig, "a .9 b .1", 0.0, 0.0, tokens=tokens) == location

    @pytest.mark.parametrize(("held", "location"), [(1, "a"), (2, "b"), (3, "b")])
    def test_is_borne_below_the_limit(self, rig: Rig, held: int, location: str) -> None:
        rig.policy = Policy(affinity=False, elephant_limit=2)
        rig.put({"a:elephants": held})

        assert drawn(rig, "a .9 b .1", 0.0, 0.0, tokens=ELEPHANT) == location

    def test_is_none_where_its_prompt_is_cached(self, rig: Rig) -> None:
        rig.put({"a:elephants": 1})
        rig.put_hint("a", 1)

        assert drawn(rig, "a .9 b .1", 0.0, 0.0, tokens=ELEPHANT) == "a"

    def test_is_drawn_by_weight_where_all_are_crowded_and_the_lighter_wins(self, rig: Rig) -> None:
        load(rig, a=900_000, b=200_000)
        rig.put({"a:elephants": 1, "b:elephants": 1})

        reply = rig.admit("r.1", "a 1 b 1", u=(0, 0.9, 0, 0.9), prompt=prompt(ELEPHANT))

        assert reply.location == "b"
        assert reply.passed_over() == {"a": "elephant_limit"}

    def test_is_never_refused_for_its_size(self, rig: Rig) -> None:
        rig.put({"a:elephants": 5, "a:prefill_tokens": 900_000})

        assert drawn(rig, "a 1", 0.5, 0.5, 0.5, tokens=10 * ELEPHANT) == "a"

    def test_comes_to_a_crowded_endpoint_before_a_refusal(self, rig: Rig) -> None:
        rig.put({"a:elephants": 1})
        rig.open_circuit("b")

        assert drawn(rig, "a 1 b 1", 0.0, 0.0, 0.0, 0.0, tokens=ELEPHANT) == "a"

    def test_takes_the_first_in_declared_order_however_crowded(self, rig: Rig) -> None:
        rig.put({"a:elephants": 1})

        reply = rig.admit("r.1", "a 1 b 1", order="declared", u=(), prompt=prompt(ELEPHANT))

        assert reply.location == "a"

    def test_small_prompts_go_where_they_are(self, rig: Rig) -> None:
        rig.put({"a:elephants": 5, "a:prefill_tokens": 10})

        assert drawn(rig, "a .9 b .1", 0.0, tokens=10) == "a"


class TestAFaultInWhatLooksAtPrefill:
    """A key that somebody has made something else of costs no request."""

    @pytest.fixture(autouse=True)
    def broken(self, rig: Rig) -> None:
        rig.client.set(rig.keys["hint"], "no hash")

    def test_falls_back_to_the_draw_by_weight_alone(self, rig: Rig) -> None:
        load(rig, a=500_000)

        reply = rig.admit("r.1", "a .5 b .5", u=(0.1, 0.9), prompt=prompt(1_000))

        assert (reply.location, reply.drawn) == ("a", 1)

    def test_is_counted(self, rig: Rig) -> None:
        rig.put({"prefill_faults": "x"})
        rig.admit("r.1", prompt=prompt(1_000))
        rig.admit("r.2", prompt=prompt(1_000))

        assert rig.field("prefill_faults") == "2"

    def test_charges_the_whole_prompt(self, rig: Rig) -> None:
        reply = rig.admit("r.1", prompt=prompt(ELEPHANT))

        assert (reply.tokens, reply.elephant) == (ELEPHANT, 1)
        assert rig.field("a:prefill_tokens") == str(ELEPHANT)

    def test_still_strikes_out_whom_it_may_not_use(self, rig: Rig) -> None:
        rig.open_circuit("a")

        reply = rig.admit("r.1", "a 1 b 1", prompt=prompt(1_000))

        assert (reply.location, reply.passed_over()) == ("b", {"a": "circuit_open"})

    def test_refused_writes_nothing(self, rig: Rig) -> None:
        rig.open_circuit("a")
        before = rig.state()

        assert not rig.admit("r.1", prompt=prompt(1_000)).is_admitted
        assert rig.state() == before

    def test_keeps_a_pin(self, rig: Rig) -> None:
        rig.policy = Policy()
        rig.put_pin("b")

        reply = rig.admit("r.1", "a 1 b 1", prompt=prompt(1_000))

        assert (reply.location, reply.pin) == ("b", "kept")

    def test_still_leaves_the_endpoint_that_the_pin_has_left(self, rig: Rig) -> None:
        rig.policy = Policy()
        rig.put_pin("a")
        load(rig, a=150_001)

        reply = rig.admit("r.1", "a .9 b .1", u=(0.0, 0.0), prompt=prompt(1_000))

        assert (reply.location, reply.passed_over()) == ("b", {"a": "over_affinity_ceiling"})
        assert rig.pin() == "b"
        assert rig.field("prefill_faults") == "1"

    def test_does_not_stop_a_first_token_or_a_settlement(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt(1_000))
        rig.admit("r.2", prompt=prompt(1_000))

        assert rig.first_token("r.1", prompt=prompt(1_000)).status == "done"
        assert rig.settle("r.2", prompt=prompt(1_000)).status == "done"
        assert rig.field("a:prefill_tokens") is None

    def test_passes_with_the_key(self, rig: Rig) -> None:
        rig.admit("r.1", prompt=prompt(1_000))
        rig.first_token("r.1", prompt=prompt(1_000))

        assert 0 < rig.ttls()["hint"] <= rig.policy.hint_ttl_ms
