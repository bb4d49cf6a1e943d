"""Which failures may pause an endpoint, for how long, and on what condition."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admission.claims import Claims
from gateway.admission.cooling import cooling_after_failure, cooling_after_success, outcome_of
from gateway.admission.settlement import Settlement
from gateway.core.cooldown import HYBRID, Cooldown
from gateway.core.outcome import ErrorClass, Outcome
from gateway.core.prompt import NO_PROMPT
from gateway.core.route import Route
from gateway.state.replies import RecordReply
from tests.fakes.builders import plan, route
from tests.fakes.failure import Failed
from tests.fakes.rig import admission_over
from tests.fakes.store import MemoryStore

LITELLM = Cooldown(policy="litellm")
SEVERAL_AT_ONCE = [
    ErrorClass.AUTHENTICATION,
    ErrorClass.NOT_FOUND,
    ErrorClass.PAYMENT,
    ErrorClass.RATE_LIMIT,
]
BY_SHARE = [
    ErrorClass.BAD_GATEWAY,
    ErrorClass.INTERNAL_SERVER,
    ErrorClass.SERVICE_UNAVAILABLE,
    ErrorClass.TIMEOUT,
]
NEVER = [ErrorClass.BAD_REQUEST, ErrorClass.CONTENT_POLICY_VIOLATION, ErrorClass.OTHER]


def cooling(
    rules: Cooldown,
    kind: ErrorClass = ErrorClass.RATE_LIMIT,
    *,
    retry_after_ms: int | None = None,
    is_only: bool = False,
) -> str:
    failure = Failed(error_class=kind, error_type="why", retry_after_ms=retry_after_ms)
    return cooling_after_failure(failure, rules, is_only=is_only)


def length_ms(rules: Cooldown, retry_after_ms: int | None = None) -> int:
    words = dict(word.split("=") for word in cooling(rules, retry_after_ms=retry_after_ms).split())
    return int(words["length_ms"])


def test_every_class_is_in_the_table() -> None:
    assert {*SEVERAL_AT_ONCE, *BY_SHARE, *NEVER} == set(ErrorClass)


class TestHybrid:
    @pytest.mark.parametrize("is_only", [False, True])
    @pytest.mark.parametrize("kind", [*SEVERAL_AT_ONCE, *BY_SHARE])
    def test_pauses_when_the_upstream_says_so(self, kind: ErrorClass, is_only: bool) -> None:
        said = cooling(HYBRID, kind, retry_after_ms=9_500, is_only=is_only)

        assert said == "length_ms=9500 reason=why"

    @pytest.mark.parametrize("kind", [*SEVERAL_AT_ONCE, *BY_SHARE])
    def test_does_not_pause_otherwise(self, kind: ErrorClass) -> None:
        assert cooling(HYBRID, kind) == ""

    @pytest.mark.parametrize("kind", NEVER)
    def test_does_not_pause_for_what_is_no_fault_of_the_endpoint(self, kind: ErrorClass) -> None:
        assert cooling(HYBRID, kind, retry_after_ms=9_500) == ""

    def test_tallies_no_success(self) -> None:
        assert cooling_after_success(HYBRID) == ""

    @pytest.mark.parametrize("outcome", Outcome)
    def test_leaves_the_circuit_all_failures(self, outcome: Outcome) -> None:
        failure = Failed(outcome=outcome, error_class=ErrorClass.RATE_LIMIT)

        assert outcome_of(failure, HYBRID) is outcome


class TestLitellm:
    @pytest.mark.parametrize("kind", SEVERAL_AT_ONCE)
    def test_pauses_one_of_several_at_once(self, kind: ErrorClass) -> None:
        assert cooling(LITELLM, kind) == "tally=failed length_ms=5000 reason=why"

    @pytest.mark.parametrize("kind", [ErrorClass.AUTHENTICATION, ErrorClass.NOT_FOUND])
    def test_pauses_the_only_endpoint_where_it_serves_nobody(self, kind: ErrorClass) -> None:
        said = cooling(LITELLM, kind, is_only=True)

        assert said == "tally=failed length_ms=5000 reason=why"

    @pytest.mark.parametrize("kind", [ErrorClass.RATE_LIMIT, ErrorClass.PAYMENT])
    def test_spares_the_only_endpoint(self, kind: ErrorClass) -> None:
        assert cooling(LITELLM, kind, retry_after_ms=60_000, is_only=True) == "tally=failed"

    @pytest.mark.parametrize("kind", BY_SHARE)
    def test_pauses_for_most_of_5_attempts(self, kind: ErrorClass) -> None:
        assert cooling(LITELLM, kind) == "tally=failed length_ms=5000 reason=why mostly=5"

    @pytest.mark.parametrize("kind", BY_SHARE)
    def test_pauses_the_only_endpoint_for_all_of_1000_attempts(self, kind: ErrorClass) -> None:
        said = cooling(LITELLM, kind, is_only=True)

        assert said == "tally=failed length_ms=5000 reason=why wholly=1000"

    @pytest.mark.parametrize("kind", NEVER)
    def test_passes_over_what_is_no_fault_of_the_endpoint(self, kind: ErrorClass) -> None:
        assert cooling(LITELLM, kind, retry_after_ms=9_500) == ""

    def test_tallies_successes(self) -> None:
        assert cooling_after_success(LITELLM) == "tally=succeeded"

    def test_leaves_the_circuit_all_failures_but_refusals_for_haste(self) -> None:
        outcomes = {kind: outcome_of(Failed(error_class=kind), LITELLM) for kind in ErrorClass}

        assert outcomes.pop(ErrorClass.RATE_LIMIT) is Outcome.NEUTRAL
        assert set(outcomes.values()) == {Outcome.FAILURE}


class TestAllowedFails:
    def allowing(self, number: int | None = None, **by_class: int) -> Cooldown:
        return Cooldown(
            policy="litellm",
            allowed_fails=number,
            allowed_fails_by_class={ErrorClass(name): n for name, n in by_class.items()},
        )

    @pytest.mark.parametrize("number", [0, 1, 3])
    @pytest.mark.parametrize("kind", [*SEVERAL_AT_ONCE, *BY_SHARE])
    def test_are_counted_in_the_tables_place(self, kind: ErrorClass, number: int) -> None:
        said = cooling(self.allowing(number), kind)

        assert said == f"length_ms=5000 reason=why count=any allowed={number} within_ms=5000"

    def test_are_counted_within_the_configured_time_whatever_the_upstream_asks_for(self) -> None:
        rules = Cooldown(policy="litellm", allowed_fails=1, time_ms=7_000)

        said = cooling(rules, retry_after_ms=60_000)

        assert said == "length_ms=60000 reason=why count=any allowed=1 within_ms=7000"

    def test_of_a_class_are_counted_alone(self) -> None:
        rules = self.allowing(2, timeout=7)

        assert "count=timeout allowed=7 " in cooling(rules, ErrorClass.TIMEOUT)
        assert "count=any allowed=2 " in cooling(rules, ErrorClass.RATE_LIMIT)

    def test_of_other_classes_are_three(self) -> None:
        said = cooling(self.allowing(timeout=7), ErrorClass.RATE_LIMIT)

        assert "count=any allowed=3 " in said

    @pytest.mark.parametrize("kind", [ErrorClass.BAD_REQUEST, ErrorClass.CONTENT_POLICY_VIOLATION])
    def test_make_a_class_a_reason_that_is_none_otherwise(self, kind: ErrorClass) -> None:
        assert f"count={kind} allowed=1 " in cooling(self.allowing(**{kind: 1}), kind)
        assert cooling(self.allowing(1), kind) == ""

    @pytest.mark.parametrize("kind", ErrorClass)
    def test_never_pause_the_only_endpoint(self, kind: ErrorClass) -> None:
        assert cooling(self.allowing(0, timeout=0), kind, is_only=True) == ""

    def test_need_no_tally_of_successes(self) -> None:
        assert cooling_after_success(self.allowing(1)) == ""
        assert cooling_after_success(self.allowing(timeout=1)) == ""


class TestLength:
    @pytest.mark.parametrize(
        ("time_ms", "retry_after_ms", "expected_ms"),
        [
            pytest.param(None, None, 5_000, id="nobody says"),
            pytest.param(None, 800, 800, id="the upstream says"),
            pytest.param(None, 90_000, 90_000, id="the upstream says more"),
            pytest.param(None, 0, 5_000, id="the upstream names no time to come"),
            pytest.param(30_000, None, 30_000, id="the config says"),
            pytest.param(30_000, 0, 30_000, id="the config says, the upstream nothing"),
            pytest.param(30_000, 10_000, 30_000, id="the config says more"),
            pytest.param(30_000, 90_000, 90_000, id="the config says less"),
            pytest.param(None, 86_400_000, 3_600_000, id="the upstream says too much"),
            pytest.param(7_200_000, 86_400_000, 7_200_000, id="the config says even more"),
        ],
    )
    def test_is_the_longer_of_what_config_and_upstream_say(
        self, time_ms: int | None, retry_after_ms: int | None, expected_ms: int
    ) -> None:
        litellm = Cooldown(policy="litellm", time_ms=time_ms)

        assert length_ms(litellm, retry_after_ms) == expected_ms
        if retry_after_ms is not None:
            assert length_ms(Cooldown(time_ms=time_ms), retry_after_ms) == expected_ms

    def test_is_at_most_what_the_config_grants_an_upstream(self) -> None:
        assert length_ms(Cooldown(max_ms=60_000), 60_001) == 60_000

    @pytest.mark.parametrize("kind", ErrorClass)
    @pytest.mark.parametrize("policy", ["hybrid", "litellm"])
    def test_of_nothing_is_never_a_pause(self, policy: str, kind: ErrorClass) -> None:
        for rules in (
            Cooldown(policy=policy, time_ms=0),
            Cooldown(policy=policy, time_ms=0, allowed_fails=0),
        ):
            assert cooling(rules, kind, retry_after_ms=60_000) == ""
            assert cooling_after_success(rules) == ""


class HearingStore(MemoryStore):
    """Hears what is said of cooldowns."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str]] = []

    async def settle(self, model_id: str, *, cooling: str = "", **how: Any) -> RecordReply:
        self.told.append((str(how["outcome"]), cooling))
        return await super().settle(model_id, **how)


async def told(*routes: Route, failure: Failed | None = None) -> tuple[str, str]:
    """What the store hears of the outcome and cooldown of an attempt at the first of the routes."""
    store, claims = HearingStore(), Claims("r1")
    settlement = Settlement(store, claims, lease_ms=1000)  # type: ignore[arg-type]
    admission = admission_over(store, claims, settlement)
    claim = await admission.admit(plan(*routes), NO_PROMPT, order="draw", request_id="r", attempt=1)
    if failure:
        await admission.fail(claim, failure)
    else:
        admission.succeed(claim)
    await settlement.drain(10)
    [heard] = store.told
    return heard


async def test_the_store_hears_what_follows_from_the_routes_rules() -> None:
    a, b = route("a", cooldown=LITELLM), route("b", cooldown=LITELLM)
    hasty = Failed(error_class=ErrorClass.RATE_LIMIT, error_type="http_429", status=429)

    assert await told(a, b, failure=hasty) == (
        "neutral",
        "tally=failed length_ms=5000 reason=http_429",
    )
    assert await told(a, failure=hasty) == ("neutral", "tally=failed")
    assert await told(a, b) == ("success", "tally=succeeded")
    assert await told(route("a"), route("b"), failure=hasty) == ("failure", "")
    assert await told(route("a"), route("b")) == ("success", "")
