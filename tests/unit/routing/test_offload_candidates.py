"""Which candidate is kept for requests to be offloaded, if any is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.config.strategies import ExpectedTtftParams, FixedParams
from gateway.core.offload import Offload
from gateway.core.overrides import Overrides, SetOffload
from gateway.core.reasons import Reason
from gateway.routing.candidates import Planner
from tests.fakes.builders import chat, model, route

POLICY = Offload(location="b", wait_s=1.0)
MODEL = model(route("a"), route("b"), offload=POLICY)
NONE = Overrides()


def test_the_named_route_is_kept_and_stays_in_the_table() -> None:
    candidates = Planner().plan(MODEL, chat(), NONE).candidates
    assert (candidates.reserve, candidates.offload) == ("b", POLICY)
    assert [at for at, _ in candidates.table] == ["a", "b"]


def test_an_operators_policy_holds_in_place_of_the_configured_one() -> None:
    changed = SetOffload(policy=replace(POLICY, location="a"), at_ms=1, by="ops")
    plan = Planner().plan(MODEL, chat(), Overrides(epoch=1, offload=changed))
    assert plan.candidates.reserve == "a"


@pytest.mark.parametrize(
    "overrides",
    [
        Overrides(epoch=1, weights={"b": 0.0}),
        Overrides(epoch=1, disabled=frozenset({"b"})),
        Overrides(
            epoch=1, offload=SetOffload(policy=replace(POLICY, location="x"), at_ms=1, by="o")
        ),
    ],
    ids=["weight 0", "provider disabled", "unknown route"],
)
def test_a_policy_whose_route_is_not_in_service_is_none(overrides: Overrides) -> None:
    candidates = Planner().plan(MODEL, chat(), overrides).candidates
    assert (candidates.reserve, candidates.offload) == ("", None)


@pytest.mark.parametrize(
    "strategy",
    [
        {"router": "expected_ttft", "router_params": ExpectedTtftParams()},
        {"router_params": FixedParams(hybrid_composition=True)},
    ],
)
def test_strategies_that_place_requests_by_themselves_have_none(strategy: dict[str, Any]) -> None:
    of = model(route("a"), route("b"), offload=POLICY, **strategy)
    assert Planner().plan(of, chat(), NONE).candidates.offload is None


def test_only_a_prompt_above_the_size_drops_the_route_and_says_why() -> None:
    of = replace(MODEL, offload=replace(POLICY, max_input_tokens=99))
    planner = Planner()
    fits = planner.plan(of, chat(), NONE, tokens=99).candidates
    assert fits.reserve == "b"
    large = planner.plan(of, chat(), NONE, tokens=100).candidates
    assert (large.reserve, large.dropped) == ("", {"b": Reason.MAX_INPUT})
    assert large.offload is not None
    # A size that nobody has told is found out.
    assert planner.plan(of, chat("x" * 400), NONE).candidates.reserve == ""
    assert planner.plan(of, chat("x" * 396), NONE).candidates.reserve == "b"


@pytest.mark.parametrize("pin", ["a", "b"])
def test_a_pinned_request_has_none_kept_but_the_policy_for_its_engine(pin: str) -> None:
    of = replace(MODEL, offload=replace(POLICY, engine_queue_limit=2, max_input_tokens=1))
    candidates = Planner().plan(of, chat(), NONE, pin, tokens=100).candidates
    assert (candidates.reserve, list(candidates.by_location)) == ("", [pin])
    assert candidates.offload == of.offload


def test_where_only_the_kept_route_takes_such_input_it_is_kept_all_the_same() -> None:
    b = route("b", input_modalities=frozenset({"text", "image"}))
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    plan = Planner().plan(model(route("a"), b, offload=POLICY), chat(image), NONE)
    assert (plan.candidates.reserve, list(plan.candidates.by_location)) == ("b", ["b"])
    assert plan.has_reserve
    plan.strike(b, Reason.ALREADY_ATTEMPTED)
    assert not plan.has_reserve
