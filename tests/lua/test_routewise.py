"""admit in the order `routewise`: the fastest mixture of endpoints within a budget."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from llm_routewise.core import BudgetLPCandidate, cost_tiebroken_objective, solve_budget_lp

from gateway.state.replies import AdmitReply, read_shares
from tests.lua.rig import Rig, prompt
from tests.redis_servers import ScriptStore

ORDER = "routewise"
TWO = {"fast": (0.009, 200.0), "cheap": (0.0003, 600.0)}
THREE = {"a": (0.009, 200.0), "b": (0.003, 350.0), "c": (0.0003, 900.0)}
Offers = Mapping[str, tuple[float, float] | str]
"""Location to cost in dollars and latency in ms, or to the reason why there is none."""


def offer(rig: Rig, offers: Offers, alpha: float, discount: float = 0) -> str:
    """Have the candidates offer this. Returns them."""
    words = [
        one if isinstance(one, str) else f"{one[0]:.17g},{one[1]:.17g},{discount:.17g}"
        for one in offers.values()
    ]
    rig.offers = " ".join([f"{alpha:.17g}", *words])
    return " ".join(f"{at} 1" for at in offers)


def shares(rig: Rig, offers: Offers, alpha: float) -> dict[str, float]:
    """Of the mixture, those above zero."""
    reply = rig.explain(offer(rig, offers, alpha), order=ORDER)
    assert reply.status == "admitted"
    return read_shares(reply.shares)


def admit(rig: Rig, offers: Offers, alpha: float, u: float = 0.0, **how: str) -> AdmitReply:
    rig.now_ms += 1
    candidates = offer(rig, offers, alpha)
    return rig.admit(f"r.{rig.now_ms}", candidates, u=(u,), order=ORDER, **how)


def library(offers: Mapping[str, tuple[float, float]], alpha: float) -> tuple[dict, float, float]:
    """Weights, objective and expected cost of llm-routewise."""
    costs = [cost for cost, _ in offers.values()]
    objectives = cost_tiebroken_objective([latency for _, latency in offers.values()], costs)
    candidates = [
        BudgetLPCandidate(name=at, objective=objective, effective_cost=cost)
        for at, objective, cost in zip(offers, objectives, costs, strict=True)
    ]
    budget = min(costs) + alpha * (max(costs) - min(costs))
    found = solve_budget_lp(candidates, budget=budget)
    assert found.feasible
    return found.weights, found.objective or 0.0, found.expected_cost or 0.0


class TestTheMixture:
    @pytest.mark.parametrize("alpha", [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
    def test_of_two_gives_the_fast_one_alpha_whatever_they_cost(
        self, rig: Rig, alpha: float
    ) -> None:
        found = shares(rig, TWO, alpha)

        assert found.get("fast", 0) == pytest.approx(alpha, abs=1e-9)
        assert found.get("cheap", 0) == pytest.approx(1 - alpha, abs=1e-9)

    @pytest.mark.parametrize(
        ("alpha", "expected"),
        [
            (0, {"c": 1}),
            (0.1, {"b": 0.87 / 2.7, "c": 1.83 / 2.7}),
            (0.25, {"b": 2.175 / 2.7, "c": 0.525 / 2.7}),
            (0.5, {"a": 0.275, "b": 0.725}),
            (0.75, {"a": 0.6375, "b": 0.3625}),
            (1, {"a": 1}),
        ],
    )
    def test_of_three_is_of_neighbours(
        self, rig: Rig, alpha: float, expected: dict[str, float]
    ) -> None:
        assert shares(rig, THREE, alpha) == pytest.approx(expected, abs=1e-9)

    @pytest.mark.parametrize("alpha", [0, 0.5, 1])
    @pytest.mark.parametrize("latency_ms", [600, 5000])
    def test_is_the_cheap_one_alone_when_no_other_is_faster(
        self, rig: Rig, alpha: float, latency_ms: float
    ) -> None:
        offers = {"dear": (0.009, 5000.0), "cheap": (0.0003, float(latency_ms))}

        assert shares(rig, offers, alpha) == {"cheap": 1}

    def test_of_one_is_that_one(self, rig: Rig) -> None:
        assert shares(rig, {"a": (0.0, 0.0)}, 0.5) == {"a": 1}

    @pytest.mark.parametrize("alpha", [0, 0.5, 1])
    def test_is_the_fastest_one_when_all_cost_the_same(self, rig: Rig, alpha: float) -> None:
        offers = {"a": (0.0, 300.0), "b": (0.0, 200.0), "c": (0.0, 400.0)}

        assert shares(rig, offers, alpha) == {"b": 1}

    def test_keeps_to_the_budget_however_small_the_costs_are(self, rig: Rig) -> None:
        assert shares(rig, {"fast": (2e-9, 200.0), "cheap": (1.2e-9, 600.0)}, 0) == {"cheap": 1}

    def test_depends_on_the_ratio_of_costs_alone(self, rig: Rig) -> None:
        scaled = {at: (cost * 1e4, latency) for at, (cost, latency) in THREE.items()}

        assert shares(rig, scaled, 0.5) == pytest.approx(shares(rig, THREE, 0.5), abs=1e-9)


@pytest.mark.timeout(600)
def test_mixture_is_the_librarys_in_ten_thousand_random_instances(
    rig: Rig, store_server: ScriptStore
) -> None:
    """Every store a part of them: the slowest one fewer."""
    count = 10_000 if store_server.kind == "redis" else 300
    random_ = random.Random(1)
    for number in range(count):
        offers, alpha = an_instance(random_)
        weights, objective, cost = library(offers, alpha)
        found = shares(rig, offers, alpha)
        span = max(c for c, _ in offers.values()) - min(c for c, _ in offers.values())
        objectives = dict(
            zip(
                offers,
                cost_tiebroken_objective(
                    [latency for _, latency in offers.values()], [c for c, _ in offers.values()]
                ),
                strict=True,
            )
        )
        what = f"instance {number}: {offers} at {alpha}: {found}, not {weights}"
        assert sum(found.values()) == pytest.approx(1, abs=1e-12), what
        assert sum(w * offers[at][0] for at, w in found.items()) == pytest.approx(
            cost, abs=1e-9 + 1e-9 * span
        ), what
        assert sum(w * objectives[at] for at, w in found.items()) == pytest.approx(
            objective, rel=1e-9
        ), what
        assert found == pytest.approx(weights, abs=1e-6), what


def an_instance(random_: random.Random) -> tuple[dict[str, tuple[float, float]], float]:
    """Up to twelve endpoints, some as dear or as fast as others."""
    costs = [random_.uniform(1e-5, 0.05) for _ in range(12)]
    latencies = [random_.uniform(50, 6000) for _ in range(12)]
    offers = {
        f"e{i}": (
            random_.choice(costs) if random_.random() < 0.2 else random_.uniform(1e-5, 0.05),
            random_.choice(latencies) if random_.random() < 0.2 else random_.uniform(50, 6000),
        )
        for i in range(random_.randint(1, 12))
    }
    alpha = random_.choice([0.0, 1.0]) if random_.random() < 0.2 else random_.random()
    return offers, alpha


class TestTheDraw:
    def test_goes_by_the_shares_in_declaration_order(self, rig: Rig) -> None:
        drawn = [admit(rig, THREE, 0.5, u).location for u in (0.0, 0.274, 0.276, 0.999)]

        assert drawn == ["a", "a", "b", "b"]

    def test_takes_no_heed_of_weights(self, rig: Rig) -> None:
        candidates = offer(rig, TWO, 1).replace("cheap 1", "cheap 1000")

        assert rig.admit("r.1", candidates, u=(0.999,), order=ORDER).location == "fast"

    def test_comes_out_as_the_mixture_says(self, rig: Rig) -> None:
        random_ = random.Random(7)
        drawn = Counter(admit(rig, THREE, 0.5, random_.random()).location for _ in range(1000))

        assert drawn["a"] / 1000 == pytest.approx(0.275, abs=0.05)
        assert drawn["c"] == 0

    def test_repeated_answers_the_same_endpoint(self, rig: Rig) -> None:
        candidates = offer(rig, THREE, 0.5)
        first = rig.admit("r.1", candidates, u=(0.9,), order=ORDER)
        again = rig.admit("r.1", candidates, u=(0.1,), order=ORDER)

        assert (first.location, again.location) == ("b", "b")
        assert rig.field("b:inflight") == "1"


class TestOnlyThoseThatMayBeUsed:
    """The budget and the hull are of these alone."""

    def test_are_mixed(self, rig: Rig) -> None:
        rig.open_circuit("a")

        assert shares(rig, THREE, 0.5) == pytest.approx({"b": 0.5, "c": 0.5}, abs=1e-9)

    def test_so_after_a_failure_the_rest_is_mixed_anew(self, rig: Rig) -> None:
        reply = admit(rig, THREE, 1, tried="a")

        assert (reply.location, reply.passed_over()) == ("b", {"a": "already_attempted"})

    def test_and_who_makes_no_offer_says_why(self, rig: Rig) -> None:
        reply = admit(rig, {**THREE, "a": "quota_exhausted"}, 1)

        assert (reply.location, reply.passed_over()) == ("b", {"a": "quota_exhausted"})

    def test_and_none_is_a_refusal_that_writes_nothing(self, rig: Rig) -> None:
        before = rig.state()
        reply = admit(rig, {"a": "quota_exhausted", "b": "quota_unknown"}, 1)

        assert reply.status == "refused"
        assert reply.passed_over() == {"a": "quota_exhausted", "b": "quota_unknown"}
        assert rig.state() == before

    def test_looking_at_a_half_open_circuit_takes_no_probe(self, rig: Rig) -> None:
        rig.open_circuit("a")
        rig.later(rig.policy.cooldown_ms)

        assert shares(rig, THREE, 0.5) == pytest.approx({"a": 0.275, "b": 0.725}, abs=1e-9)
        assert admit(rig, THREE, 0).location == "c"
        assert rig.field("a:probe") is None
        taken = admit(rig, THREE, 1)
        assert (taken.location, taken.probe) == ("a", 1)
        assert admit(rig, THREE, 1).passed_over() == {"a": "probe_in_flight"}

    def test_are_charged_for_the_prompt_as_with_any_other_order(self, rig: Rig) -> None:
        reply = admit(rig, TWO, 1, prompt=prompt(8000))

        assert reply.tokens == 8000
        assert rig.field("fast:prefill_tokens") == "8000"


@pytest.mark.parametrize("offers", ["", "0.5", "x 0.1,2,0 0.2,3,0", "0.5 0.1,x,0 0.2,3,0"])
def test_offers_that_make_no_sense_leave_the_draw_by_weight(rig: Rig, offers: str) -> None:
    rig.offers = offers

    reply = rig.admit("r.1", "a 1 b 1", u=(0.9, 0.9), order=ORDER)

    assert (reply.status, reply.location) == ("admitted", "b")
    assert rig.field("prefill_faults") == "1"


CACHED: Offers = {"warm": (0.010, 300.0), "cold": (0.009, 300.0)}
SAID = prompt(8000, fingerprint="f1")


class TestWhatIsCached:
    """Costs less where the provider's prices say so."""

    def costs(self, rig: Rig, discount: float = 1e-6, **how: object) -> dict[str, float]:
        candidates = offer(rig, CACHED, 0, discount)
        reply = rig.explain(candidates, order=ORDER, **{"prompt": SAID, **how})
        return read_shares(reply.costs)

    def test_is_taken_off_the_cost(self, rig: Rig) -> None:
        rig.put_hint("warm", 5000, fingerprint="f1")

        assert self.costs(rig) == pytest.approx({"warm": 0.005, "cold": 0.009}, abs=1e-15)

    def test_and_decides(self, rig: Rig) -> None:
        candidates = offer(rig, CACHED, 0, 1e-6)
        before = rig.admit("r.1", candidates, order=ORDER, prompt=SAID).location
        rig.put_hint("warm", 5000, fingerprint="f1")

        assert before == "cold"
        assert rig.admit("r.2", candidates, order=ORDER, prompt=SAID).location == "warm"

    @pytest.mark.parametrize(
        "hint",
        [
            {"tokens": 1023, "fingerprint": "f1"},
            {"tokens": 5000, "fingerprint": "f2"},
        ],
    )
    def test_only_where_it_is_enough_and_of_the_same_conversation(
        self, rig: Rig, hint: dict[str, object]
    ) -> None:
        rig.put_hint("warm", **hint)

        assert self.costs(rig)["warm"] == 0.010

    def test_only_as_far_as_the_prompt_goes(self, rig: Rig) -> None:
        rig.put_hint("warm", 50_000, fingerprint="f1")

        assert self.costs(rig)["warm"] == pytest.approx(0.002)

    def test_not_once_the_endpoint_has_failed(self, rig: Rig) -> None:
        rig.put_hint("warm", 5000, fingerprint="f1")
        rig.attempt("r.1", "failure", at="warm")

        assert self.costs(rig)["warm"] == 0.010

    def test_never_below_nothing(self, rig: Rig) -> None:
        rig.put_hint("warm", 5000, fingerprint="f1")

        assert self.costs(rig, discount=1)["warm"] == 0
