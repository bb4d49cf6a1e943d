"""How each strategy puts an attempt's candidates to `admit`."""

from __future__ import annotations

import pytest

from gateway.config.strategies import STRATEGY_PARAMS, ExpectedTtftParams, FixedParams
from gateway.core.plan import Plan
from gateway.routing.strategies import STRATEGIES, expected_ttft, fixed, strategy_of
from tests.fakes.builders import model, plan, route


def a_plan(pin: str | None = None) -> Plan:
    return plan(route("a"), route("b"), pin=pin)


def test_every_strategy_that_the_config_knows_is_there_and_no_other() -> None:
    assert STRATEGIES.keys() == STRATEGY_PARAMS.keys()


def test_a_model_has_the_strategy_that_its_config_names() -> None:
    assert strategy_of(model()) is fixed
    assert strategy_of(model(router="expected_ttft")) is expected_ttft


class TestFixed:
    def test_draws_the_first_attempt_and_then_follows_the_declaration(self) -> None:
        orders = [fixed.order(a_plan(), attempt) for attempt in (1, 2, 3)]

        assert orders == ["draw", "declared", "declared"]

    def test_reckons_with_no_rate(self) -> None:
        assert fixed.prefill_rate(model(router_params=FixedParams())) == 0


class TestExpectedTtft:
    def test_compares_endpoints_for_every_attempt(self) -> None:
        orders = {expected_ttft.order(a_plan(), attempt) for attempt in (1, 2, 3)}

        assert orders == {"expected_ttft"}

    def test_reckons_with_the_configured_rate(self) -> None:
        params = ExpectedTtftParams(prefill_tokens_per_s=3_000)

        assert expected_ttft.prefill_rate(model(router_params=params)) == 3_000

    def test_takes_no_parameters_of_another_strategy(self) -> None:
        with pytest.raises(TypeError, match="m: router_params of expected_ttft: FixedParams"):
            expected_ttft.prefill_rate(model(router="expected_ttft", router_params=FixedParams()))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_operators_pin_outranks_every_strategy(strategy) -> None:
    assert strategy.order(a_plan(pin="a"), 1) == "pinned"
