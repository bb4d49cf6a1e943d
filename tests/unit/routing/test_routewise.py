"""What candidates offer, and how `routewise` has them taken."""

from __future__ import annotations

import pytest
from llm_routewise.core import quota_effective_cost
from msgspec import Struct

from gateway.config.routewise_schema import RoutewiseParams
from gateway.core.hedging import Hedge
from gateway.core.offer import Offer
from gateway.core.overrides import Overrides
from gateway.core.plan import Candidates, Plan
from gateway.core.prices import Prices
from gateway.core.profile import NO_PROFILE, Envelope, Profile, Speed
from gateway.core.prompt import Prompt
from gateway.core.reasons import Reason
from gateway.core.route import UpstreamKey
from gateway.core.supply import QuotaState, Supply
from gateway.routing import failover
from gateway.routing.strategies import routewise
from tests.fakes.builders import model, route


class Failed(Struct):
    """A failure of the endpoint's."""

    describes_request: bool = False
    context_refusal: bool = False


FAST = Prices.of({"prompt": "3", "completion": "12"})
CHEAP = Prices.of({"prompt": "0.10", "completion": "0.40"})


def a_plan(**params: object) -> Plan:
    routes = route("fast", prices=FAST), route("cheap", prices=CHEAP)
    of = model(*routes, router="routewise", router_params=RoutewiseParams(**params))
    return Plan(model=of, candidates=Candidates.of(0, [(one, 1.0) for one in routes], {}))


def offers(prompt: Prompt, profile: Profile = NO_PROFILE, **params: object) -> dict[str, Offer]:
    return dict(routewise.offers(a_plan(**params), prompt, profile).each)


def costs(prompt: Prompt, profile: Profile = NO_PROFILE, **params: object) -> dict[str, float]:
    return {at: offer.cost_usd for at, offer in offers(prompt, profile, **params).items()}


def test_a_request_is_priced_by_its_prompt_and_the_answer_to_be_expected() -> None:
    found = costs(Prompt(tokens=1000), Profile(output=500))

    assert found == pytest.approx({"fast": 0.009, "cheap": 0.0003}, abs=1e-15)


@pytest.mark.parametrize(
    ("prompt", "output"),
    [
        (Prompt(tokens=1000), 512),
        (Prompt(tokens=1000, output_tokens=100), 100),
        (Prompt(tokens=1000, output_tokens=9999), 512),
    ],
)
def test_an_answer_is_never_expected_to_be_longer_than_it_may(prompt: Prompt, output: int) -> None:
    assert costs(prompt)["fast"] == pytest.approx(0.003 + output * 12e-6)


def test_an_answer_has_at_least_one_token() -> None:
    assert costs(Prompt(tokens=0), Profile(output=0.2))["fast"] == pytest.approx(12e-6)


def test_images_are_priced() -> None:
    prices = Prices.of({"image": "0.01"})
    of = model(route("a", prices=prices), router="routewise", router_params=RoutewiseParams())
    plan = Plan(model=of, candidates=Candidates.of(0, [(of.routes[0], 1.0)], {}))

    assert routewise.offers(plan, Prompt(images=3), NO_PROFILE).each["a"].cost_usd == 0.03


def test_latencies_are_those_of_the_profile_else_the_default() -> None:
    profile = Profile(speeds={"fast": Speed(mean_ms=210.5, source="profile")})
    found = offers(Prompt(tokens=9), profile, latency_unprofiled_ttft_ms=7000)

    assert [(one.latency_ms, one.source) for one in found.values()] == [
        (210.5, "profile"),
        (7000, "fallback"),
    ]


def test_alpha_is_the_configured_one() -> None:
    assert routewise.offers(a_plan(budget_alpha=0.3), Prompt(), NO_PROFILE).alpha == 0.3


def test_every_attempt_mixes_anew() -> None:
    assert {routewise.order(a_plan(), attempt) for attempt in (1, 2, 3)} == {"routewise"}


@pytest.mark.parametrize(
    ("mode", "rest"), [("policy", {}), ("strict", {"cheap": Reason.NO_FAILOVER})]
)
def test_after_a_failure_the_others_are_tried_unless_the_fallback_is_strict(
    mode: str, rest: dict[str, Reason]
) -> None:
    plan = a_plan(fallback_mode=mode)
    failover.strike(plan, plan.model.routes[0], Failed())

    assert plan.struck == {"fast": Reason.ALREADY_ATTEMPTED, **rest}


class TestAQuota:
    SUPPLY = Supply(kind="quota", pool="team", limit=500)
    ENVELOPE = Envelope(lower=0.0005, upper=0.009, count=9)

    def offer(self, profile: Profile, supply: Supply = SUPPLY) -> Offer:
        of = model(
            route("a", prices=FAST, supply=supply),
            router="routewise",
            router_params=RoutewiseParams(),
        )
        plan = Plan(model=of, candidates=Candidates.of(0, [(of.routes[0], 1.0)], {}))
        return routewise.offers(plan, Prompt(tokens=9), profile).each["a"]

    def quota(self, used: float) -> Profile:
        quotas = {"team": QuotaState(used=used, limit=500)}
        return Profile(envelope=self.ENVELOPE, quotas=quotas)

    @pytest.mark.parametrize("used", [0, 125, 250, 375, 450, 499])
    def test_costs_what_the_library_says_its_use_is_worth(self, used: float) -> None:
        expected = quota_effective_cost(used / 500, L=0.0005, U=0.009)

        assert self.offer(self.quota(used)).cost_usd == pytest.approx(expected, rel=1e-12)

    def test_half_used_is_worth_the_geometric_mean(self) -> None:
        worth = self.offer(self.quota(250)).cost_usd

        assert worth == pytest.approx((0.0005 * 0.009) ** 0.5)

    @pytest.mark.parametrize(
        ("profile", "reason"),
        [
            (Profile(envelope=ENVELOPE), Reason.QUOTA_UNKNOWN),
            (
                Profile(quotas={"team": QuotaState(used=1, limit=500)}),
                Reason.QUOTA_UNPRICED,
            ),
            (
                Profile(envelope=ENVELOPE, quotas={"team": QuotaState(used=499.5, limit=500)}),
                Reason.QUOTA_EXHAUSTED,
            ),
        ],
    )
    def test_is_not_offered(self, profile: Profile, reason: Reason) -> None:
        assert self.offer(profile).reason == reason

    def test_places_cost_nothing(self) -> None:
        offer = self.offer(NO_PROFILE, Supply(kind="places", pool="team", limit=4))

        assert (offer.cost_usd, offer.reason) == (0.0, "")


def test_a_pool_that_had_nothing_left_is_not_offered_again() -> None:
    plan = a_plan()
    plan.drained["cheap"] = Reason.PLACES_TAKEN

    assert routewise.offers(plan, Prompt(), NO_PROFILE).each["cheap"].reason == "places_taken"


@pytest.mark.parametrize(
    ("pricing", "keys", "is_on", "discount"),
    [
        ({"prompt": "3", "input_cache_reads": "0.3"}, 1, True, 2.7e-6),
        ({"prompt": "3", "input_cache_reads": "0.3"}, 1, False, 0),
        ({"prompt": "3", "input_cache_reads": "0.3"}, 2, True, 0),
        ({"prompt": "3", "input_cache_reads": "0"}, 1, True, 0),
        ({"prompt": "3", "input_cache_reads": "3"}, 1, True, 0),
        ({"prompt": "3"}, 1, True, 0),
    ],
)
def test_what_is_cached_may_cost_less(
    pricing: dict[str, str], keys: int, is_on: bool, discount: float
) -> None:
    of = model(
        route("a", prices=Prices.of(pricing), api_keys=(UpstreamKey("k"),) * keys),
        router="routewise",
        router_params=RoutewiseParams(prefix_cache_cost_adjustment_enabled=is_on),
    )
    plan = Plan(model=of, candidates=Candidates.of(0, [(of.routes[0], 1.0)], {}))

    found = routewise.offers(plan, Prompt(tokens=9), NO_PROFILE).each["a"].discount_usd
    assert found == pytest.approx(discount)


class TestHedge:
    QUICK = Speed(mean_ms=100, source="profile", count=101, cdf_ms=(100.0,) * 101)
    SPEEDS = Profile(speeds={"fast": QUICK, "cheap": QUICK})

    def plan(self, **params: object) -> Plan:
        return a_plan(**{"latency_hedge_mode": "probability_target", **params})

    def test_is_for_a_request_that_goes_to_another(self) -> None:
        found = routewise.hedge(self.plan(), Prompt(tokens=9), self.SPEEDS, "cheap")

        assert found == Hedge(after_ms=2700, locations=["fast"])

    def test_is_not_where_it_is_disabled(self) -> None:
        plan = self.plan(latency_hedge_mode="disabled")

        assert routewise.hedge(plan, Prompt(tokens=9), self.SPEEDS, "cheap") is None

    def test_follows_the_slo_that_an_operator_has_set(self) -> None:
        plan = self.plan()
        plan.overrides = Overrides(settings={"routewise_latency_slo_sec": 1.0})

        found = routewise.hedge(plan, Prompt(tokens=9), self.SPEEDS, "cheap")

        assert found is not None
        assert found.after_ms == pytest.approx(875)

    def test_is_not_where_nothing_is_known_of_the_other(self) -> None:
        profile = Profile(speeds={"cheap": self.QUICK})

        assert routewise.hedge(self.plan(), Prompt(tokens=9), profile, "cheap") is None

    def test_is_not_with_a_supply_that_could_not_be_drawn_from(self) -> None:
        plan = self.plan()
        plan.drained["fast"] = Reason.PLACES_TAKEN

        assert routewise.hedge(plan, Prompt(tokens=9), self.SPEEDS, "cheap") is None
