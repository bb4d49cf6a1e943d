"""Which routes a request could go to at all."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.overrides import Overrides
from gateway.core.plan import Plan
from gateway.core.reasons import Reason
from gateway.core.route import Route
from gateway.errors import InvalidRequest
from gateway.routing.candidates import Planner
from gateway.routing.filters import FILTERS
from tests.fakes.builders import chat, model, route

IMAGE = [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
AUDIO = [{"type": "input_audio", "input_audio": {}}, *IMAGE]
SEES = frozenset({"text", "image"})
HEARS = frozenset({"text", "image", "audio"})


def plan(*routes: Route, content: Any = "hi", pin: str | None = None) -> Plan:
    return Planner().plan(model(*routes), chat(content), Overrides(), pin)


def refusal(result: Plan) -> InvalidRequest:
    """What a plan without candidates says to the client."""
    assert isinstance(result.refusal, InvalidRequest)
    return result.refusal


def locations(result: Plan) -> list[str]:
    return [one.location for one in result.left()]


def test_all_routes_in_service_are_candidates_in_declaration_order() -> None:
    result = plan(route("b"), route("a"), route("c"))
    assert locations(result) == ["b", "a", "c"]
    assert result.pin is None
    assert not result.reasons()


def test_a_weight_of_zero_takes_a_route_out() -> None:
    result = plan(route("a", weight=0.0), route("b", weight=1e-9))
    assert locations(result) == ["b"]
    assert result.reasons() == {"a": "weight_zero"}


@pytest.mark.parametrize(
    ("content", "left"),
    [("hi", ["a", "b", "c"]), (IMAGE, ["b", "c"]), (AUDIO, ["c"])],
    ids=["text", "image", "image and audio"],
)
def test_only_routes_that_take_all_kinds_of_the_input_are_left(
    content: object, left: list[str]
) -> None:
    a, b = route("a"), route("b", input_modalities=SEES)
    result = plan(a, b, route("c", input_modalities=HEARS), content=content)
    assert locations(result) == left
    assert set(result.reasons().values()) <= {"modality"}


def test_when_no_route_takes_the_input_the_kinds_are_named() -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan(route("a"), route("b", input_modalities=SEES), content=AUDIO)
    assert refused.value.message == "Model 'm' does not support audio, image input."
    assert refused.value.param == "messages"


def test_a_seeing_route_out_of_service_does_not_make_a_model_see() -> None:
    result = plan(route("a"), route("b", input_modalities=SEES, weight=0.0), content=IMAGE)
    assert not locations(result)
    assert refusal(result).message == "Model 'm' does not support image input."


def test_a_route_that_an_operator_puts_in_service_is_a_candidate_from_then_on() -> None:
    planner, asked = Planner(), chat(IMAGE)
    result = planner.plan(
        model(route("a"), route("b", input_modalities=SEES, weight=0.0)), asked, Overrides()
    )
    planner.follow(result, asked, Overrides(epoch=7, weights={"b": 2.0}))
    assert result.candidates.table == (("b", 2.0),)
    assert result.candidates.epoch == 7
    assert result.refusal is None


def test_overrides_hold_although_somebody_has_set_their_epoch_back() -> None:
    planner, routes = Planner(), model(route("a"), route("b"))
    planner.plan(routes, chat(), Overrides())
    result = planner.plan(routes, chat(), Overrides(epoch=0, weights={"a": 0.0}))
    assert result.candidates.table == (("b", 1.0),)
    assert result.reasons() == {"a": "weight_zero"}


def test_what_has_been_tried_stays_struck_out_under_other_overrides() -> None:
    planner, asked = Planner(), chat()
    result = planner.plan(model(route("a"), route("b"), route("c")), asked, Overrides())
    result.strike(route("a"), Reason.ALREADY_ATTEMPTED)
    planner.follow(result, asked, Overrides(epoch=7, disabled=frozenset({"c"})))
    assert locations(result) == ["b"]
    assert result.reasons() == {"a": "already_attempted", "c": "provider_disabled"}


@pytest.mark.parametrize("pin", ["b", "m:b"], ids=["provider", "endpoint"])
def test_a_pin_leaves_the_route_it_names(pin: str) -> None:
    result = plan(route("a"), route("b"), route("c"), pin=pin)
    assert locations(result) == ["b"]
    assert result.pin == pin
    assert result.reasons() == {"a": "not_pinned", "c": "not_pinned"}


def test_a_pin_to_a_provider_leaves_its_first_route_in_service() -> None:
    first = route("a", provider="p", weight=0.0)
    result = plan(first, route("b", provider="p"), route("c", provider="p"), pin="p")
    assert locations(result) == ["b"]


@pytest.mark.parametrize("pin", ["nobody", "M:a", ""])
def test_a_pin_to_nothing_is_refused_at_once(pin: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan(route("a"), route("off", weight=0.0), pin=pin)
    assert refused.value.message.startswith(f"Pinned provider '{pin}' not found for model 'm': ")


@pytest.mark.parametrize("pin", ["off", "m:off"])
def test_a_pin_to_nothing_in_service_is_refused_unless_the_store_knows_better(pin: str) -> None:
    result = plan(route("a"), route("off", weight=0.0), pin=pin)
    assert not locations(result)
    assert refusal(result).message.startswith(f"Pinned provider '{pin}' not found for model 'm': ")


def test_a_pin_does_not_make_a_blind_route_see() -> None:
    result = plan(route("a"), route("b", input_modalities=SEES), content=IMAGE, pin="a")
    assert not locations(result)
    assert refusal(result)


def test_routes_in_service_are_counted_whatever_the_request_asks_of_them() -> None:
    routes = [route("a", input_modalities=SEES), route("b"), route("c", weight=0.0)]
    assert plan(*routes).candidates.in_service == 2
    assert plan(*routes, content=IMAGE).candidates.in_service == 2
    assert plan(*routes, pin="a").candidates.in_service == 2
    only = Planner().plan(model(*routes), chat(), Overrides(disabled=frozenset({"b"})))
    assert only.candidates.in_service == 1


def test_filters_are_pure() -> None:
    one, asked = route("a"), chat(IMAGE)
    for check in FILTERS:
        assert check(one, asked) == check(one, asked)
