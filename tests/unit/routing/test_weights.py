"""Weights in force, and why some are 0."""

from __future__ import annotations

import logging

import msgspec
import pytest

from gateway.core.overrides import Overrides
from gateway.core.route import Model, Route
from gateway.routing.weights import Divergences, Notice, Weights, exclusions, shares, weigh
from tests.fakes.builders import model, route

NONE = Overrides()


def split(location: str, weight: float, configured: float = 1.0) -> Route:
    """A route that the local/remote split has given this weight."""
    return msgspec.structs.replace(route(location, weight=configured), weight=weight, is_split=True)


def weights(one: Model, overrides: Overrides) -> dict[str, float]:
    return {weighed.route.location: weighed.weight for weighed in weigh(one, overrides)}


def reasons(one: Model, overrides: Overrides = NONE) -> dict[str, list[str]]:
    """Why routes are excluded."""
    found = exclusions(one, overrides)
    assert all(share.effective_weight == 0 for share in found)
    return {share.endpoint_id: list(share.reasons) for share in found}


def changes(one: Model, overrides: Overrides = NONE) -> dict[str, list[str]]:
    """What has been done to routes."""
    return {
        share.endpoint_id: list(share.reasons) for share in shares(one, overrides) if share.reasons
    }


def test_without_overrides_the_weights_are_those_of_the_files() -> None:
    one = model(route("a", weight=3.0), split("b", 0.25), route("c", weight=0.0))
    assert weights(one, NONE) == {"a": 3.0, "b": 0.25, "c": 0.0}


def test_an_override_replaces_the_weight_also_of_a_split_or_of_zero() -> None:
    one = model(route("a", weight=3.0), split("b", 0.25), route("c", weight=0.0))
    overrides = Overrides(epoch=1, weights={"a": 0.0, "b": 2.0, "c": 1.0, "gone": 9.0})
    assert weights(one, overrides) == {"a": 0.0, "b": 2.0, "c": 1.0}
    assert reasons(one, overrides) == {"m:a": ["weight_override"]}


def test_a_disabled_label_takes_out_all_its_routes_and_no_others() -> None:
    one = model(route("a", provider="p"), route("b"), route("c", provider="p"))
    overrides = Overrides(epoch=1, weights={"c": 5.0}, disabled=frozenset({"p", "unknown"}))
    assert weights(one, overrides) == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert reasons(one, overrides) == {"m:a": ["provider_disabled"], "m:c": ["provider_disabled"]}


def test_a_disabled_label_is_an_exact_one() -> None:
    overrides = Overrides(epoch=1, disabled=frozenset({"A", "m:a", ""}))
    assert weights(model(), overrides) == {"a": 1.0}


def test_each_mechanism_has_its_reason() -> None:
    one = model(
        route("live"),
        route("off", weight=0.0),
        split("split", 0.0),
        route("overridden"),
        route("disabled", provider="p"),
    )
    overrides = Overrides(epoch=1, weights={"overridden": 0.0}, disabled=frozenset({"p"}))
    assert reasons(one, overrides) == {
        "m:off": ["configured_zero"],
        "m:split": ["routing_yaml"],
        "m:overridden": ["weight_override"],
        "m:disabled": ["provider_disabled"],
    }


@pytest.mark.parametrize(
    ("one", "weight", "expected"),
    [
        (route("a"), 0.0, ["weight_override", "provider_disabled"]),
        (route("a", weight=0.0), None, ["configured_zero", "provider_disabled"]),
        (split("a", 0.0), None, ["routing_yaml", "provider_disabled"]),
        (split("a", 0.5), None, ["provider_disabled"]),
        (route("a"), 0.5, ["provider_disabled"]),
        (route("a", weight=0.0), 0.5, ["provider_disabled"]),
    ],
    ids=["override 0", "configured 0", "split 0", "split above 0", "override", "override of 0"],
)
def test_of_a_disabled_route_all_is_told_that_would_keep_it_out(
    one: Route, weight: float | None, expected: list[str]
) -> None:
    overrides = Overrides(
        epoch=1,
        weights={} if weight is None else {"a": weight},
        disabled=frozenset({"a"}),
    )
    assert reasons(model(one, route("b")), overrides) == {"m:a": expected}


@pytest.mark.parametrize(
    ("one", "weight"),
    [(route("a", weight=0.7), 0.7), (route("a", weight=0.1 + 0.2), 0.3), (split("a", 0.2), 0.2)],
)
def test_an_override_equal_to_the_weight_it_replaces_is_no_reason(
    one: Route, weight: float
) -> None:
    overrides = Overrides(epoch=1, weights={"a": weight})
    assert changes(model(one, route("b")), overrides) == changes(model(one, route("b")))


def test_an_override_of_zero_where_zero_is_configured_is_no_reason() -> None:
    one = model(route("a", weight=0.0), route("b"))
    assert reasons(one, Overrides(epoch=1, weights={"a": 0.0})) == {"m:a": ["configured_zero"]}


def test_a_tiny_weight_is_not_zero() -> None:
    one = model(route("a", weight=1e-9), route("b", weight=1e9))
    assert reasons(one) == {}
    assert changes(one, Overrides(epoch=1, weights={"a": 2e-9})) == {"m:a": ["weight_override"]}


def test_siblings_are_not_blamed_for_the_share_they_gain() -> None:
    one = model(route("a"), route("b"), route("c"))
    overrides = Overrides(epoch=1, weights={"b": 0.0}, disabled=frozenset({"c"}))
    a, b, c = shares(one, overrides)
    assert (a.configured_weight, a.effective_weight, a.reasons) == (pytest.approx(1 / 3), 1.0, ())
    assert (b.configured_weight, b.effective_weight) == (pytest.approx(1 / 3), 0.0)
    assert (c.configured_weight, c.effective_weight) == (pytest.approx(1 / 3), 0.0)


def test_weights_are_reported_as_shares_with_all_that_identifies_a_route() -> None:
    one = model(route("a", weight=30.0), route("b", weight=10.0, provider="p"))
    overrides = Overrides(epoch=1, weights={"b": 0.0})
    assert msgspec.json.decode(msgspec.json.encode(exclusions(one, overrides))) == [
        {
            "model_id": "m",
            "endpoint_id": "m:b",
            "provider": "p",
            "base_url": "http://b.invalid/v1",
            "configured_weight": 0.25,
            "effective_weight": 0.0,
            "reasons": ["weight_override"],
        }
    ]


def test_configured_shares_are_those_before_the_split() -> None:
    one = model(split("a", 0.1, configured=3.0), split("b", 0.9, configured=1.0))
    assert [share.configured_weight for share in shares(one, NONE)] == [0.75, 0.25]
    assert [share.effective_weight for share in shares(one, NONE)] == [0.1, 0.9]


def test_a_model_without_any_route_in_service_has_shares_of_zero() -> None:
    overrides = Overrides(epoch=1, disabled=frozenset({"a"}))
    [share] = exclusions(model(), overrides)
    assert (share.configured_weight, share.effective_weight) == (1.0, 0.0)


def test_weights_are_worked_out_once_for_a_model_and_its_overrides() -> None:
    remembered, one = Weights(), model()
    first = remembered.of(one, NONE)
    assert first == weigh(one, NONE)
    assert remembered.of(one, Overrides()) is first

    second = remembered.of(one, Overrides(epoch=2, weights={"a": 2.0}))
    assert second[0].weight == 2.0
    assert remembered.of(one, Overrides(epoch=2, weights={"a": 3.0}))[0].weight == 3.0
    assert remembered.of(model(route("a", weight=5.0)), Overrides(epoch=2))[0].weight == 5.0


def told(notices: list[Notice]) -> list[tuple[str, int, str | None]]:
    return [(notice.name, notice.level, notice.fields.get("endpoint")) for notice in notices]


def test_differences_are_told_once_with_their_reasons() -> None:
    one = model(route("a"), route("b"), route("c", provider="p"))
    overrides = Overrides(epoch=1, weights={"b": 0.5}, disabled=frozenset({"p"}))
    divergences = Divergences()
    notices = divergences.notices(one, overrides)
    assert told(notices) == [
        ("route_weight_overridden", logging.INFO, "m:b"),
        ("route_weight_zeroed", logging.WARNING, "m:c"),
    ]
    assert notices[1].fields == {
        "model": "m",
        "endpoint": "m:c",
        "provider": "p",
        "configured_weight": pytest.approx(1 / 3),
        "effective_weight": 0.0,
        "reasons": ["provider_disabled"],
    }
    again = msgspec.structs.replace(overrides, epoch=2)
    assert divergences.notices(one, again) == []


def test_another_set_of_differences_is_told_anew_and_none_as_cleared() -> None:
    one, divergences = model(route("a"), route("b")), Divergences()
    divergences.notices(one, Overrides(epoch=1, weights={"a": 0.0, "b": 2.0}))
    changed = divergences.notices(one, Overrides(epoch=2, weights={"a": 0.0}))
    assert told(changed) == [("route_weight_zeroed", logging.WARNING, "m:a")]

    cleared = divergences.notices(one, Overrides(epoch=3))
    assert told(cleared) == [("route_weight_divergence_cleared", logging.INFO, None)]
    assert cleared[0].fields == {"model": "m"}
    assert divergences.notices(one, Overrides(epoch=4)) == []


def test_models_are_told_of_apart() -> None:
    one, other, divergences = model(), model(route(model_id="n"), id="n"), Divergences()
    zeroed = Overrides(epoch=1, weights={"a": 0.0})
    divergences.notices(one, zeroed)
    assert told(divergences.notices(other, zeroed)) == [
        ("route_weight_zeroed", logging.WARNING, "n:a")
    ]
    assert divergences.notices(one, zeroed) == []


def test_the_split_is_told_and_a_weight_of_zero_in_the_file_is_not() -> None:
    one = model(split("a", 0.0), split("b", 0.6), route("c", weight=0.0), route("d"))
    assert told(Divergences().notices(one, NONE)) == [
        ("route_weight_zeroed", logging.WARNING, "m:a"),
        ("route_weight_overridden", logging.INFO, "m:b"),
    ]
    assert Divergences().notices(model(route("c", weight=0.0), route("d")), NONE) == []
