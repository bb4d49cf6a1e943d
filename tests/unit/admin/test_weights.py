"""Weights at run time: the files' stay known, what holds is shown, nothing is left without."""

from __future__ import annotations

import pytest

from gateway.admin.weights import RouteWeights
from gateway.errors import InvalidRequest
from tests.fakes.builders import config, model, route
from tests.unit.admin.conftest import Embedded

M = model(route("a", weight=2.0), route("b", weight=0.0, configured_weight=0.0), route("c"))
N = model(route("a", model_id="n"), id="n")


@pytest.fixture
def weights(store: Embedded) -> RouteWeights:
    return RouteWeights(config(M, N), store)


async def test_without_overrides_the_configured_weights_are_in_force(
    weights: RouteWeights,
) -> None:
    listed = (await weights.all()).routes
    assert [one.endpoint_id for one in listed] == ["m:a", "m:b", "m:c", "n:a"]
    one = listed[0]
    assert (one.model_id, one.strategy, one.provider) == ("m", "fixed", "a")
    assert one.base_url == "http://a.invalid/v1"
    assert (one.yaml_weight, one.override_weight, one.effective_weight) == (2.0, None, 2.0)
    assert one.epoch == 0


@pytest.mark.parametrize("word", ["a", "m:a"])
async def test_weight_that_was_set_is_in_force_under_a_higher_epoch(
    weights: RouteWeights, word: str
) -> None:
    first = await weights.set(M, word, 5.0)
    assert (first.yaml_weight, first.override_weight, first.effective_weight) == (2.0, 5.0, 5.0)
    second = await weights.set(M, "c", 0.5)
    assert second.epoch > first.epoch > 0
    assert [one.effective_weight for one in (await weights.of(M)).routes] == [5.0, 0.0, 0.5]
    assert (await weights.of(N)).routes[0].epoch == 0


async def test_setting_the_same_weight_again_raises_no_epoch(weights: RouteWeights) -> None:
    first = await weights.set(M, "a", 5.0)
    assert await weights.set(M, "a", 5.0) == first


async def test_dropped_override_lets_the_files_weight_hold(weights: RouteWeights) -> None:
    set_ = await weights.set(M, "a", 5.0)
    dropped = await weights.drop(M, "a")
    assert (dropped.override_weight, dropped.effective_weight) == (None, 2.0)
    assert dropped.epoch > set_.epoch
    assert await weights.drop(M, "a") == dropped


async def test_override_can_bring_in_a_route_that_the_files_keep_out(
    weights: RouteWeights,
) -> None:
    assert (await weights.set(M, "b", 1.0)).effective_weight == 1.0
    assert (await weights.set(M, "a", 0.0)).effective_weight == 0.0
    assert (await weights.set(M, "c", 0.0)).effective_weight == 0.0


@pytest.mark.parametrize("zero", [0.0, -0.0])
async def test_last_route_of_a_model_cannot_be_zeroed(weights: RouteWeights, zero: float) -> None:
    await weights.set(M, "c", 0.0)
    before = await weights.of(M)
    with pytest.raises(InvalidRequest, match="cannot zero all routes for model 'm'"):
        await weights.set(M, "a", zero)
    assert await weights.of(M) == before


async def test_disabled_provider_counts_as_out(store: Embedded, weights: RouteWeights) -> None:
    routes = [(one.location, one.provider, one.weight) for one in M.routes]
    await store.override_provider("m", label="c", disabled=True, routes=routes, force=False)
    assert [one.effective_weight for one in (await weights.of(M)).routes] == [2.0, 0.0, 0.0]
    with pytest.raises(InvalidRequest, match="cannot zero all"):
        await weights.set(M, "a", 0.0)


@pytest.mark.parametrize("weight", [-1.0, -1e-12, 1e-10, 1.1e9, float("inf"), float("nan")])
async def test_weight_that_cannot_be_drawn_by_is_refused(
    weights: RouteWeights, weight: float
) -> None:
    with pytest.raises(InvalidRequest, match="0, or from 1e-9 to 1e9"):
        await weights.set(M, "a", weight)
    assert (await weights.of(M)).routes[0].epoch == 0


@pytest.mark.parametrize("weight", [1e-9, 1e9])
async def test_weight_at_the_border_is_taken(weights: RouteWeights, weight: float) -> None:
    assert (await weights.set(M, "a", weight)).effective_weight == weight


@pytest.mark.parametrize("word", ["x", "n:a", ""])
async def test_unknown_endpoint_is_refused_with_those_there_are(
    weights: RouteWeights, word: str
) -> None:
    for attempt in (weights.set(M, word, 1.0), weights.drop(M, word)):
        with pytest.raises(InvalidRequest, match="unknown endpoint for model 'm'") as raised:
            await attempt
        assert raised.value.status == 400
        assert raised.value.message.endswith("Its endpoints: a, b, c.")
