"""Quotas and places of routes: what they need, who shares them, and what would never be used."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gateway.core.supply import Source, Supply

SOURCE = {"provider": "local", "usage_label": "requests", "unit": "day"}
QUOTA = {"provider_type": "quota", "quota": {"limit": 500}, "quota_source": SOURCE}
PLACES = {"provider_type": "concurrency", "concurrency": {"limit": 4}}
PAID: dict[str, Any] = {"pricing": {"prompt": "1", "completion": "2"}}
ACME = {
    "url": "https://acme.example/usage",
    "usages": [{"usage_label": "daily", "unit": "requests", "used": "data.used"}],
}


def models(*routes: dict[str, Any], router: str = "routewise", **params: Any) -> str:
    """A model with these routes, each at a location of its own, and one beside it with the last."""
    return yaml.safe_dump({"models": [entry("m", *routes, router=router, **params)]})


def entry(id: str, *routes: dict[str, Any], router: str = "routewise", **params: Any) -> Any:
    return {
        "id": id,
        "name": id,
        "provider": "vllm",
        "router": router,
        "router_params": params,
        "route": [
            {"location": f"r{n}", "base_url": f"http://r{n}.example/v1", **route}
            for n, route in enumerate(routes)
        ],
    }


def supplies(loaded: Any) -> list[Supply | None]:
    return [route.supply for route in loaded.config.models["m"].routes]


def test_a_quota_is_its_routes_own_unless_a_pool_is_named(load_texts) -> None:
    loaded = load_texts(models(PAID, QUOTA, {**QUOTA, "quota_pool": "team"}))

    source = Source(**SOURCE)
    assert supplies(loaded) == [
        None,
        Supply(kind="quota", pool="m:r1", limit=500, source=source),
        Supply(kind="quota", pool="team", limit=500, source=source),
    ]
    assert not loaded.problems


def test_places_likewise(load_texts) -> None:
    loaded = load_texts(models(PLACES, {**PLACES, "concurrency_pool": "team"}))

    assert supplies(loaded) == [
        Supply(kind="places", pool="m:r0", limit=4),
        Supply(kind="places", pool="team", limit=4),
    ]


@pytest.mark.parametrize(
    ("route", "missing"),
    [
        ({**QUOTA, "quota": None}, "quota"),
        ({**QUOTA, "quota_source": None}, "quota_source"),
        ({**PLACES, "concurrency": None}, "concurrency"),
    ],
)
def test_what_a_kind_of_provider_needs_is_asked_for(
    load_texts, route: dict[str, Any], missing: str
) -> None:
    route = {key: value for key, value in route.items() if value is not None}
    loaded = load_texts(models(PAID, route))

    assert [str(one) for one in loaded.errors] == [
        f"error models.yaml: models[0].route[1].{missing}: is required with provider_type: "
        f"{route['provider_type']}"
    ]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "100"])
@pytest.mark.parametrize("key", ["quota", "concurrency"])
def test_a_limit_that_is_no_number_of_requests_is_refused(
    load_texts, key: str, limit: object
) -> None:
    route = {**(QUOTA if key == "quota" else PLACES), key: {"limit": limit}}
    loaded = load_texts(models(PAID, route))

    assert [one.path for one in loaded.errors] == [f"models[0].route[1].{key}.limit"] + [
        f"models[0].route[1].{key}"
    ] * (len(loaded.errors) - 1)


def test_what_another_kind_of_provider_has_is_warned_of(load_texts) -> None:
    loaded = load_texts(models({**PAID, "quota": {"limit": 5}}, {**PLACES, "quota_pool": "x"}))

    assert [str(one) for one in loaded.warnings] == [
        "warning models.yaml: models[0].route[0].quota: has no effect with provider_type: "
        "on_demand",
        "warning models.yaml: models[0].route[1].quota_pool: has no effect with provider_type: "
        "concurrency",
    ]


def test_another_strategy_takes_no_heed_and_says_so(load_texts) -> None:
    loaded = load_texts(models(PAID, PLACES, router="fixed"))

    assert supplies(loaded) == [None, None]
    assert [one.path for one in loaded.warnings] == ["models[0].route[1].provider_type"]


@pytest.mark.parametrize(
    "other",
    [
        {**QUOTA, "quota": {"limit": 400}},
        {**QUOTA, "quota_source": {**SOURCE, "provider": "acme"}},
    ],
)
def test_routes_that_share_a_pool_have_to_agree_on_it(load_texts, other: dict[str, Any]) -> None:
    text = yaml.safe_dump(
        {
            "models": [
                entry("m", PAID, {**QUOTA, "quota_pool": "team"}),
                entry("n", PAID, {**other, "quota_pool": "team"}),
            ]
        }
    )
    (problem,) = load_texts(text).errors

    assert "n:r1 and m:r1 share the pool 'team'" in str(problem)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCE, None),
        ({"provider": "acme", "usage_label": "daily", "unit": "requests"}, None),
        (
            {"provider": "acmee", "usage_label": "daily", "unit": "requests"},
            "no quota_fetchers entry is named 'acmee', so that the route is not used (did you "
            "mean acme?)",
        ),
        (
            {"provider": "acme", "usage_label": "dayly", "unit": "requests"},
            "acme has no usage_label: dayly, unit: requests, so that the route is not used (it has "
            "usage_label: daily, unit: requests)",
        ),
        (
            {**SOURCE, "unit": "week"},
            "local has no usage_label: requests, unit: week, so that the route is not used (it has "
            "usage_label: requests, unit: day)",
        ),
    ],
)
def test_a_source_that_nobody_reports_is_warned_of(
    load_texts, source: dict[str, Any], said: str | None
) -> None:
    routing = yaml.safe_dump({"quota_fetchers": {"acme": ACME}})
    loaded = load_texts(models(PAID, {**QUOTA, "quota_source": source}), routing=routing)

    found = [str(one) for one in loaded.problems]
    if said is None:
        assert not found
    else:
        (one,) = found
        assert one.startswith("warning models.yaml: nobody reports the quota of m:r1")
        assert one.endswith(said)


class TestWhatAQuotaIsWorth:
    def test_cannot_be_learned_where_there_is_nothing_else(self, load_texts) -> None:
        (problem,) = load_texts(models(QUOTA)).errors

        assert "EnvelopeNotCalibratedError: the model 'm' has routes of quotas alone" in str(
            problem
        )

    def test_is_lent_by_another_model(self, load_texts) -> None:
        assert not load_texts(models(QUOTA, envelope_bootstrap_donor_models=["n"])).problems

    def test_is_not_learned_from_places_without_a_price_to_reckon_with(self, load_texts) -> None:
        (problem,) = load_texts(models(QUOTA, PLACES)).warnings
        reference = {"reference_api_price": {"prompt": "1"}}

        assert "the quotas of the model 'm' are never used" in str(problem)
        assert not load_texts(models(QUOTA, PLACES, **reference)).problems


def test_a_fetchers_headers_are_in_no_digest_but_by_the_name_of_a_variable(load_texts) -> None:
    def digest(header: str) -> str:
        fetcher = {**ACME, "headers": {"authorization": header}}
        routing = yaml.safe_dump({"quota_fetchers": {"acme": fetcher}})
        loaded = load_texts(models(PAID), routing=routing, env={"KEY": "k1", "OTHER": "k2"})
        assert loaded.config is not None
        assert "secret" not in repr(loaded.config)
        return str(loaded.config.digest)

    assert digest("Bearer secret-1") == digest("Bearer secret-2")
    assert digest("${KEY}") != digest("${OTHER}")
