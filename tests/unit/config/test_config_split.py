"""How routing.yaml's local and remote deployments share a model's traffic."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config import Loaded
from gateway.config.schema import Deployment
from gateway.config.split import Split
from gateway.config.strategies import FixedParams
from gateway.core.route import Route
from tests.fakes.builders import route

HERE, THERE = "http://localhost:1/v1", "https://api.example.com/v1"


def deployed(*urls: str, models: tuple[str, ...] = ("m",)) -> tuple[Deployment, ...]:
    return tuple(Deployment(endpoint=url, models=models) for url in urls)


def split(
    *routes: Route,
    local: tuple[Deployment, ...] = deployed(HERE),
    remote: tuple[Deployment, ...] = deployed(THERE),
    fraction: float = 0.5,
    names: tuple[str, ...] = ("m",),
) -> list[Route]:
    return Split(local_fraction=fraction, local=local, remote=remote).over(names, routes)


def weights(routes: list[Route]) -> dict[str, float]:
    return {one.location: one.weight for one in routes}


def at(url: str, location: str, **values: Any) -> Route:
    return route(location, base_url=url, **values)


def test_each_side_divides_its_part_evenly_whatever_the_weights_are() -> None:
    result = split(
        at(HERE, "a", weight=7),
        at(THERE, "c"),
        at(HERE, "b"),
        at(THERE, "d", weight=0.1),
        at(THERE, "e"),
        fraction=0.4,
    )
    assert weights(result) == pytest.approx({"a": 0.2, "b": 0.2, "c": 0.2, "d": 0.2, "e": 0.2})
    assert [one.configured_weight for one in result] == [7, 1, 1, 0.1, 1]


def test_a_route_of_neither_side_weighs_its_former_share_and_comes_last() -> None:
    result = split(
        at("http://else:1", "x", weight=20), at(HERE, "a", weight=10), at(THERE, "b", weight=10)
    )
    assert list(weights(result)) == ["a", "b", "x"]
    assert weights(result) == {"a": 0.5, "b": 0.5, "x": 0.5}
    assert [one.configured_weight for one in result] == [10, 10, 20]
    assert [one.is_split for one in result] == [True, True, False]


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("url", [HERE, THERE])
def test_a_side_without_routes_leaves_its_part_to_the_other(url: str, fraction: float) -> None:
    result = split(at(url, "a"), at(url, "b"), fraction=fraction)
    assert weights(result) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(("fraction", "left"), [(0.0, "b"), (1.0, "a")])
def test_a_part_of_nothing_takes_a_side_out(fraction: float, left: str) -> None:
    result = split(at(HERE, "a"), at(THERE, "b"), fraction=fraction)
    assert [one.location for one in result if one.weight] == [left]
    assert all(one.is_split for one in result)


def test_a_weight_of_zero_stays_and_takes_no_part() -> None:
    result = split(at(HERE, "off", weight=0.0), at(HERE, "a"), at(THERE, "b"))
    assert weights(result) == {"a": 0.5, "b": 0.5, "off": 0.0}


def test_where_the_split_comes_to_the_configured_shares_nothing_is_marked() -> None:
    result = split(at(HERE, "a", weight=3), at(THERE, "b", weight=7), fraction=0.3)
    assert weights(result) == pytest.approx({"a": 0.3, "b": 0.7})
    assert not any(one.is_split for one in result)


def test_an_address_that_is_both_local_and_remote_is_local() -> None:
    result = split(at(HERE, "a"), at(THERE, "b"), remote=deployed(HERE, THERE), fraction=0.9)
    assert weights(result) == pytest.approx({"a": 0.9, "b": 0.1})


@pytest.mark.parametrize(
    "local",
    [
        deployed(HERE, models=("other",)),
        deployed("http://localhost:1"),
        deployed("http://LOCALHOST:1/v1"),
        (*deployed(HERE, models=("other",)), *deployed("http://else:1")),
    ],
    ids=["other model", "other path", "other spelling", "address and model in two entries"],
)
def test_only_an_entry_with_the_very_address_and_the_model_counts(
    local: tuple[Deployment, ...],
) -> None:
    routes = [at(HERE, "a", weight=3), at("http://b:1", "b", weight=4)]
    assert split(*routes, local=local, remote=()) == routes


def test_a_deployment_may_give_an_alias() -> None:
    local = deployed(HERE, models=("nickname",))
    result = split(at(HERE, "a"), at(THERE, "b"), local=local, names=("m", "nickname"))
    assert weights(result) == {"a": 0.5, "b": 0.5}


MODELS = f"""
models:
  - id: m
    name: M
    provider: vllm
    aliases: [nickname]
    route:
      - {{base_url: "http://else:1", weight: 2, pricing: {{prompt: 1}}, kind: zai}}
      - {{base_url: "{HERE}/", pricing: {{prompt: 2}}, provider: own}}
      - {{base_url: "{THERE}"}}
"""
ROUTING = {
    "local": f"local_deployment: [{{endpoint: '{HERE}', models: [m]}}]\n",
    "remote": f"remote_deployment: [{{endpoint: '{THERE}/', models: [m]}}]\n",
}


def test_a_configuration_is_split_when_it_is_loaded(load_texts) -> None:
    # When
    loaded = load_texts(
        MODELS, routing=ROUTING["local"] + ROUTING["remote"] + "local_fraction: 0.25"
    )

    # Then
    assert not loaded.problems
    model = loaded.config.models["m"]
    assert [one.base_url for one in model.routes] == [HERE, THERE, "http://else:1"]
    assert [one.weight for one in model.routes] == [0.25, 0.75, 0.5]
    assert [one.configured_weight for one in model.routes] == [1, 1, 2]
    assert model.pricing == {"prompt": "2"}  # what is shown of the first route is this one's


def test_without_deployments_weights_and_order_are_those_of_the_file(load_texts) -> None:
    model = load_texts(MODELS, routing="local_fraction: 0.9").config.models["m"]
    assert [one.weight for one in model.routes] == [2, 1, 1]
    assert [one.configured_weight for one in model.routes] == [2, 1, 1]


@pytest.mark.parametrize(
    ("routing", "router"),
    [("default_router: other\n", "fixed"), ("default_router: fixed\n", "other")],
    ids=["default router", "router of the model"],
)
def test_only_fixed_models_are_split_and_only_while_fixed_is_the_default(
    load_texts, routing: str, router: str
) -> None:
    loaded = load_texts(
        MODELS.replace("name: M", f"name: M\n    router: {router}"),
        routing=routing + ROUTING["local"] + ROUTING["remote"],
        strategies={"fixed": FixedParams, "other": FixedParams},
    )
    assert [one.weight for one in loaded.config.models["m"].routes] == [2, 1, 1]


def warnings(loaded: Loaded) -> list[tuple[str, str]]:
    assert not loaded.errors
    assert {problem.file for problem in loaded.warnings} <= {"routing.yaml"}
    return [(problem.path, problem.message) for problem in loaded.warnings]


def test_a_deployment_with_an_unknown_model_or_a_strange_address_is_warned_of(load_texts) -> None:
    loaded = load_texts(
        MODELS,
        routing=f"""
        local_deployment:
          - {{endpoint: "{HERE}", models: [m, nickname, n]}}
          - {{endpoint: "http://localhost:1", models: [nobody, m, nickname]}}
        remote_deployment: [{{endpoint: "{THERE}", models: [m]}}]
        """,
    )
    assert warnings(loaded) == [
        ("local_deployment[0].models[2]", "there is no model 'n'"),
        ("local_deployment[1].models[0]", "there is no model 'nobody'"),
        ("local_deployment[1].endpoint", "is the base_url of no route of 'm', 'nickname'"),
    ]


def test_of_a_model_that_is_not_served_no_address_is_missed(load_texts) -> None:
    loaded = load_texts(
        "models: [{id: m, name: M, provider: vllm, base_url: '${NOT_SET}'}]",
        routing=ROUTING["local"],
        allow_missing_env=True,
    )
    assert not [problem for problem in loaded.problems if problem.file == "routing.yaml"]
